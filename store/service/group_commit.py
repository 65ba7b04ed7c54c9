"""GroupCommit: one sync of the log serves all who wait for it.

Who finds nobody syncing becomes the leader and syncs for all who came until then; the others sleep,
each at a gate of its own, until they are served or one of them is made the next leader. There is no
hand-over to a thread: a lone writer pays for nothing but its sync.

After a failed sync the log refuses another one, so all who wait for it are told of the failure.

Source: RocketMQ ``CommitLog.GroupCommitService``.
"""

import threading
import time

from store.log.commit_log import CommitLog
from store.service.meters import Histogram


class GroupCommit:
    """Syncs one log. Any thread may call."""

    def __init__(self, log: CommitLog, timeout_ms: int) -> None:
        """``timeout_ms``: how long ``wait_for`` waits for another one's sync."""
        self._log = log
        self.timeout = timeout_ms / 1000
        """Seconds."""
        self.seconds = Histogram()
        """Syncs that had something to sync."""
        self._lock = threading.Lock()  # guards all below
        self._syncing = False
        self._followers: list[_Follower] = []

    def flush(self) -> int:
        """Make the log durable up to its present end; return that.

        Raises:
            StoreIOError: the disk refused.
            StoreFailedError: it did so before.
        """
        end = self._log.max_phy_offset()
        self._wait(end, -1)
        return end

    def wait_for(self, phy_offset: int) -> bool:
        """Return once the log is durable up to ``phy_offset``; False after the timeout.

        Raises:
            StoreIOError, StoreFailedError: as for ``flush``.
        """
        return self._wait(phy_offset, self.timeout)

    def _wait(self, phy_offset: int, timeout: float) -> bool:
        with self._lock:
            if self._log.flushed_phy_offset() >= phy_offset:
                return True
            follower = _Follower(phy_offset) if self._syncing else None
            if follower is not None:
                self._followers.append(follower)
            self._syncing = True
        if follower is not None:
            follower.gate.acquire(timeout=timeout)
            with self._lock:
                if follower in self._followers:  # nobody came: too late
                    self._followers.remove(follower)
                    return False
                if not follower.leads:
                    return True
        self._lead()
        return True

    def _lead(self) -> None:
        """Sync, serve who is served by that, and make one of the others the next leader."""
        before, started = self._log.flushed_phy_offset(), time.perf_counter()
        try:
            if self._log.flush() > before:
                self.seconds.observe(time.perf_counter() - started)
        finally:
            with self._lock:
                flushed = self._log.flushed_phy_offset()
                done = [one for one in self._followers if one.phy_offset <= flushed]
                self._followers = [one for one in self._followers if one.phy_offset > flushed]
                self._syncing = bool(self._followers)
                if self._followers:  # after a failure it will meet it too, and so will the next
                    leader = self._followers.pop(0)
                    leader.leads = True
                    leader.gate.release()
                for follower in done:
                    follower.gate.release()


class _Follower:
    """Somebody who waits while another one syncs."""

    __slots__ = ("gate", "leads", "phy_offset")

    def __init__(self, phy_offset: int) -> None:
        self.phy_offset = phy_offset
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()
