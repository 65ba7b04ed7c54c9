"""Tables that have room for a few: a worker that is asked to stop at any instant loses nothing.

As ``test_interrupts``, where a dispatch comes with each put: the next offset of one queue alone is
kept, a file of the index takes four keys, and topics are read and mirrored by their classes, with
a trace before the mirror.
"""

from itertools import count
from pathlib import Path

import pytest

from cqstore.ab.trace.trace_control import record_trace
from cqstore.store.service.dispatching import dispatch
from cqstore.store.service.message_store import MessageStore
from tests.interrupts import test_interrupts
from tests.interrupts.test_interrupts import BASE, SECONDS, STEPS, Bench
from tests.kit.interrupts import IGNORED
from tests.kit.long_too import long_too
from tests.kit.mutations import in_time
from tests.kit.share import SomePlaces

MOST = 600
SHARE = 4
TIGHT = BASE.model_copy(update={
    "max_index_num": 5, "dispatch_slice": 1, "ab_shares": "t=1;*=0.5", "read_topics": "t=rocksdb",
})  # fmt: skip
NORMAL = ("odd-list", "pull")
"""Of the steps those that the normal run takes."""


class Tight(Bench):
    """Each store that is opened records a trace."""

    def __init__(self, folder: Path) -> None:
        self.traces = count()
        super().__init__(folder, "both--tight")

    def opened(self, root: Path) -> MessageStore:
        store = super().opened(root)
        record_trace(store, self.folder / f"{next(self.traces)}.trace")
        return store


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(dispatch, "ASSIGNED_QUEUES", 1)
    monkeypatch.setitem(test_interrupts.CONFIGS, "tight", TIGHT)
    with in_time(SECONDS):
        return Tight(tmp_path)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("step", [*NORMAL, *long_too(sorted({*STEPS} - {*NORMAL}))])
def test_an_interrupt_loses_nothing_where_tables_are_full(
    bench: Bench, step: str, some_places: SomePlaces
) -> None:
    places = bench.run(step, 0)
    assert places > (100 if step in NORMAL else 0)
    for number in some_places(places, SHARE, MOST):
        with in_time(SECONDS):
            bench.run(step, number)
