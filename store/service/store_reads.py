"""StoreReads: what can be asked of an open store.

Source: RocketMQ ``DefaultMessageStore``.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from store.checked_lock import CheckedLock
from store.config import StoreConfig
from store.errors import CorruptionError, StoreConfigError
from store.index.index_service import IndexService
from store.journals.deleted_topics import DeletedTopics
from store.log.commit_log import CommitLog
from store.paths import StorePaths
from store.progress import Progress, noop
from store.queue.combined import CombinedConsumeQueueStore
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.facts import QueueSpan
from store.queue.read_fallbacks import FallbackReason, ReadKind
from store.queue.time_search import BoundaryType
from store.queue.units import QueueKey
from store.record.decoder import StoredMessage, refuse_filler
from store.record.message import MessageProperty
from store.record.message_id import decode_message_id
from store.service.dispatching.dispatch import Dispatcher
from store.service.maintenance.check import CheckFinding, StoreCheck
from store.service.maintenance.clean_service import CleanService
from store.service.maintenance.disk_levels import DiskDemand
from store.service.maintenance.file_expiry import FileExpiry, FileOutlook
from store.service.reading.arguments import check_numbers, check_pull, check_queue, check_texts
from store.service.reading.other_indexes import OtherIndexes
from store.service.reading.puller import MAX_PULL_BYTES, Puller, TagFilter
from store.service.reading.read_interceptor import DirectReads, ReadInterceptor
from store.service.recovering.recovery import RecoveryReport
from store.service.results import GetMessageResult, GetMessageStatus
from store.service.runtime.running_state import RunningState
from store.service.tracing.operation_lines import StoreOp
from store.service.tracing.recorder import RecordedPutter, Recorder
from store.service.tracing.trace import MAX_TRACE_BYTES, Trace
from store.service.writing.putter import Puts

if TYPE_CHECKING:
    from store.comparing.compared import Compared
    from store.service.mirroring.mirror import Mirror
    from store.service.reading import _query

_ALL_TIME = (0, (1 << 63) - 1)


class StoreReads:
    """The questions; any thread may ask. Each sees what was put before it."""

    config: StoreConfig
    read_only: bool
    report: RecoveryReport
    commit_log: CommitLog
    queues: ConsumeQueueStore
    index: IndexService | None
    _others: OtherIndexes
    """Indexes of keys beside that one."""
    deleted_topics: DeletedTopics
    paths: StorePaths
    _ready: Callable[[], None]
    """Refuses after close, and hands on what waits, so that the reader sees it."""
    _puller: Puller
    _putter: Puts
    _mirror: "Mirror | None"
    _tap: ReadInterceptor | None
    """Looks over the shoulder of reads: the mirror, or a recorder in front of it."""
    _trace: Trace | None
    """What notes now."""
    _last_trace: Trace | None
    """The one that was begun last: its end may have been cut short."""
    _tracing: CheckedLock
    """Guards what begins and ends a trace."""
    _plain_queries: "_query.FastQuery | None"
    """``None``: there is no index."""
    _dispatcher: Dispatcher
    _state: RunningState
    _clean: CleanService
    _expiry: FileExpiry

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int = 32,
        tags: TagFilter | None = None,
        max_total_bytes: int = MAX_PULL_BYTES,
    ) -> GetMessageResult:
        """Pull at most ``max_msgs`` messages from ``offset`` on.

        The first message is returned whatever its size. No consumer group is asked for: the store
        does nothing by it.

        Raises:
            TypeError: an argument is of another type.

        Source: RocketMQ ``DefaultMessageStore.getMessage``.
        """
        self._ready()
        try:
            if (tap := self._tap) is not None and tap.samples_this():
                return tap.pull(topic, queue_id, offset, max_msgs, tags, max_total_bytes)
            found = self._puller.get(topic, queue_id, offset, max_msgs, tags, max_total_bytes)
        except Exception:
            check_pull(topic, queue_id, offset, max_msgs, max_total_bytes)
            raise
        if found.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            check_pull(topic, queue_id, offset, max_msgs, max_total_bytes)
        return found

    def message_by_offset(self, phy_offset: int) -> StoredMessage:
        """Return the message that starts at ``phy_offset``.

        Raises:
            CorruptionError: none starts there, or one that was given up.
        """
        self._ready()
        check_numbers(phy_offset=phy_offset)
        message = self.commit_log.message(phy_offset)
        refuse_filler(message)
        return message

    def message_by_id(self, message_id: str) -> StoredMessage:
        """Return the message with an offset message id.

        Raises:
            IllegalMessageError: it is no message id.
            CorruptionError: no message starts where it says.
        """
        check_texts(message_id=message_id)
        return self.message_by_offset(decode_message_id(message_id)[1])

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = _ALL_TIME[1]
    ) -> list[StoredMessage]:
        """Return messages of ``topic`` with ``key`` (one of KEYS, or UNIQ_KEY), in log order.

        ``begin`` and ``end`` are store times in ms. The index knows hashes: each record's own keys
        are compared, so a collision is not returned (RocketMQ returns it). An index that a broker
        has kept in ``rocksdbstore`` is asked too, as it was when it was asked first.

        Raises:
            TypeError: an argument is of another type.
            CorruptionError, StoreIOError: an index in ``rocksdbstore`` cannot be read
                (``query_index_files`` asks the other one alone).
        """
        self._ready()
        try:
            found = self._query(topic, key, max_num, begin, end)
            if not self._others.are_none:
                check_texts(topic=topic, key=key)
                check_numbers(max_num=max_num, begin=begin, end=end)
                most = min(max_num, self.config.max_msgs_num_batch)
                ask = (topic, key, most, begin, end)
                found = self._others.newest(self._messages_with_key, found, *ask)
            if found:
                return found
        except TypeError:
            check_texts(topic=topic, key=key)
            check_numbers(max_num=max_num, begin=begin, end=end)
            raise
        check_texts(topic=topic, key=key)
        return []

    def query_index_files(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = _ALL_TIME[1]
    ) -> list[StoredMessage]:
        """Return what ``query_message`` does, of the index in files alone; nothing without one."""
        self._ready()
        check_texts(topic=topic, key=key)
        check_numbers(max_num=max_num, begin=begin, end=end)
        return self._query(topic, key, max_num, begin, end)

    def _query(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[StoredMessage]:
        if (trace := self._trace) is not None:
            trace.note(StoreOp.QUERY, topic, key, max_num, begin, end)
        if self.index is None or self._plain_queries is None:
            return []
        plain = self._plain_queries.ask(topic, key, max_num, begin, end)
        if plain is not None:
            return plain
        self.queues.context.read_fallbacks.add(ReadKind.QUERY, FallbackReason.DECLINED)
        most = min(max_num, self.config.max_msgs_num_batch)
        phy_offsets = sorted(self.index.query(topic, key, most, begin, end))
        return self._messages_with_key(topic, key, phy_offsets)

    def messages_with_key(
        self, topic: str, key: str, phy_offsets: list[int]
    ) -> list[StoredMessage]:
        """Return those of the records at ``phy_offsets`` that are of ``topic`` and have ``key``.

        For who has them from another index. What has left the log is left out.

        Raises:
            CorruptionError: no record starts at one of them, though the log holds the place.
        """
        self._ready()
        return self._messages_with_key(topic, key, phy_offsets)

    def _messages_with_key(
        self, topic: str, key: str, phy_offsets: list[int]
    ) -> list[StoredMessage]:
        found = []
        for phy_offset in phy_offsets:
            message = self._unless_expired(phy_offset)
            if message is None:
                continue
            properties = message.properties
            keys = properties.get(MessageProperty.KEYS, "").split(" ")
            if (
                message.topic == topic
                and not message.is_passed_over
                and (key in keys or key == properties.get(MessageProperty.UNIQ_KEY))
            ):
                found.append(message)
        return found

    def _unless_expired(self, phy_offset: int) -> StoredMessage | None:
        """Return the message at ``phy_offset``, ``None`` if it has left the log, also just now.

        Likewise if this store was opened to read before it came: another process may go on with the
        index.

        Raises:
            CorruptionError: none starts there, though the log holds the place.
        """
        try:
            return self.commit_log.message(phy_offset)
        except CorruptionError:
            log = self.commit_log
            if phy_offset < log.min_phy_offset():
                return None
            if self.read_only and phy_offset >= log.max_phy_offset():
                return None
            raise

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """Return the queue offset that ``timestamp`` (ms) leads to, within [min, max]."""
        self._ready()
        if (tap := self._tap) is not None and tap.samples_this():
            return tap.offset_by_time(topic, queue_id, timestamp, boundary)
        try:
            found = self.queues.queue(topic, queue_id).offset_by_time(timestamp, boundary)
        except Exception:
            check_queue(topic, queue_id, timestamp=timestamp)
            raise
        if not found:
            check_queue(topic, queue_id, timestamp=timestamp)
        return found

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of the queue whose record is in the log."""
        self._ready()
        if (tap := self._tap) is not None and tap.samples_this():
            return tap.min_offset(topic, queue_id)
        try:
            found = self.queues.queue(topic, queue_id).min_offset()
        except Exception:
            check_queue(topic, queue_id)
            raise
        if not found:
            check_queue(topic, queue_id)
        return found

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of the queue; 0 if there is no such queue."""
        self._ready()
        if (tap := self._tap) is not None and tap.samples_this():
            return tap.max_offset(topic, queue_id)
        try:
            found = self.queues.queue(topic, queue_id).max_offset()
        except Exception:
            check_queue(topic, queue_id)
            raise
        if not found:
            check_queue(topic, queue_id)
        return found

    def confirm_phy_offset(self) -> int:
        """Return up to where the log is confirmed: on disk under ``SYNC_FLUSH``, else its end.

        Source: RocketMQ ``DefaultMessageStore.getConfirmOffset``.
        """
        if self.config.syncs_each_put:
            return self.commit_log.flushed_phy_offset()
        return self.commit_log.max_phy_offset()

    def estimate_message_count(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate how many messages of the range a filter lets through, by their tag hashes."""
        self._ready()
        if (tap := self._tap) is not None and tap.samples_this():
            return tap.estimate(topic, queue_id, from_offset, to_offset, tags)
        queue = self.queues.queue(topic, queue_id)
        return queue.estimate_message_count(from_offset, to_offset, tags.may_match, tags.plain)

    def queue_keys(
        self, topic: str | None = None, after: QueueKey | None = None
    ) -> Iterator[QueueKey]:
        """Yield the queues (of ``topic``), in no promised order."""
        self._ready()
        return self.queues.queues(topic, after)

    def queue_spans(
        self, topic: str | None = None, after: QueueKey | None = None
    ) -> Iterator[QueueSpan]:
        """Yield what ``queue_keys`` does with minimum and maximum; far cheaper than asking each."""
        self._ready()
        return self.queues.spans(topic, after)

    def topics(self, prefix: str = "") -> Iterator[str]:
        """Yield each topic that has a queue and begins with ``prefix``, in no promised order."""
        self._ready()
        if (trace := self._trace) is not None:
            trace.note(StoreOp.LIST_TOPICS, prefix)
        return self.queues.topics(prefix)

    def checker(self, progress: Callable[[int], None] | None = None) -> StoreCheck:
        """Return a check of everything, to be run; ``progress`` is told phy offsets.

        Raises:
            RetryableDiskFullError: there is no room for units, which would be reported as missing.
        """
        end = self.commit_log.max_phy_offset()  # before the hand-on: all below is in its queue
        self._ready_for_all()
        return StoreCheck(
            self.config, self.commit_log, end, self.queues, self.index, self.deleted_topics,
            progress, self.report.index_left_out,
        )  # fmt: skip

    def _ready_for_all(self) -> None:
        """As ``_ready``, and refuse where queues or index still lack what was put before."""
        self._ready()
        if self._dispatcher.is_stalled:
            self._dispatcher.drain()

    def check(self) -> Iterator[CheckFinding]:
        """Check every record, unit and file, and yield what is found."""
        return self.checker().run()

    def expiring_files(self) -> tuple[DiskDemand, list[FileOutlook]]:
        """Return what the disks ask for, and which log files a deletion by hand would take now.

        Raises:
            StoreIOError: a file cannot be looked at.
        """
        self._ready()
        return self._expiry.outlook()

    def verify(
        self,
        topic: str | None = None,
        queue_id: int | None = None,
        *,
        progress: Progress = noop,
    ) -> "Compared":
        """Compare the backends of a store with double write, both ways and over the whole range.

        All queues, those of ``topic``, or one. The reference is the one that is read.

        Raises:
            RefusedStoreError: only one backend is kept: there is nothing to compare.
            RetryableDiskFullError: one may have a batch that there was no room for in the other.
            StoreIOError: the disk refused.
        """
        from store.comparing.open_sides import compare_open  # noqa: PLC0415 - seldom needed

        self._ready_for_all()
        self._state.locks.check()
        locks = (self._clean.lock, self._dispatcher.owner, self._dispatcher.drain_lock)
        return compare_open(self.queues, topic, queue_id, locks=locks, progress=progress)

    def record_trace(self, path: Path | str, most_bytes: int = MAX_TRACE_BYTES) -> Trace:
        """Write down what is asked of the store from now on, see ``operation_lines``.

        Until the trace that is returned is stopped, or left as a context, or the store is closed;
        at most ``most_bytes``, then it ends by itself. It holds names of topics and keys, and no
        body. The file must not be there yet.

        Raises:
            StoreConfigError: there is such a file, or another trace is being recorded.
            StoreIOError: it cannot be made.
        """
        self._ready()
        trace = None
        try:
            with self._tracing.entry():
                self._end_trace_before()
                self._last_trace = trace = Trace(Path(path), most_bytes, self._forget_trace)
                self._trace = trace
                self._tap = Recorder(trace, DirectReads(self._puller, self.queues), self._mirror)
                self._putter = RecordedPutter(trace, self._putter)
                trace.start()
        except BaseException:
            if trace is not None:
                trace.stop()
            raise
        return trace  # no call lies between: the caller has it, or it has been stopped

    def _end_trace_before(self) -> None:
        if self._trace is not None and not self._trace.is_ending:
            raise StoreConfigError("a trace is being recorded already", path=self._trace.path)
        self._stop_trace()  # where that was cut short

    def _forget_trace(self, trace: Trace) -> None:
        """Note nothing in ``trace`` any more; called by whichever thread ends it."""
        if self._trace is trace:
            if isinstance(self._putter, RecordedPutter):
                self._putter = self._putter.putter
            self._tap = self._mirror
            self._trace = None  # last: of a call that is cut short the next one does the rest

    def _stop_trace(self) -> None:
        if (trace := self._last_trace) is not None:
            trace.stop()

    def backends_set_aside(self) -> dict[str, Exception]:
        """Return the backends that failed and are not kept until the next open, and why."""
        queues = self.queues
        return queues.set_aside if isinstance(queues, CombinedConsumeQueueStore) else {}
