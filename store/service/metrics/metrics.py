"""StoreMetrics: counts and state of an open store, as one plain snapshot.

Taking a snapshot costs a few system calls and, on RocksDB, a dozen property reads: for a scrape
every few seconds, not for every message. It does not wait for puts: the append lock is not taken,
so related figures may differ by a few messages.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cqstore.store.errors import os_errors
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueStat
from cqstore.store.queue.read_fallbacks import ReadFallback
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.metrics.by_group import GroupOffsets
from cqstore.store.service.metrics.by_topic import LIMIT, FiguresByTopic
from cqstore.store.service.metrics.cleaning import CleaningFigures
from cqstore.store.service.reading.puller import Puller
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.service.runtime.environment import used_blocks
from cqstore.store.service.runtime.histogram_snapshot import HistogramSnapshot
from cqstore.store.service.runtime.meters import GetCounts
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
    """Number of messages stored."""
    put_bytes: int
    """Size of their records in bytes."""
    put_fallbacks: int
    """Messages stored without a single compiled call: each costs several times as much.

    Messages with light queues or a delay, and bodies above 64 KiB, always count. Of all others
    there should be few: the first one of a queue, and the cases listed at ``FastPut``.
    """
    put_not_ok: Mapping[PutMessageStatus, int]
    """Messages by status: refused, or stored but late (``FLUSH_DISK_TIMEOUT``)."""
    put_seconds: HistogramSnapshot
    """Calls that put one message: all under ``SYNC_FLUSH``, otherwise one in 61."""
    put_list_seconds: HistogramSnapshot
    """All calls that put several messages."""
    read_fallbacks: Mapping[ReadFallback, int]
    """Pulls, searches by time and queries not served by compiled code, also intercepted ones."""
    gets: GetCounts
    get_seconds: HistogramSnapshot
    dispatch_lag_bytes: int
    """Bytes of the log whose records may not be in their queues yet; readers dispatch them."""
    dispatch_lag_ms: int
    """How long the first of these records has waited, in ms."""
    flush_seconds: HistogramSnapshot
    """Flushes of the log with data to flush."""
    append_ms: int
    """How long the current append has held the append lock, in ms; 0: there is none."""
    min_phy_offset: int
    """-1 without files."""
    max_phy_offset: int
    flushed_phy_offset: int
    log_disk_used_ratio: float
    """Usage of the log's file system, 0 to 1; of several, the lowest, as in RocketMQ."""
    queue_disk_used_ratio: float
    queue_stats: tuple[QueueStat, ...]
    """Metrics of the backends, see ``ConsumeQueueStore.stats``."""
    failed: bool
    """A write or a flush failed: the store accepts no more writes."""
    dispatch_stalled: bool
    """There is no space for units or keys: puts and dispatches wait until there is space."""
    reput_batches: int
    """Batches dispatched by the dispatch thread, not by a writer or reader."""
    reput_active: bool
    """Batches take long, and full ones are left to the dispatch thread."""
    interceptor: object = None
    """Counts of the installed interceptor of reads, in its package's type; ``None`` without one."""
    listener_failures: int = 0
    """Calls of arrival listeners that raised an exception."""
    arrivals_dropped: int = 0
    """Units that were dropped because arrival listeners were too slow."""
    put_hooked: int = 0
    """Messages passed to put hooks; each costs a copy and the calls."""
    put_hook_refusals: int = 0
    """Number of these that a hook refused; also in ``put_not_ok``, with the hook's status."""
    put_hook_failures: int = 0
    """Calls of put hooks that raised an exception or returned an invalid result."""
    dispatcher_records: int = 0
    """Records that all dispatchers have processed."""
    dispatcher_failures: int = 0
    """Calls of dispatchers that raised an exception; each is repeated."""
    delay_levels: "tuple[DelayLevelFigures, ...]" = ()
    """The levels that ever had a message, by level; empty if delayed messages are not delivered."""
    delay_late_seconds: HistogramSnapshot | None = None
    """Delay between due time and delivery; ``None`` if delayed messages are not delivered."""
    cleaning: CleaningFigures | None = None
    """Counts of the service that deletes topics; ``None``: none was started."""

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
        layout: StoreLayout,
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
        """Keep the components; recovery is over, and all appends from here on are puts."""
        self._layout = layout
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
        self.cleaning: Callable[[], CleaningFigures] | None = None
        """Returns the counts of the service that deletes topics, once it is started."""

    def __repr__(self) -> str:
        return f"<StoreMetrics of {str(self._layout.paths.root)!r}, {self._state.word}>"

    def snapshot(self) -> MetricsSnapshot:
        """Return the current figures.

        Raises:
            StoreStateError: the store has been closed, or this is a child process.
            StoreIOError: a file system's status cannot be read.
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
            gets=self._puller.counts(),
            get_seconds=self._puller.seconds.snapshot(),
            dispatch_lag_bytes=lag_bytes,
            dispatch_lag_ms=lag_ms,
            flush_seconds=self._commit.seconds.snapshot(),
            append_ms=_since(began) if began else 0,
            min_phy_offset=log.min_phy_offset(),
            max_phy_offset=log.max_phy_offset(),
            flushed_phy_offset=log.flushed_phy_offset(),
            log_disk_used_ratio=disk_used_ratio(*self._layout.log_paths.measured),
            queue_disk_used_ratio=disk_used_ratio(self._layout.paths.consume_queue),
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
            cleaning=self.cleaning() if self.cleaning is not None else None,
        )

    def by_topic(
        self, limit: int = LIMIT, offsets: GroupOffsets | None = None, *, by_bytes: bool = False
    ) -> FiguresByTopic:
        """Return an object that samples puts to the ``limit`` busiest topics.

        With ``offsets`` also the groups with the largest lag. Puts do not become slower: each
        sample reads the log, and the ends of some queues.
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


def disk_used_ratio(*folders: Path) -> float:
    """Return the lowest usage of the file systems of ``folders``, as ``df`` shows them.

    Of a folder that does not exist, that of its nearest parent.

    Raises:
        StoreIOError: a status cannot be read.
    """
    return min(map(_used_ratio, folders))


def _used_ratio(folder: Path) -> float:
    while not exists(folder) and folder != folder.parent:
        folder = folder.parent
    with os_errors("read the disk usage", folder):
        used, whole = used_blocks(folder)
    return used / max(whole, 1)


def _since(store_timestamp: int) -> int:
    """Return the ms since a store time, 0 if the clock was set back before it."""
    return max(time.time_ns() // 1_000_000 - store_timestamp, 0)
