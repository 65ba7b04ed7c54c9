"""GroupCommit: one sync of the log serves all who wait for it.

The first writer that waits syncs for all who came meanwhile (leader and followers): there is no
hand-over to a thread, and a lone writer pays for nothing but its sync.

Source: RocketMQ ``CommitLog.GroupCommitService``.
"""

import threading
import time

from store.log.commit_log import CommitLog


class GroupCommit:
    """Syncs one log. Any thread may call; one sync at a time."""

    def __init__(self, log: CommitLog, timeout_ms: int) -> None:
        """``timeout_ms``: how long ``wait_for`` waits."""
        self._log = log
        self.timeout = timeout_ms / 1000
        """Seconds."""
        self._lock = threading.Lock()  # the leader holds it

    def flush(self) -> int:
        """Make the log durable up to its present end; return that.

        Raises:
            StoreIOError: the disk refused.
        """
        with self._lock:
            return self._log.flush()

    def wait_for(self, phy_offset: int) -> bool:
        """Return once the log is durable up to ``phy_offset``; False after the timeout.

        The caller becomes the leader if nobody is syncing; a sync that is under way when it comes
        may have begun too early for it, so it looks again after each.

        Raises:
            StoreIOError: the disk refused.
        """
        deadline = time.monotonic() + self.timeout
        while self._log.flushed_phy_offset() < phy_offset:
            if not self._lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
                return False
            try:
                if self._log.flushed_phy_offset() < phy_offset:
                    self._log.flush()
            finally:
                self._lock.release()
        return True
