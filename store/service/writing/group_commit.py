"""GroupCommit: one sync of the log serves all who wait for it.

Who finds nobody syncing becomes the leader and syncs for all who came until then; the others sleep,
each at a gate of its own, until they are served or one of them is made the next leader. There is no
hand-over to a thread: a lone writer pays for nothing but its sync.

Gates only spare the waiters a crowd at one lock. What is right rests on the lock around the sync
alone, which an exception lets go wherever it comes: a waiter whose leader was thrown out looks for
himself after a moment, and leads.

After a failed sync the log refuses another one, so all who wait for it are told of the failure.

Source: RocketMQ ``CommitLog.GroupCommitService``.
"""

import threading
import time

from store.checked_lock import CheckedLock
from store.log.commit_log import CommitLog
from store.service.running.meters import Histogram


class GroupCommit:
    """Syncs one log. Any thread may call."""

    def __init__(self, log: CommitLog, timeout_ms: int) -> None:
        """``timeout_ms``: how long ``wait_for`` waits for the sync of another thread."""
        self.log = log
        self.timeout = timeout_ms / 1000
        """Seconds."""
        self.seconds = Histogram()
        """Syncs that had something to sync."""
        self._leading = CheckedLock("a sync of the log")  # taken with the next one, before it
        self._syncing = threading.Lock()  # held by who syncs
        self._lock = CheckedLock("a wait for the disk")  # guards what is below
        self._led = False  # somebody syncs, or is about to
        self._followers: list[_Follower] = []

    @property
    def locks(self) -> tuple[CheckedLock, ...]:
        """Return what a thread must not hold that waits for the disk."""
        return self._leading, self._lock

    def flush(self) -> int:
        """Make the log durable up to its present end; return that.

        Raises:
            StoreIOError: the disk refused.
            StoreFailedError: it did so before.
        """
        end = self.log.max_phy_offset()
        self._wait(end, None)
        return end

    def wait_for(self, phy_offset: int) -> bool:
        """Return once the log is durable up to ``phy_offset``; False after the timeout.

        The timeout bounds the wait for another thread's sync. Who leads syncs himself, and no
        system call can be given up half-way: he returns when the disk has answered, with True, for
        the log is durable then.

        Raises:
            StoreIOError, StoreFailedError: as for ``flush``.
        """
        return self._wait(phy_offset, time.monotonic() + self.timeout)

    def _wait(self, phy_offset: int, deadline: float | None) -> bool:
        self._leading.entry()  # who leads would follow itself
        follower = _Follower(phy_offset)
        with self._lock.entry():
            if self.log.flushed_phy_offset() >= phy_offset:
                return True
            follows, self._led = self._led, True
            if follows:
                self._followers.append(follower)
        if follows and not self._is_to_lead(follower, deadline):
            return self.log.flushed_phy_offset() >= phy_offset
        try:
            with self._leading.entry(), self._syncing:
                if self.log.flushed_phy_offset() < phy_offset:
                    self._sync()
        finally:
            self._hand_over()
        return True

    def _is_to_lead(self, follower: "_Follower", deadline: float | None) -> bool:
        """Sleep until it is this one's turn to sync (True), or it is served or too late (False)."""
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            patience = _LOOK_AGAIN if left is None else max(min(left, _LOOK_AGAIN), 0)
            called = follower.gate.acquire(timeout=patience)
            with self._lock.entry():
                served = self.log.flushed_phy_offset() >= follower.phy_offset
                late = left is not None and left <= patience
                if not (called or served or late or not self._syncing.locked()):
                    continue
                if follower in self._followers:
                    self._followers.remove(follower)
                return not (served or (late and not called))

    def _sync(self) -> None:
        before, started = self.log.flushed_phy_offset(), time.perf_counter()
        if self.log.flush() > before:
            self.seconds.observe(time.perf_counter() - started)

    def _hand_over(self) -> None:
        """Wake who was served, and make one of the others the next leader."""
        with self._lock.entry():
            flushed = self.log.flushed_phy_offset()
            done = [one for one in self._followers if one.phy_offset <= flushed]
            self._followers = [one for one in self._followers if one.phy_offset > flushed]
            self._led = bool(self._followers)
            if self._followers:  # after a failure it will meet it too, and so will the next
                done.append(self._followers.pop(0))
            for follower in done:
                follower.gate.release()


_LOOK_AGAIN = 0.1
"""Seconds after which a waiter looks whether anybody syncs at all."""


class _Follower:
    """Somebody who waits while another one syncs."""

    __slots__ = ("gate", "phy_offset")

    def __init__(self, phy_offset: int) -> None:
        self.phy_offset = phy_offset
        self.gate = threading.Lock()
        self.gate.acquire()
