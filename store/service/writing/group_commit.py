"""GroupCommit: one sync of the log serves all that wait for it.

A caller that finds no leader becomes the leader and syncs for all that came until then; the others
sleep, each at a gate of its own, until they are served or one of them is made the next leader. No
other thread is involved: a lone writer pays for nothing but its sync.

Those that the last sync served are likely to put again at once: the next one waits for them as long
as a sync takes. Else each sync would serve one half of the writers while the other half puts.
Where they do not come, the next syncs begin at once (``DiskWaits``).

After a failed sync the log refuses another one, so all that wait for it get the failure.

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
    """Syncs one log for all that wait for it. Any thread may call."""

    def __init__(self, log: CommitLog, timeout_ms: int) -> None:
        """``timeout_ms``: how long ``wait_for`` waits for the sync of another thread."""
        self.log = log
        self.timeout = timeout_ms / 1000
        """Seconds."""
        self.seconds = Histogram()
        """Syncs that had something to sync."""
        self._leading = CheckedLock("a sync of the log")
        self._waits = _waits.DiskWaits(log, partial(_sync, log, self.seconds), self._leading)

    @property
    def locks(self) -> tuple[CheckedLock, ...]:
        """Return what a thread must not hold that waits for the disk."""
        return (self._leading,)

    @property
    def waiting(self) -> int:
        """Return how many threads sleep until a sync has served them."""
        return self._waits.waiting

    def flush(self) -> int:
        """Make the log durable up to its present end; return that.

        Raises:
            StoreIOError: the disk refused.
            StoreFailedError: it did so before.
        """
        end = self.log.max_phy_offset()
        self._leading.entry()  # the leader would wait for itself
        self._waits.wait(end, math.inf)
        return end

    def wait_for(self, phy_offset: int) -> bool:
        """Return once the log is durable up to ``phy_offset``; False after the timeout.

        The timeout bounds the wait for another thread's sync. The leader itself syncs, and no
        system call can be given up half-way: he returns when the disk has answered, with True, for
        the log is durable then.

        Raises:
            StoreIOError, StoreFailedError: as for ``flush``.
        """
        self._leading.entry()
        return self._waits.wait(phy_offset, self.timeout)


def _sync(log: CommitLog, seconds: Histogram) -> float:
    """Sync for all that came; return how long the next sync waits for them."""
    before, started = log.flushed_phy_offset(), time.perf_counter()
    if log.flush() <= before:
        return 0
    took = time.perf_counter() - started
    seconds.observe(took)
    return min(took, _MAX_WAITED_FOR)


_MAX_WAITED_FOR = 0.01
"""Seconds."""
