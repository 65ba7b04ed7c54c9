"""A wait for a thread of a store is interrupted: the thread is still at work, and waited for."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from cqstore.store.concurrency.thread import StoreThread
from tests.kit import interrupts
from tests.kit.interrupts import Interrupted, run_interrupted, throw
from tests.kit.mutations import in_time

SECONDS = 30
STEPS: dict[str, Callable[[StoreThread], object]] = {
    "join": lambda thread: thread.join(0), "is_alive": StoreThread.is_alive,
}  # fmt: skip


@contextmanager
def working() -> Iterator[tuple[StoreThread, Callable[[], list[bool]]]]:
    """A thread that works until the second one is called, which waits for its end."""
    gate, ran = threading.Lock(), list[bool]()
    gate.acquire()

    def work() -> None:
        gate.acquire()
        ran.append(True)

    def end() -> list[bool]:
        if gate.locked():
            gate.release()
        thread.join()
        return ran

    thread = StoreThread("cqstore-test", work)
    thread.start()
    try:
        yield thread, end
    finally:
        end()


@pytest.mark.parametrize("name", STEPS)
def test_a_thread_is_alive_until_its_end_though_a_wait_was_interrupted_anywhere(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_OURS", (*interrupts._OURS, threading.__file__))

    def case(number: int) -> int:
        places = 0
        with in_time(SECONDS), working() as (thread, end):
            with suppress(Interrupted):
                places = run_interrupted(lambda: STEPS[name](thread), number)
            assert thread.is_alive(), number
            assert end() == [True], number
            assert not thread.is_alive()
            assert thread not in threading.enumerate()
        return places

    places = case(0)
    assert places > 2
    for number in range(1, places + 1):
        case(number)


def test_a_thread_is_alive_after_a_signal_came_in_the_middle_of_a_wait_for_it() -> None:
    with working() as (thread, end):
        with in_time(SECONDS):  # which gives the signal back
            signal.signal(signal.SIGALRM, lambda *_: throw())
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                thread.join(SECONDS)
        assert thread.is_alive()
        assert end() == [True]
