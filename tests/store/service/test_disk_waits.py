"""Who waits for a sync of the log, who makes it, and whom it waits for: with syncs of our own."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import pytest

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.service.writing._waits import DiskWaits
from tests.kit.interrupts import Interrupted
from tests.kit.waiting import until

SECONDS = 30
LONG = 1000.0
"""Who sleeps so long before he looks again, or before he leads, does not end the test in time."""


class Disk:
    """A log whose syncs wait until they may end, and what they return."""

    def __init__(self) -> None:
        self._flushed = 0
        self.end = 0
        self.patience = LONG
        self.syncs = 0
        self.may_end = threading.Semaphore(0)
        self.fails = False
        self.waits = DiskWaits(
            self,  # type: ignore[arg-type]
            self._sync, CheckedLock("a sync"), look_again=LONG,
        )  # fmt: skip

    def _sync(self) -> float:
        end = self.end
        self.syncs += 1
        assert self.may_end.acquire(timeout=SECONDS)
        if self.fails:
            raise OSError(5, "Input/output error")
        self._flushed = max(self._flushed, end)
        return self.patience

    def wait(self, seconds: float = 2 * LONG) -> bool:
        """Put, and wait until it is durable."""
        self.end += 1
        mine = self.end
        there = self.waits.wait(mine, seconds)
        assert not there or self._flushed >= mine
        return there


class Story:
    """Threads that wait, one after the other."""

    def __init__(self, disk: Disk, pool: ThreadPoolExecutor) -> None:
        self.disk, self.pool = disk, pool

    def comes(self, seconds: float = 2 * LONG) -> "Future[bool]":
        """One more comes; return when it sleeps, or syncs."""
        disk = self.disk
        before = disk.waits.waiting + disk.syncs
        done = self.pool.submit(disk.wait, seconds)
        until(lambda: disk.waits.waiting + disk.syncs == before + 1)
        return done

    def served_together(self, count: int) -> None:
        """So many are served by one sync, after one before it."""
        disk = self.disk
        first, patience = self.comes(), disk.patience
        disk.patience = 0
        others = [self.comes() for _ in range(count)]
        disk.may_end.release()
        assert first.result(SECONDS)
        until(lambda: disk.syncs == 2)
        disk.patience = patience
        disk.may_end.release()
        assert all(other.result(SECONDS) for other in others)
        disk.syncs = 0


@pytest.fixture
def story() -> Iterator[Story]:
    disk = Disk()
    with ThreadPoolExecutor(20) as pool:
        yield Story(disk, pool)
        disk.may_end.release(1000)


def test_those_of_a_sync_are_waited_for_by_the_next_one(story: Story) -> None:
    """Else one half of the writers would put while the other half is served."""
    disk = story.disk
    story.served_together(4)
    early = [story.comes() for _ in range(3)]
    assert (disk.syncs, disk.waits.waiting) == (0, 3)
    last = story.comes()
    assert (disk.syncs, disk.waits.waiting) == (1, 3), "the last one leads, and wakes none for it"
    disk.may_end.release()
    assert all(each.result(SECONDS) for each in (*early, last))
    assert disk.syncs == 1


def test_who_does_not_come_is_waited_for_as_long_as_was_said_and_then_no_more(story: Story) -> None:
    disk = story.disk
    disk.patience = 0.2
    story.served_together(4)
    disk.patience = LONG
    only = story.comes()
    until(lambda: disk.syncs == 1)  # it leads in the end: the three others do something else
    others = [story.comes() for _ in range(2)]
    disk.may_end.release()
    assert only.result(SECONDS)
    until(lambda: disk.syncs == 2)  # and these do not wait for that one
    disk.may_end.release()
    assert all(each.result(SECONDS) for each in others)


def test_what_is_not_worth_it_is_tried_ever_less(story: Story) -> None:
    disk = story.disk
    disk.patience = 0.001
    tried = list[int]()
    for number in range(60):
        disk.syncs = 0
        pair = story.comes(), story.comes()
        disk.may_end.release()
        assert pair[0].result(SECONDS)
        if disk.waits.expected == 2:
            tried.append(number)
        until(lambda: disk.syncs == 2)  # the first one does not come again in time
        disk.may_end.release()
        assert pair[1].result(SECONDS)
    gaps = [later - early for early, later in pairwise(tried)]
    assert gaps == [1, 2, 4, 8, 16]


def test_a_leader_that_comes_after_the_time_is_no_wait_in_vain(story: Story) -> None:
    """Nobody has slept until then, so the next sync may be waited for again."""
    disk = story.disk
    disk.patience = 1e-9
    story.served_together(4)
    assert disk.waits.expected == 4
    disk.may_end.release()
    assert disk.wait()
    assert (disk.syncs, disk.waits.expected) == (1, 1)
    trio = [story.comes() for _ in range(3)]
    disk.may_end.release()
    assert trio[0].result(SECONDS)
    until(lambda: disk.syncs == 3)  # the second one leads
    assert disk.waits.expected == 3
    disk.may_end.release(2)
    assert all(each.result(SECONDS) for each in trio)


def test_a_lone_writer_and_who_flushes_wait_for_nobody(story: Story) -> None:
    disk = story.disk
    disk.may_end.release(3)
    for _ in range(3):
        assert disk.wait()
    assert disk.syncs == 3
    disk.syncs = 0
    story.served_together(4)
    disk.may_end.release()
    assert disk.wait(math.inf)


def test_who_has_less_time_leads_instead(story: Story) -> None:
    disk = story.disk
    story.served_together(4)
    disk.may_end.release()
    assert disk.wait(LONG / 2)
    assert disk.syncs == 1


def test_who_is_late_while_another_one_syncs_is_told_so(story: Story) -> None:
    disk = story.disk
    leader = story.comes()
    assert not disk.wait(0.01)
    assert disk.waits.waiting == 0
    disk.may_end.release()
    assert leader.result(SECONDS)


def test_each_that_waits_for_a_sync_that_fails_is_told(story: Story) -> None:
    disk = story.disk
    all_of_them = [story.comes() for _ in range(5)]
    disk.fails = True
    disk.may_end.release(5)
    for each in all_of_them:
        assert isinstance(each.exception(SECONDS), OSError)
    assert disk.syncs == 5


def test_a_leader_that_is_thrown_out_is_followed_by_the_next(story: Story) -> None:
    disk = story.disk
    leader, *others = (story.comes() for _ in range(5))
    disk.fails = True
    disk.may_end.release()
    assert isinstance(leader.exception(SECONDS), OSError)
    until(lambda: disk.syncs == 2)
    disk.fails = False
    disk.may_end.release()
    assert all(each.result(SECONDS) for each in others)
    assert disk.syncs == 2


def interrupted_while_it_sleeps(story: Story, meanwhile: Callable[[], object]) -> None:
    """Wait in this thread; a handler does something, and raises."""
    disk, before = story.disk, story.disk.waits.waiting
    asleep = list[bool]()

    def handler(*_: object) -> None:
        asleep.append(disk.waits.waiting == before + 1)
        meanwhile()
        raise Interrupted

    def interrupt() -> None:
        until(lambda: disk.waits.waiting == before + 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        helper = story.pool.submit(interrupt)
        with pytest.raises(Interrupted):
            disk.wait()
        helper.result(SECONDS)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert asleep == [True]


@pytest.mark.parametrize("served", [True, False], ids=["served", "to lead"])
def test_who_is_interrupted_when_it_is_called_leaves_the_call_to_the_next(
    story: Story, *, served: bool
) -> None:
    """It was the first to be called: by a sync that served it, or by one that failed."""
    disk = story.disk
    leader, others = story.comes(), list[Future[bool]]()

    def meanwhile() -> None:
        others.extend(story.comes() for _ in range(3))
        if served:
            disk.patience = 0
            disk._flushed = disk.end  # of what lies behind the sync's begin, too
        disk.fails = not served
        disk.may_end.release()
        until(leader.done)
        disk.fails = False

    interrupted_while_it_sleeps(story, meanwhile)
    disk.may_end.release()
    assert all(each.result(SECONDS) for each in others)
    assert disk.waits.waiting == 0


def test_who_is_interrupted_while_others_are_waited_for_leaves_the_end_of_it_to_the_next(
    story: Story,
) -> None:
    disk = story.disk
    disk.patience = 0.1
    story.served_together(4)
    others = list[Future[bool]]()
    interrupted_while_it_sleeps(story, lambda: others.append(story.comes()))
    disk.may_end.release()
    assert others[0].result(SECONDS), "it looks when the time is over"


def test_writers_that_put_again_and_again_are_served_together(story: Story) -> None:
    disk = story.disk
    disk.patience = 0.1
    served = [story.pool.submit(lambda: [disk.wait() for _ in range(50)]) for _ in range(16)]
    until(lambda: disk.waits.waiting == 15)
    disk.may_end.release(1000)
    assert all(all(each.result(SECONDS)) for each in served)
    assert disk._flushed == disk.end == 16 * 50
    assert disk.syncs < 2 * 50, "each served more than a half of them"
    assert disk.waits.waiting == 0
