"""A close while the exception of an interrupted call is still there, with all that its frames hold.

As in ``finally``, or at the end of ``with MessageStore.open(…)``: no lock is left taken.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

from cqstore.store.errors import NestedCallError, StoreError, StoreFailedError
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.runtime.running_state import CriticalSection
from tests.kit.double_write import open_store
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.mutations import in_time

SECONDS = 30
MOST = 60
STEPS: dict[str, Callable[[MessageStore], object]] = {
    "verify": lambda store: store.verify(),
    "check": lambda store: [*store.check()],
    "spans": lambda store: [*store.queue_spans()],
    "topics": lambda store: [*store.topics()],
    "flush": lambda store: store.flush(),
    "delete": lambda store: store.delete_topic("gone"),
    "unused": lambda store: store.clean_unused_topics(["t"]),
    "rebuild": lambda store: store.rebuild_queues("t"),
    "expire": lambda store: store.delete_expired_files(store.max_phy_offset()),
    "expiring": lambda store: store.expiring_files(),
    "figures": lambda store: store.metrics.snapshot(),
}


def opened(root: Path) -> MessageStore:
    store = open_store(root, "file")
    for number in range(12):
        topic = "t" if number % 3 else "gone"
        assert store.put_message(Message(topic, b"x", number % 2, {"KEYS": "k"})).ok
    return store


def ask(store: MessageStore) -> object:
    return store.max_offset("t", 0)


def is_of_a_context(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith("contextlib.py")


def interrupt(root: Path, step: Callable[[MessageStore], object], number: int) -> None:
    store = opened(root)
    with in_time(SECONDS):
        try:
            run_interrupted(lambda: step(store), number)
        except Interrupted:
            try:
                store.close()
            except NestedCallError:
                raise
            except StoreError:  # it has failed
                store.close()
        store.close()
        with open_store(root, "file") as again:
            assert again.max_offset("t", 0) + again.max_offset("t", 1) == 8
            assert not any(finding.damage for finding in again.check())


def places_of(
    root: Path, step: Callable[[MessageStore], object], wanted: Callable[[FrameType], bool]
) -> list[int]:
    numbers, found = count(1), list[int]()

    def note(frame: FrameType) -> None:
        number = next(numbers)
        if wanted(frame):
            found.append(number)

    with opened(root) as store:
        run_interrupted(lambda: step(store), on_place=note)
    return found


@IGNORED
@pytest.mark.slow
def test_a_store_closes_while_the_exception_of_an_interrupted_call_is_there(
    tmp_path: Path,
) -> None:
    """Where a context manager is entered or left: it may keep what it holds."""
    found = places_of(tmp_path / "whole", STEPS["verify"], is_of_a_context)
    for number in found[::8]:
        interrupt(tmp_path / str(number), STEPS["verify"], number)


@IGNORED
@pytest.mark.slow
def test_a_close_says_that_a_dispatch_was_cut_short(tmp_path: Path) -> None:
    """Once, where no call has met it before; it is no close of a store that was closed already."""

    unsaid = 0
    steps = {
        Dispatcher._begin_batch.__code__,
        Dispatcher._dispatch.__code__,
        CriticalSection.begin.__code__,
    }
    for number in places_of(tmp_path / "whole", ask, lambda frame: frame.f_code in steps):
        store = opened(tmp_path / str(number))
        with suppress(Interrupted):
            run_interrupted(lambda store=store: ask(store), number)  # type: ignore[misc]
        if (
            components_of(store).state.failure is None
            and components_of(store).dispatcher._dispatching.begun
        ):
            unsaid += 1
            with pytest.raises(StoreFailedError, match="the dispatch of a batch was interrupted"):
                store.close()
        with suppress(StoreError):
            store.close()
        store.close()
    assert unsaid


@IGNORED
@pytest.mark.long
@pytest.mark.parametrize("name", STEPS)
def test_a_store_closes_while_the_exception_of_a_call_interrupted_anywhere_is_there(
    tmp_path: Path, name: str, drawn_places: Callable[[int, int], range]
) -> None:
    found = places_of(tmp_path / "whole", STEPS[name], lambda _: True)
    contexts = places_of(tmp_path / "contexts", STEPS[name], is_of_a_context)
    chosen = {found[at - 1] for at in drawn_places(len(found), MOST)} | {*contexts[:MOST]}
    for number in sorted(chosen):
        interrupt(tmp_path / str(number), STEPS[name], number)
