"""GroupCommit: one sync of the log serves all threads that wait for it.

A caller that finds no leader becomes the leader and syncs for all callers so far. The others sleep,
each at its own gate, until they are served or one of them becomes the next leader. No other thread
is involved: a single writer pays only for its sync.

The threads that the last sync served are likely to put again at once: the next sync waits for them
as long as a sync takes. Otherwise each sync would serve one half of the writers while the other
half puts. If they do not put, the next syncs begin at once (``DiskWaits``).

After a failed sync the log refuses another one, so all threads that wait for it get the error.

Source: RocketMQ ``CommitLog.GroupCommitService``.
"""

import math
import time
from functools import partial

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.runtime.meters import Histogram
from cqstore.store.service.writing import _waits


class GroupCommit:
    """Syncs one log for all threads that wait for it. Any thread may call."""

    def __init__(self, log: CommitLog, timeout_ms: int) -> None:
        """``timeout_ms``: maximum time that ``wait_for`` waits for another thread's sync."""
        self.log = log
        self.timeout = timeout_ms / 1000
        """In seconds."""
        self.seconds = Histogram()
        """Durations of syncs that had data to sync."""
        self._leading = CheckedLock("a sync of the log")
        self._waits = _waits.DiskWaits(log, partial(_sync, log, self.seconds), self._leading)

    @property
    def locks(self) -> tuple[CheckedLock, ...]:
        """Return the locks that a thread must not hold while it waits for the disk."""
        return (self._leading,)

    @property
    def waiting(self) -> int:
        """Return how many threads sleep until a sync serves them."""
        return self._waits.waiting

    def flush(self) -> int:
        """Make the log durable up to its current end; return that end.

        Raises:
            StoreIOError: the sync failed.
            StoreFailedError: an earlier sync failed.
        """
        end = self.log.max_phy_offset()
        self._leading.entry()  # the leader would wait for itself
        self._waits.wait(end, math.inf)
        return end

    def wait_for(self, phy_offset: int) -> bool:
        """Return once the log is durable up to ``phy_offset``; False after the timeout.

        The timeout limits the wait for another thread's sync. The leader itself syncs, and a system
        call cannot be cancelled: it returns True when the sync is finished, because the log is
        durable then.

        Raises:
            StoreIOError, StoreFailedError: as for ``flush``.
        """
        self._leading.entry()
        return self._waits.wait(phy_offset, self.timeout)


def _sync(log: CommitLog, seconds: Histogram) -> float:
    """Sync for all waiting threads; return how long the next sync waits for them."""
    before, started = log.flushed_phy_offset(), time.perf_counter()
    if log.flush() <= before:
        return 0
    took = time.perf_counter() - started
    seconds.observe(took)
    return min(took, _MAX_WAITED_FOR)


_MAX_WAITED_FOR = 0.01
"""In seconds."""
