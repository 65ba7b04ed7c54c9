"""ReplicaWait: waits until followers have the records of a put, as ``GroupCommit`` for the disk.

Only a feeder, a layer above the store, has the followers and their positions. The store reads them
through ``Replicas``, and decides here what they mean.

Source: RocketMQ ``CommitLog.handleHA``, ``GroupTransferService``.
"""

import time
from collections import deque
from typing import NamedTuple, Protocol

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.future import Promised
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.settings.config import StoreConfig


class Replicas(Protocol):
    """The followers of a store, without the store itself. Any thread may call."""

    def in_sync(self, phy_offset: int, gap: int) -> int:
        """Return the number of followers that lag less than ``gap`` bytes behind ``phy_offset``."""

    def reached(self, followers: int) -> int:
        """Return the phy offset that at least ``followers`` followers have reached; -1: too few."""

    def wait(self, phy_offset: int, followers: int, deadline: float) -> bool:
        """Wait until ``followers`` distinct followers have the log up to ``phy_offset``.

        Return False at ``deadline``, a time of ``time.monotonic``.
        """


class ReplicaWait:
    """Waits for the replicas that the settings of one store require. Any thread."""

    def __init__(self, config: StoreConfig, log: CommitLog, replicas: Replicas) -> None:
        self._log = log
        self._replicas = replicas
        self._followers = config.awaited_followers
        self._minimum = config.min_in_sync_replicas - 1
        self._gap = config.ha_max_gap_not_in_sync
        self._timeout = config.slave_timeout / 1000
        self._lock = CheckedLock("the queue of waits for followers")  # guards the fields below
        self._queue: deque[_Later] = deque()
        self._stopped = False
        self._wake = Wakeup()
        self.worker = Worker(
            "cqstore-replicas", self._run, self._give_up, "puts that wait for replicas fail"
        )

    @property
    def locks(self) -> tuple[CheckedLock, ...]:
        """Return its own locks, for ``LockOrder.add``."""
        return (self._lock,)

    @classmethod
    def of(
        cls, config: StoreConfig, log: CommitLog, replicas: Replicas | None
    ) -> "ReplicaWait | None":
        """Return the wait for replicas; ``None`` if no put waits for any under the settings."""
        is_required = config.awaited_followers > 0 or config.min_in_sync_replicas > 1
        return None if replicas is None or not is_required else cls(config, log, replicas)

    def refusal(self) -> str:
        """Return why no put is accepted now, one sentence; empty: puts are accepted."""
        if not self._minimum:
            return ""
        there = self._replicas.in_sync(self._log.max_phy_offset(), self._gap)
        if there >= self._minimum:
            return ""
        return (
            "not enough replicas are in sync: expected"
            f" {self._minimum + 1} (minInSyncReplicas), found {there + 1}, this one included"
        )

    def wait_for(self, phy_offset: int) -> bool:
        """Return once the required followers have the log up to ``phy_offset``; False: too late.

        The record is in the log all the same, and they may get it later.
        """
        return self._is_there(phy_offset, time.monotonic() + self._timeout)

    def when_replicated(self, phy_offset: int, future: Promised[bool]) -> None:
        """Complete ``future`` with the result of ``wait_for``. Calls are in log order.

        After ``stop``, with the result at that time.
        """
        later = _Later(phy_offset, time.monotonic() + self._timeout, future)
        with self._lock.entry():
            if not self._stopped:
                self._queue.append(later)
                self._wake.set()
                return
        future.set_result(self._is_there(phy_offset, 0))

    def start(self) -> None:
        """Start the thread."""
        self.worker.start()

    def stop(self) -> None:
        """End the thread: no caller waits any longer."""
        with self._lock.entry():
            self._stopped = True
            self._wake.set()
        self.worker.end()

    # ---- inside

    def _is_there(self, phy_offset: int, deadline: float) -> bool:
        if not self._followers:
            return True
        self._log.commit()  # buffered data is not served to readers
        return self._replicas.wait(phy_offset, self._followers, deadline)

    def _run(self) -> None:
        """Wait for one put, and complete all that are due with it, in log order."""
        while True:
            stopped = self._stopped  # first: nothing is appended after it
            if self._queue:
                done = self._wait_out(self._queue[0])  # stays there: ``_give_up`` must find it
                reached = (
                    self._replicas.reached(self._followers) if done and self._followers else -1
                )
                self._serve_first(there=done)
                while self._queue and self._queue[0].phy_offset <= reached:
                    self._serve_first(there=True)
            elif stopped:
                return
            else:
                self._wake.wait()

    def _serve_first(self, *, there: bool) -> None:
        later = self._queue.popleft()
        later.future.set_result(there)

    def _wait_out(self, later: "_Later") -> bool:
        """Wait for one put, in steps: a close does not wait for followers that never catch up."""
        while not self._stopped:
            until = min(later.deadline, time.monotonic() + _LOOK_AGAIN)
            if self._is_there(later.phy_offset, until):
                return True
            if until == later.deadline:
                return False
        return self._is_there(later.phy_offset, 0)

    def _give_up(self, exc: BaseException) -> None:
        with self._lock.entry():
            self._stopped = True
            waiting, self._queue = self._queue, deque()
        for later in waiting:
            later.future.set_exception(exc)


class _Later(NamedTuple):
    """A put with a future, and the deadline of its wait."""

    phy_offset: int
    deadline: float
    future: Promised[bool]


_LOOK_AGAIN = 0.1
"""Interval in seconds at which the thread checks whether the store is being closed."""
