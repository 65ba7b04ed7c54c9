"""MessageStore: the public face of a store.

Opening takes the lock, recovers and reports; putting and pulling may be done by any number of
threads. Source: RocketMQ ``DefaultMessageStore``, ``RocksDBMessageStore``.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from store.config import FlushDiskType, StoreConfig
from store.errors import (
    ReadOnlyStoreError,
    RefusedStoreError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
)
from store.log.checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.queue.backends import backend as backend_class
from store.queue.combined import CombinedConsumeQueueStore
from store.queue.consume_queue_store import ConsumeQueueStore, QueueStoreContext
from store.queue.time_search import BoundaryType
from store.queue.units import QueueKey
from store.record.decoder import StoredMessage
from store.record.message import Message, MessageProperty
from store.record.message_id import decode_message_id
from store.service.check import Finding, StoreCheck
from store.service.clean_service import CleanService, ExpiryReport
from store.service.deleted_topics import DeletedTopics
from store.service.dispatch import Dispatcher
from store.service.expired_queues import ExpiredQueues
from store.service.flush import FlushService, flush_all
from store.service.metrics import StoreMetrics
from store.service.opening import open_index, refuse_queues_without_log
from store.service.puller import MAX_PULL_BYTES, Puller, TagFilter
from store.service.putter import Putter
from store.service.recovery import Recovery, RecoveryReport
from store.service.results import GetMessageResult, PutMessageResult
from store.service.store_layout import StoreLayout, choose_backends, detect, found_sizes
from store.service.store_lock import StoreLock, mark_closed, mark_open

_LOG = logging.getLogger(__name__)
_ALL_TIME = (0, (1 << 63) - 1)


class MessageStore:
    """One open store. Make it with ``MessageStore.open``, end it with ``close``.

    Any thread may call any method. What was put is visible to every later read; it is durable when
    the put returns under ``SYNC_FLUSH``, and survives a killed process (not a power cut) under
    ``ASYNC_FLUSH``. After a failed write or flush the store refuses further writes.
    """

    def __init__(
        self,
        layout: StoreLayout,
        config: StoreConfig,
        names: Sequence[str],
        lock: StoreLock | None,
    ) -> None:
        """Load and wire the parts; callers use ``open``."""
        self.layout = layout
        self.config = config
        self.paths = layout.paths
        self.read_only = lock is None
        self._lock = lock
        self._append_lock = threading.Lock()
        self._failure: StoreError | None = None
        self._closed = False
        self.checkpoint = StoreCheckpoint(self.paths.checkpoint)
        self.last_exit_ok = not self.paths.abort.exists()
        self.report = RecoveryReport(self.last_exit_ok, self.read_only)
        self.commit_log = CommitLog(layout.log_folders, config, read_only=self.read_only)
        self.commit_log.load()
        context = QueueStoreContext(
            self.paths, config, self.commit_log, self.checkpoint, self.last_exit_ok, self.read_only
        )
        if self.commit_log.min_phy_offset() < 0:
            refuse_queues_without_log(context, layout.backends)
        stores = [backend_class(name)(context) for name in names]
        self.queues: ConsumeQueueStore = (
            stores[0] if len(stores) == 1 else CombinedConsumeQueueStore(context, stores)
        )
        self.deleted_topics = DeletedTopics(self.paths.deleted_topics)

    @classmethod
    def open(
        cls,
        root: Path | str,
        config: StoreConfig | None = None,
        *,
        read_only: bool = False,
        backend: str | None = None,
        commit_log: Path | None = None,
        cut_at: int | None = None,
    ) -> Self:
        """Open the store in ``root``; read-write, a new one is made if there is none.

        What lies on disk decides on backend and file sizes, unless ``config`` gives a size.
        Read-only: takes no lock and changes no byte, for a copy or a stopped broker's folder.
        ``commit_log`` names the log's folder when it lies elsewhere (read-only). ``cut_at`` allows
        to lose what lies behind damage at exactly that phy offset.

        Raises:
            StoreLockedError: somebody has it open.
            RefusedStoreError: it must not be opened this way; the sentence says why.
            CorruptionError: it cannot be read as a store.
        """
        root, config = Path(root), config or StoreConfig()
        layout = detect(root, config, commit_log)
        if read_only and not (layout.has_log or layout.backends):
            raise RefusedStoreError("no store here: neither commit log nor queues", path=root)
        if layout.refusals and not read_only:
            raise RefusedStoreError(
                f"this store can only be read (open it read-only): {'; '.join(layout.refusals)}",
                path=root,
            )
        config = config.model_copy(update=found_sizes(layout, config))
        names = choose_backends(layout, config, backend)
        lock = None if read_only else StoreLock(layout.paths)
        try:
            store = cls(layout, config, names, lock)
            store._load(cut_at)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return store

    def _load(self, cut_at: int | None) -> None:
        """Open queues and index, recover, and start the flush thread; undo all on failure."""
        config, log = self.config, self.commit_log
        marked = False
        try:
            self.queues.load()
            self.index = open_index(
                self.paths, config, self.last_exit_ok, self.checkpoint, read_only=self.read_only
            )
            if not self.read_only and self.last_exit_ok:
                mark_open(self.paths)
                marked = True
            self.queues.recover()
            self.deleted_topics.load()
            recovery = Recovery(
                self.paths, config, log, self.queues, self.index, self.checkpoint, self.report,
                self.deleted_topics,
            )  # fmt: skip
            self._dispatcher = Dispatcher(
                self.queues, self.index, config, self._append_lock, self.deleted_topics
            )
            if self.read_only:
                recovery.find_end()
            else:
                recovery.run(self._dispatcher, cut_at)
                if not marked:
                    mark_open(self.paths)
        except BaseException:
            with suppress(StoreError):  # what went wrong first is what counts
                self.queues.close()
            log.close()
            if marked:
                mark_closed(self.paths)
            raise
        if (last := recovery.last) is not None:
            self._dispatcher.note_last(last.phy_offset, last.size, last.store_timestamp)
        self._flush = FlushService(
            log,
            interval_ms=config.flush_interval_commit_log,
            thorough_ms=config.flush_consume_queue_thorough_interval,
            idle=self._dispatcher.drain,
            thorough=self._flush_all,
            failed=self._fail,
        )
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self._dispatcher.before_store = self._flush.flush_log
        self._puller = Puller(config, log, self.queues)
        self._putter = Putter(
            config, log, self.queues, self._dispatcher, self._flush, self._append_lock, self._fail
        )
        self._clean = CleanService(
            log, self.queues, self.index, self._dispatcher, self._flush, self.deleted_topics,
            ExpiredQueues(self.paths.expired_queues),
        )  # fmt: skip
        self.metrics = StoreMetrics(
            self.paths, log, self.queues, self._dispatcher, self._flush, self._putter,
            self._puller, lambda: self._failure is not None,
        )  # fmt: skip
        """Counters and figures of the store, see ``StoreMetrics.snapshot``."""
        if not self.read_only:
            self._flush.start()
        _LOG.info("opened %s: %s", self.paths.root, self.report)

    # ---- putting

    def put_message(self, message: Message) -> PutMessageResult:
        """Put one message and return its status and place.

        A message that cannot be stored is refused with a status and a reason before a byte is
        written.

        Raises:
            StoreFailedError: an earlier write failed.
            StoreIOError: this one did; the store must be opened again.
            ReadOnlyStoreError, StoreClosedError: no puts here.

        Source: RocketMQ ``DefaultMessageStore.putMessage``.
        """
        if self._closed or self.read_only or self._failure is not None:
            self._refuse_write()
        return self._putter.put(message)

    def put_messages(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put several messages, in order, under one lock; one result each.

        A message that is refused does not keep the others out. Cheaper than single puts.
        """
        if self._closed or self.read_only or self._failure is not None:
            self._refuse_write()
        return self._putter.put_list(messages)

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a client batch (``encode_client_batch`` makes its body): all messages or none.

        Returns one result a message, or one refusal for the whole batch.

        Source: RocketMQ ``DefaultMessageStore.putMessages``.
        """
        if self._closed or self.read_only or self._failure is not None:
            self._refuse_write()
        return self._putter.put_client_batch(batch)

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of ``topic``, durably, for good: no crash and no replay brings it back.

        Its records stay in the log until they expire. What is put afterwards begins a new life.

        Raises:
            IllegalMessageError: no queue could have that name.
            StoreError: as for ``put_message``.
        """
        self.queues.check_topic(topic)
        with self._writing():
            self._clean.delete_topic(topic)
            self._putter.light_quota.recount()

    def clean_unused_topics(self, retain: Collection[str], *, dry_run: bool = True) -> list[str]:
        """Delete the topics with queues that are not in ``retain``, the broker's table of topics.

        Never a light queue or a system topic. Returns them; with ``dry_run`` nothing is deleted.
        """
        self._ready()
        unused = list(self._clean.unused_topics(retain))
        if not dry_run:
            for topic in unused:
                self.delete_topic(topic)
        return unused

    def delete_expired_files(self, phy_offset: int) -> ExpiryReport:
        """Delete the log files that end at or before ``phy_offset``, never the last one.

        Units and index entries of their records go with them, in part in the background.

        Raises:
            StoreError: as for ``put_message``.
        """
        with self._writing():
            return self._clean.delete_expired_files(phy_offset)

    # ---- reading

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int = 32,
        tags: TagFilter | None = None,
        max_total_bytes: int = MAX_PULL_BYTES,
    ) -> GetMessageResult:
        """Pull at most ``max_msgs`` messages from ``offset`` on.

        ``group`` is for the caller's own records. The first message is returned whatever its size.

        Source: RocketMQ ``DefaultMessageStore.getMessage``.
        """
        _ = group
        self._ready()
        return self._puller.get(topic, queue_id, offset, max_msgs, tags, max_total_bytes)

    def message_by_offset(self, phy_offset: int) -> StoredMessage:
        """Return the message that starts at ``phy_offset``.

        Raises:
            CorruptionError: none starts there.
        """
        self._ready()
        return self.commit_log.message(phy_offset)

    def message_by_id(self, message_id: str) -> StoredMessage:
        """Return the message with an offset message id.

        Raises:
            IllegalMessageError: it is no message id.
            CorruptionError: no message starts where it says.
        """
        return self.message_by_offset(decode_message_id(message_id)[1])

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = _ALL_TIME[1]
    ) -> list[StoredMessage]:
        """Return messages of ``topic`` with ``key`` (one of KEYS, or UNIQ_KEY), in log order.

        ``begin`` and ``end`` are store times in ms. The index knows hashes: each record's own keys
        are compared, so a collision is not returned (RocketMQ returns it).
        """
        self._ready()
        if self.index is None:
            return []
        most = min(max_num, self.config.max_msgs_num_batch)
        low, found = self.commit_log.min_phy_offset(), []
        for phy_offset in sorted(self.index.query(topic, key, most, begin, end)):
            if phy_offset < low:
                continue
            message = self.commit_log.message(phy_offset)
            properties = message.properties
            keys = properties.get(MessageProperty.KEYS, "").split(" ")
            if message.topic == topic and (
                key in keys or key == properties.get(MessageProperty.UNIQ_KEY)
            ):
                found.append(message)
        return found

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """Return the queue offset that ``timestamp`` (ms) leads to, within [min, max]."""
        self._ready()
        return self.queues.offset_by_time(topic, queue_id, timestamp, boundary)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of the queue whose record is in the log."""
        self._ready()
        return self.queues.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of the queue; 0 if there is no such queue."""
        self._ready()
        return self.queues.max_offset(topic, queue_id)

    def confirm_phy_offset(self) -> int:
        """Return up to where the log is confirmed: on disk under ``SYNC_FLUSH``, else its end.

        Source: RocketMQ ``DefaultMessageStore.getConfirmOffset``.
        """
        if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return self.commit_log.flushed_phy_offset()
        return self.commit_log.max_phy_offset()

    def estimate_message_count(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate how many messages of the range a filter lets through, by their tag hashes."""
        self._ready()
        return self.queues.estimate_message_count(
            topic, queue_id, from_offset, to_offset, tags.may_match
        )

    def queue_keys(
        self, topic: str | None = None, after: QueueKey | None = None
    ) -> Iterator[QueueKey]:
        """Yield the queues (of ``topic``), in no promised order."""
        self._ready()
        return self.queues.queues(topic, after)

    def topics(self, prefix: str = "") -> Iterator[str]:
        """Yield each topic that has a queue and begins with ``prefix``, in no promised order."""
        self._ready()
        return self.queues.topics(prefix)

    def checker(self, progress: Callable[[int], None] | None = None) -> StoreCheck:
        """Return a check of everything, to be run; ``progress`` is told phy offsets."""
        self._ready()
        return StoreCheck(
            self.config, self.commit_log, self.queues, self.index, self.deleted_topics, progress
        )

    def check(self) -> Iterator[Finding]:
        """Check every record, unit and file, and yield what is found."""
        return self.checker().run()

    # ---- flush and close

    def flush(self) -> None:
        """Make everything durable: log, queues, index, checkpoint."""
        with self._writing():
            self._flush_all()

    def close(self) -> None:
        """Flush everything, then let the store go. A second call does nothing.

        After a failure ``abort`` stays, so that the next open recovers.
        """
        if self._closed:
            return
        self._flush.stop()
        with self._append_lock:
            self._closed = True
        try:
            if not self.read_only and self._failure is None:
                with self._failing():
                    self._flush_all()
        finally:
            self._close_parts()

    def _close_parts(self) -> None:
        self.metrics.close()
        try:
            if self.index is not None:
                self.index.close()
            self.queues.close()
            self.commit_log.close()
            if self._lock is not None and self._failure is None:
                mark_closed(self.paths)
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- inside

    def _flush_all(self) -> None:
        flush_all(self._dispatcher, self._flush, self.queues, self.index, self.checkpoint)

    def _ready(self) -> None:
        """Refuse after close; hand on what waits, so that the reader sees it."""
        if self._closed:
            raise StoreClosedError("the store is closed", path=self.paths.root)
        if self._dispatcher.behind and self._failure is None:
            with self._failing():
                self._dispatcher.drain()

    def _refuse_write(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed", path=self.paths.root)
        if self.read_only:
            raise ReadOnlyStoreError("the store was opened read-only", path=self.paths.root)
        if self._failure is not None:
            raise StoreFailedError(
                f"an earlier write failed, close the store and open it again: {self._failure}",
                path=self.paths.root,
            ) from self._failure

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse where nothing may be written; a failure of the block ends all writing."""
        self._refuse_write()
        with self._failing():
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StoreError as exc:
            self._fail(exc)
            raise

    def _fail(self, exc: StoreError) -> None:
        if self._failure is None:
            self._failure = exc
