"""MessageStore: the public face of a store.

Opening takes the lock, recovers and reports; putting and pulling may be done by any number of
threads. Source: RocketMQ ``DefaultMessageStore``, ``RocksDBMessageStore``.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from store.config import FlushDiskType, StoreConfig
from store.errors import (
    ConsumeQueueError,
    CorruptionError,
    RefusedStoreError,
    StoreConfigError,
    StoreError,
    os_errors,
)
from store.journals.deleted_topics import DeletedTopics
from store.journals.expired_queues import ExpiredQueues
from store.journals.mode_record import BehindLines
from store.journals.store_lock import StoreLock, mark_closed, mark_open
from store.log.checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.queue.backends import backend as backend_class
from store.queue.combined import CombinedConsumeQueueStore
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import QueueStoreContext
from store.queue.units import QueueKey
from store.record.message import Message
from store.record.scan import ScanRules
from store.service.care.clean_service import CleanService
from store.service.care.disk_levels import DiskLevels
from store.service.care.file_expiry import FileExpiry
from store.service.dispatching.dispatch import Dispatcher
from store.service.dispatching.pending import Pending
from store.service.dispatching.record_keys import RecordKeys
from store.service.dispatching.record_units import RecordUnits
from store.service.dispatching.replay import Replay
from store.service.figures.metrics import StoreMetrics
from store.service.finding.lay_out import lay_out
from store.service.finding.left_behind import written_since
from store.service.finding.store_layout import (
    StoreLayout,
    choose_backends,
    choose_roles,
    detect,
)
from store.service.mirroring.mirror import Mirror
from store.service.opening.options import OpenOptions, open_index, refuse_queues_without_log
from store.service.reading.puller import Puller
from store.service.recovering import replacement
from store.service.recovering.queue_mend import QueueMend
from store.service.recovering.queue_rebuild import QueueRebuild
from store.service.recovering.recovery import Recovery, RecoveryReport
from store.service.recovering.replacement import Rebuild
from store.service.results import PutMessageResult
from store.service.running.running_state import RunningState
from store.service.running.surroundings import Surroundings
from store.service.store_care import StoreCare
from store.service.writing.append import Appender
from store.service.writing.flush import FlushService, WholeFlush
from store.service.writing.group_commit import GroupCommit
from store.service.writing.light_quota import LightQuota
from store.service.writing.putter import Putter

_LOG = logging.getLogger(__name__)


class MessageStore(StoreCare):
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
        self._closing = threading.RLock()  # one thread closes at a time
        self._stops: list[Callable[[], None]] = []
        self._all_flushed = self._released = False
        self._state = RunningState(self.paths.root, read_only=self.read_only)
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
        self.deleted_topics = DeletedTopics(self.paths.deleted_topics)
        self._lines = BehindLines(self.paths, read_only=self.read_only)
        self.queues = self._make_queues(context, names)
        self.index = None

    def _make_queues(self, context: QueueStoreContext, names: Sequence[str]) -> ConsumeQueueStore:
        kinds = [backend_class(name) for name in names]
        noted = {*self._lines.standing.behind, *self._lines.standing.covers}
        if len(kinds) == 1 and names[0] not in noted:
            return kinds[0](context)
        combined = CombinedConsumeQueueStore(
            context, kinds, choose_roles(names, self.config), self._lines
        )
        combined.is_deleted = self.deleted_topics.has_record
        return combined

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
        pass_over: Collection[int] = (),
        rebuild: Rebuild = Rebuild.NOTHING,
        housekeeping: bool = True,
        surroundings: Surroundings | None = None,
        progress: Callable[[int], object] = bool,
    ) -> Self:
        """Open the store in ``root``; read-write, a new one is made if there is none.

        What lies on disk decides on backend and file sizes, unless ``config`` gives a size.
        Read-only: takes no lock and changes no byte, for a copy or a stopped broker's folder.
        ``commit_log`` names the log's folder when it lies elsewhere (read-only). ``cut_at`` allows
        to lose what lies behind damage at exactly that phy offset, ``pass_over`` to lose the
        damaged records at these alone: their places in the queues stay, and pulls pass over them.
        ``rebuild`` builds all queues, or the index, anew from the log, the queues in ``backend`` if
        it is given; what was there is moved to ``cqstore/replaced``. With ``housekeeping`` old log
        files go by RocketMQ's rules (``FileExpiry``), from a minute after the opening on, and a
        disk that is nearly full takes no more puts. ``surroundings`` is the machine, ``progress``
        is told phy offsets that the recovery has come to.

        Raises:
            StoreLockedError: somebody has it open.
            RefusedStoreError: it must not be opened this way; the sentence says why.
            CorruptionError: it cannot be read as a store.
            StoreIOError: the operating system refused something.
        """
        root = Path(root)
        with os_errors("open the store", root):  # where nothing nearer names a path
            layout, config = lay_out(root, config or StoreConfig(), commit_log, read_only=read_only)
            options = OpenOptions(
                backend,
                cut_at,
                pass_over,
                rebuild,
                housekeeping,
                surroundings or Surroundings(),
                progress,
            )
            if read_only:
                names = choose_backends(layout, config, backend, read_only=True)
                store = cls(layout, config, names, None)
                store._begin(options)
                return store
            return cls._open_to_write(layout, config, options)

    @classmethod
    def _open_to_write(cls, layout: StoreLayout, config: StoreConfig, options: OpenOptions) -> Self:
        paths, backend = layout.paths, options.backend
        if not replacement.begun(paths) and not options.rebuild:
            choose_backends(layout, config, backend)  # refuses before the lock file is made
        lock = StoreLock(paths)
        try:
            ends = partial(_finished_queues, paths.root, config)
            names = replacement.prepare(
                layout, config, backend, options.rebuild, options.cut_at, ends
            )
            layout = replace(layout, backends=detect(paths.root, config).backends)
            store = cls(layout, config, names, lock)
            store._begin(options)
        except BaseException:
            lock.release()
            raise
        return store

    def _begin(self, options: OpenOptions) -> None:
        """Recover, then serve; on failure nothing is left running or open."""
        self._recover(options)
        try:
            self._wire(options)
            if not self.read_only:
                replacement.finish(self.paths)
                self._start(housekeeping=options.housekeeping)
        except BaseException:
            self._stop()
            self._undo(marked=False, whole=False)
            raise
        _LOG.info("opened %s: %s", self.paths.root, self.report)

    def _wire(self, options: OpenOptions) -> None:
        """Wire the services over a store that is whole."""
        config, log = self.config, self.commit_log
        self._flush_all = WholeFlush(
            self._dispatcher, self.queues, self.index, self.checkpoint, self._commit
        )
        self._flush = FlushService(
            config, log, self._commit, self._dispatcher, self._flush_all, self._state.fail
        )
        self._puller = Puller(config, log, self.queues)
        self._tracing, self._trace = threading.Lock(), None
        self._mirror = self._tap = Mirror.of(config, self.paths, log, self.queues, self._puller)
        self._stops.append(self._stop_trace)
        quota = LightQuota(self.queues, self._pending.offsets, config.max_lmq_consume_queue_num)
        self._append = Appender(log, self._pending, self._state, quota)
        putter = Putter(
            config, log, self.queues, self._dispatcher, self._commit, self._flush, self._append,
            self._state.fail,
        )  # fmt: skip
        self._putter = putter
        self._clean = CleanService(
            log, self.queues, self.index, self._pending, self._dispatcher, self._commit,
            self.deleted_topics, ExpiredQueues(self.paths.expired_queues), quota,
            self._state.check_writable,
        )  # fmt: skip
        self.metrics = StoreMetrics(
            self.paths, log, self.queues, self._dispatcher, self._commit, putter,
            self._puller, self._state, self._mirror,
        )  # fmt: skip
        """Counters and figures of the store, see ``StoreMetrics.snapshot``."""
        surroundings = options.surroundings
        levels = DiskLevels(config, surroundings, self.layout.log_folders, self.paths.consume_queue)
        self._expiry = FileExpiry(
            config, log, levels, surroundings, self.delete_expired_files,
            self._state.set_disk_full, self._state.fail,
        )  # fmt: skip

    def _start(self, *, housekeeping: bool) -> None:
        """Start the threads; each is to be stopped from before it runs."""
        self._stops.append(self._flush.stop)
        self._flush.start()
        if housekeeping:
            self._stops.append(self._expiry.stop)
            self._expiry.start()
        if self._mirror is not None:
            self._stops.append(self._mirror.stop)
            self._mirror.start()

    def _stop(self) -> None:
        for stop in reversed(self._stops):
            stop()

    def _recover(self, options: OpenOptions) -> None:
        """Open queues and index and make them and the log whole; undo all on failure."""
        marked = changing = False
        try:
            self.queues.load()
            kept = [part.name for part in self.queues.parts()]
            self.report.written_since = written_since(
                self.queues.context, self._lines.standing, kept
            )
            if not self.read_only and self.last_exit_ok:
                mark_open(self.paths)
                marked = True
            self.index, self.report.index_dropped = open_index(
                self.paths, self.config, self.last_exit_ok, self.checkpoint,
                read_only=self.read_only,
            )  # fmt: skip
            self.deleted_topics.load()
            self.queues.recover()
            recovery = Recovery(
                self.paths, self.config, self.commit_log, self.queues, self.index,
                self.checkpoint, self.report, self.deleted_topics,
            )  # fmt: skip
            units = RecordUnits(
                self.config, self.deleted_topics, self.queues.queue_type,
                check_topic=self.queues.check_topic,
                lmq_needs_multi_dispatch=self.queues.lmq_needs_multi_dispatch,
            )  # fmt: skip
            keys = RecordKeys(wanted=self.index is not None, tags=self.config.message_index_tags)
            self._pending = Pending(self.queues, units, keys, self._state)
            self._commit = GroupCommit(self.commit_log, self.config.sync_flush_timeout)
            self._dispatcher = Dispatcher(
                self._pending, self.queues, self.index, self.config.dispatch_slice, self._state,
                self._before_store(),
            )  # fmt: skip
            rules = ScanRules(self.config.check_crc_on_recover)
            self._rebuild = QueueRebuild(
                self.paths, self.commit_log, self.queues, units, self._pending, self._dispatcher,
                rules, self._state.fail,
            )  # fmt: skip
            if self.read_only:
                self.report.unfinished_rebuild = self.paths.rebuilding.exists()
                self.report.queues_damaged = self.queues.damaged_queues()
                recovery.find_end()
            else:
                changing = True
                self._rebuild.drop_half_built()
                replay = Replay(self._dispatcher.store, units, keys)
                recovery.run(replay, options.cut_at, options.pass_over, options.progress)
                self._note_cut_log()
                self._rebuild.resume()
                mend = QueueMend(self.commit_log, self.queues, units, self._rebuild, rules)
                mended = mend.run(ExpiredQueues(self.paths.expired_queues).ends)
                self.report.queues_mended = mended.mended
                self.report.queues_damaged = mended.left
                if not marked:
                    mark_open(self.paths)
        except BaseException as exc:
            refused = isinstance(exc, RefusedStoreError | StoreConfigError)
            self._undo(marked=marked, whole=refused or not changing)
            raise
        if (last := recovery.last) is not None:
            self._dispatcher.note_last(last.phy_offset, last.size, last.store_timestamp)

    def _before_store(self) -> Callable[[], object]:
        """Return what has to be done with the log before units of it become visible."""
        if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return self._commit.flush
        return self.commit_log.commit if self.config.is_transient else bool

    def _note_cut_log(self) -> None:
        """Note for backends that are left behind that the log may have lost what they have."""
        opened = [part.name for part in self.queues.parts()]
        self._lines.log_was_cut(self.report.end_phy_offset, opened)

    def _undo(self, *, marked: bool, whole: bool) -> None:
        """Close what a failed open has loaded; not ``whole``: a batch may have stopped midway."""
        try:
            if self.index is not None:
                self.index.close(flush=False)
            self.queues.close()
        except StoreError:  # what went wrong first is what counts
            whole = False
        self.commit_log.close()
        if marked and whole:
            mark_closed(self.paths)

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
        if self._state.unwritable:
            return self._state.refuse_put()
        return self._putter.put(message)

    def put_message_async(self, message: Message) -> Future[PutMessageResult]:
        """Put one message; the future completes when it is as durable as the settings promise.

        The message has its place when this returns: calls of one thread keep their order. For
        asyncio: ``await asyncio.wrap_future(store.put_message_async(message))``. The future cannot
        be cancelled; its callbacks run in the flush thread and must be short.

        Raises:
            StoreError: as for ``put_message``; what goes wrong later is the future's.

        Source: RocketMQ ``DefaultMessageStore.asyncPutMessage``.
        """
        if self._state.unwritable:
            refused: Future[PutMessageResult] = Future()
            refused.set_result(self._state.refuse_put())
            return refused
        return self._putter.put_async(message)

    def put_messages(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put several messages, in order, under one lock; one result each.

        A message that is refused does not keep the others out. Cheaper than single puts.
        """
        if self._state.unwritable:
            return [self._state.refuse_put()] * len(messages)
        return self._putter.put_list(messages)

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a client batch (``encode_client_batch`` makes its body): all messages or none.

        Returns one result a message, or one refusal for the whole batch.

        Source: RocketMQ ``DefaultMessageStore.putMessages``.
        """
        if self._state.unwritable:
            return [self._state.refuse_put()]
        return self._putter.put_client_batch(batch)

    # ---- flush and close

    def flush(self) -> None:
        """Make everything durable: log, queues, index, checkpoint."""
        with self._state.writing():
            self._flush_all()

    def close(self) -> None:
        """Flush everything, then let the store go. A second call does nothing.

        After a failure ``abort`` stays, so that the next open recovers. A failure that was raised
        before is not raised again. One that is cut short goes on with the next call; so does one
        that another thread is at. In a child of the process that opened the store it does nothing.
        """
        if self._state.forked:
            return
        with self._closing:
            if not self._released:
                self._close()

    def _close(self) -> None:
        failed_before = self._state.failure is not None
        try:
            with self._state.failing():
                self._stop()
                with self._pending.lock:
                    self._state.close()
        finally:
            with self._clean.lock:  # what is being deleted comes to its end
                self._let_go()
        if self._state.failure is not None and not failed_before:
            raise self._state.failure

    def _let_go(self) -> None:
        try:
            with self._state.failing():
                if not (self.read_only or self._state.failure or self._all_flushed):
                    self._flush_all()
                    self._all_flushed = True
        finally:
            self._release()

    def _release(self) -> None:
        """Let every part go, also if one before it fails: the store has failed then.

        It passes for cleanly closed only if everything was flushed before: an interrupt may have
        come in between.
        """
        parts: list[Callable[[], None]] = [self.queues.close, self.commit_log.close]
        if self.index is not None:
            whole = self._all_flushed and self._state.failure is None
            parts.insert(0, partial(self.index.close, flush=whole))
        for close in parts:
            try:
                close()
            except StoreError as exc:
                _LOG.warning("a part of the store could not be closed well: %s", exc)
                self._state.fail(exc)
        if self._lock is not None:
            if self._all_flushed and self._state.failure is None:
                try:
                    mark_closed(self.paths)
                except StoreError as exc:
                    self._state.fail(exc)
            self._lock.release()
        self._released = True

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

    def _ready(self) -> None:
        """Refuse after close; hand on what waits, so that the reader sees it."""
        self._state.check_open()
        if self._dispatcher.behind and self._state.failure is None:
            self._dispatcher.drain()


def _finished_queues(root: Path, config: StoreConfig) -> list[tuple[QueueKey, int]]:
    """Return where queues go on of which the log has no record any more."""
    try:
        with MessageStore.open(root, config, read_only=True) as store:
            keys = list(store.queue_keys())
            spans = [(store.min_offset(*key), store.max_offset(*key)) for key in keys]
    except (CorruptionError, ConsumeQueueError) as exc:
        _LOG.warning("queues without records may begin at 0 again, theirs cannot be read: %s", exc)
        return []
    return [(key, high) for key, (low, high) in zip(keys, spans, strict=True) if low >= high > 0]
