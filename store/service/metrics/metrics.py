"""StoreMetrics: what an open store counts and knows of itself, as one plain snapshot.

Taking one costs a few system calls and, on RocksDB, a dozen property reads: for a scrape every few
seconds, not for every message. It waits for no put: the append lock is not taken, so figures that
belong together may be a few messages apart.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cqstore.store.errors import os_errors
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueStat
from cqstore.store.queue.read_fallbacks import ReadFallback
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.metrics.by_group import GroupOffsets
from cqstore.store.service.metrics.by_topic import LIMIT, FiguresByTopic
from cqstore.store.service.reading.puller import Puller
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.service.runtime.environment import used_blocks
from cqstore.store.service.runtime.meters import GetCounts, HistogramSnapshot
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing.group_commit import GroupCommit
from cqstore.store.service.writing.putter import Putter

if TYPE_CHECKING:
    from cqstore.store.service.scheduling.level_delivery import DelayLevelFigures
    from cqstore.store.service.scheduling.schedule_message_service import ScheduleMessageService

PAGE_CACHE_BUSY_MS = 1000
"""An append that takes longer means a busy page cache (``osPageCacheBusyTimeOutMills``)."""


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The figures of one store at one moment; counts begin when the store was opened."""

    put_messages: int
    """Messages stored."""
    put_bytes: int
    """Their records, bytes."""
    put_fallbacks: int
    """Messages stored that no single compiled call took: each costs several times as much.

    Those with light queues or a delay, and bodies above 64 KiB, never are. Of all others few should
    be: the first of a queue, and what ``FastPut`` names.
    """
    put_not_ok: Mapping[PutMessageStatus, int]
    """Messages by status: refused, or stored but late (``FLUSH_DISK_TIMEOUT``)."""
    put_seconds: HistogramSnapshot
    """Calls that put one message: every one under ``SYNC_FLUSH``, else one in 61."""
    put_list_seconds: HistogramSnapshot
    """Calls that put several, every one."""
    read_fallbacks: Mapping[ReadFallback, int]
    """Pulls, searches by time and queries not answered by compiled code, intercepted ones too."""
    gets: GetCounts
    get_seconds: HistogramSnapshot
    dispatch_lag_bytes: int
    """Bytes of the log whose records may not be in their queues yet; readers hand them on."""
    dispatch_lag_ms: int
    """Since when the first of them waits."""
    flush_seconds: HistogramSnapshot
    """Flushes of the log that had something to flush."""
    append_ms: int
    """Since when the append that is under way has held the append lock; 0: none is."""
    min_phy_offset: int
    """-1 without files."""
    max_phy_offset: int
    flushed_phy_offset: int
    log_disk_used_ratio: float
    """How full the log's file system is, 0 to 1."""
    queue_disk_used_ratio: float
    queue_stats: tuple[QueueStat, ...]
    """What the backends report, see ``ConsumeQueueStore.stats``."""
    failed: bool
    """A write or a flush failed: the store takes no more writes."""
    dispatch_stalled: bool
    """There is no room for units or keys: nothing is put or dispatched until there is some."""
    reput_batches: int
    """Batches that the dispatch thread has brought to queues and index, not a writer or reader."""
    reput_active: bool
    """Batches take long, and full ones are left to the dispatch thread."""
    interceptor: object = None
    """Counts of the installed interceptor of reads, in a type of its package; ``None`` without."""
    listener_failures: int = 0
    """Calls of arrival listeners that raised something."""
    arrivals_dropped: int = 0
    """Units that arrival listeners were not given, for they were too slow."""
    put_hooked: int = 0
    """Messages of which put hooks were asked; each costs a copy and the calls."""
    put_hook_refusals: int = 0
    """Of them, those that a hook refused; also in ``put_not_ok``, by the hook's status."""
    put_hook_failures: int = 0
    """Calls of put hooks that raised an exception or returned an invalid result."""
    dispatcher_records: int = 0
    """Records that all dispatchers have taken."""
    dispatcher_failures: int = 0
    """Calls of dispatchers that raised something; each was made again, or will be."""
    delay_levels: "tuple[DelayLevelFigures, ...]" = ()
    """The levels that ever had a message, by level; none where no delayed ones are delivered."""
    delay_late_seconds: HistogramSnapshot | None = None
    """How late they came behind the times at which they were due; ``None``: see above."""

    @property
    def is_page_cache_busy(self) -> bool:
        """Return whether an append has taken longer than RocketMQ waits for the page cache.

        Source: RocketMQ ``DefaultMessageStore.isOSPageCacheBusy``.
        """
        return self.append_ms > PAGE_CACHE_BUSY_MS


class StoreMetrics:
    """Takes snapshots of one open store. Any thread."""

    def __init__(
        self,
        paths: StorePaths,
        log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: Dispatcher,
        commit: GroupCommit,
        putter: Putter,
        puller: Puller,
        state: RunningState,
        intercepted: Callable[[], object] | None,
        schedule: "ScheduleMessageService | None" = None,
    ) -> None:
        """Keep the parts; recovery is over, what is appended from here on was put."""
        self._paths = paths
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._commit = commit
        self._putter = putter
        self._puller = puller
        self._state = state
        self._intercepted = intercepted
        self._schedule = schedule
        self._opened_end = log.max_phy_offset()

    def __repr__(self) -> str:
        return f"<StoreMetrics of {str(self._paths.root)!r}, {self._state.word}>"

    def snapshot(self) -> MetricsSnapshot:
        """Return the figures of now.

        Raises:
            StoreStateError: the store has been closed, or this is a child process.
            StoreIOError: a file system cannot be asked.
        """
        self._state.check_open()
        log, put = self._log, self._putter.meter
        lag_bytes, lag_ms = self._lag()
        began, dispatchers = log.append_began, self._dispatcher.dispatchers
        schedule = self._schedule
        return MetricsSnapshot(
            put_messages=log.appended_records,
            put_bytes=log.max_phy_offset() - self._opened_end - log.blank_bytes,
            put_fallbacks=put.fallbacks,
            put_not_ok=put.statuses(),
            put_seconds=put.seconds.snapshot(),
            put_list_seconds=put.list_seconds.snapshot(),
            read_fallbacks=self._queues.context.read_fallbacks.counts(),
            gets=self._puller.meter.snapshot(),
            get_seconds=self._puller.meter.seconds.snapshot(),
            dispatch_lag_bytes=lag_bytes,
            dispatch_lag_ms=lag_ms,
            flush_seconds=self._commit.seconds.snapshot(),
            append_ms=_since(began) if began else 0,
            min_phy_offset=log.min_phy_offset(),
            max_phy_offset=log.max_phy_offset(),
            flushed_phy_offset=log.flushed_phy_offset(),
            log_disk_used_ratio=disk_used_ratio(self._paths.commit_log),
            queue_disk_used_ratio=disk_used_ratio(self._paths.consume_queue),
            queue_stats=tuple(self._queues.stats()),
            failed=self._state.failure is not None,
            dispatch_stalled=bool(self._state.stalled),
            reput_batches=self._dispatcher.reput.batches,
            reput_active=self._dispatcher.reput.is_active,
            interceptor=self._intercepted() if self._intercepted is not None else None,
            listener_failures=self._dispatcher.arrivals.failures,
            arrivals_dropped=self._dispatcher.arrivals.dropped,
            put_hooked=put.hooked,
            put_hook_refusals=put.hook_refusals,
            put_hook_failures=put.hook_failures,
            dispatcher_records=0 if dispatchers is None else dispatchers.records,
            dispatcher_failures=0 if dispatchers is None else dispatchers.failures,
            delay_levels=() if schedule is None else schedule.figures(),
            delay_late_seconds=None if schedule is None else schedule.late_seconds.snapshot(),
        )

    def by_topic(
        self, limit: int = LIMIT, offsets: GroupOffsets | None = None, *, by_bytes: bool = False
    ) -> FiguresByTopic:
        """Return what tells again and again what comes to the ``limit`` busiest topics.

        With ``offsets`` also how far the groups lag that lag most. Puts cost what they did: what
        is returned reads the log, and the ends of some queues, each time it is asked.
        """
        return FiguresByTopic(
            self._log, self._queues, self._puller, self._state, limit, offsets, by_bytes=by_bytes
        )

    def _lag(self) -> tuple[int, int]:
        dispatcher, log = self._dispatcher, self._log
        if not dispatcher.has_undispatched:
            return 0, 0
        oldest, last = dispatcher.oldest_waiting(), dispatcher.last_dispatched
        done = last.phy_offset + last.size if last is not None else log.min_phy_offset()
        return log.max_phy_offset() - done, _since(oldest) if oldest else 0


def disk_used_ratio(folder: Path) -> float:
    """Return how full the file system of ``folder`` (or of its nearest parent) is, as ``df`` does.

    Raises:
        StoreIOError: it cannot be asked.
    """
    while not exists(folder) and folder != folder.parent:
        folder = folder.parent
    with os_errors("read the disk usage", folder):
        used, whole = used_blocks(folder)
    return used / max(whole, 1)


def _since(store_timestamp: int) -> int:
    """Return the ms since a store time, 0 if the clock has gone back behind it."""
    return max(time.time_ns() // 1_000_000 - store_timestamp, 0)
