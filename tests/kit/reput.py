"""The dispatch thread of a store, started at once and used for every full batch.

A run with ``CQSTORE_REPUT_THREAD=always`` has it in every store; ``SMALL_BATCHES`` then belong to
stores that get few messages.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.dispatching.reput import MODE, ReputService
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.waiting import until

SMALL_BATCHES: dict[str, Any] = {"dispatch_slice": 4} if MODE == "always" else {}
THREAD = "cqstore-reput"


def use_always(store: MessageStore) -> ReputService:
    """Have the thread dispatch every full batch of ``store`` from now on."""
    reput = components_of(store).dispatcher.reput
    reput._mode = "always"
    reput.start_if_wanted()
    until(lambda: reput.is_active)
    return reput


class HeldBatch:
    """The next batch that the thread dispatches waits until it is let go; sizes are noted."""

    def __init__(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        """Units of each batch, whichever thread dispatched it."""
        self.entered = threading.Event()
        self.open = threading.Event()
        self.error: Exception | None = None
        """What the batch fails with, once it is let go."""
        self._store = components_of(store).dispatcher.store
        monkeypatch.setattr(components_of(store).dispatcher, "store", self._stand_in)

    def _stand_in(self, units: UnitBatch, keys: IndexBatch) -> object:
        self.sizes.append(len(units))
        if threading.current_thread().name == THREAD:
            self.entered.set()
            assert self.open.wait(60)
            if self.error is not None:
                raise self.error
        return self._store(units, keys)


@contextmanager
def running(work: Any) -> Iterator[threading.Thread]:
    """Run ``work`` in another thread, and wait for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(60)
        assert not thread.is_alive()
