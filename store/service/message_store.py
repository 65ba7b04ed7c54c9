"""MessageStore: the public face of a store.

Opening takes the lock, recovers and reports; putting and pulling may be done by any number of
threads. Source: RocketMQ ``DefaultMessageStore``, ``RocksDBMessageStore``.
"""

import sys
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from store.checked_lock import CheckedLock
from store.config import StoreConfig
from store.errors import RefusedStoreError, RetryableDiskFullError, os_errors
from store.future import StoreFuture
from store.index.index_service import IndexService
from store.log._log import PlainLog
from store.log.commit_log import CommitLog
from store.logger import StoreLogger
from store.progress import Progress, noop
from store.record.message import Message
from store.record.message_check import listed
from store.service.opening.open_parts import open_parts
from store.service.opening.options import OpenOptions
from store.service.opening.parts import StoreComponents
from store.service.reading import _query
from store.service.reading.read_guard import read_guard_of
from store.service.recovering.replacement import Rebuild
from store.service.results import PutMessageResult
from store.service.runtime.environment import Environment
from store.service.store_care import StoreCare
from store.service.writing.putter import put_for_future
from store.service.writing.replicas import Replicas

if TYPE_CHECKING:
    from store.service.writing.loop_puts import LoopPuts

_LOG = StoreLogger(__name__)


class MessageStore(StoreCare):
    """One open store. Make it with ``MessageStore.open``, end it with ``close``.

    Any thread may call any method. What was put is visible to every later read; it is durable when
    the put returns under ``SYNC_FLUSH``, and survives a killed process (not a power cut) under
    ``ASYNC_FLUSH``. After a failed write or flush the store refuses further writes. While a disk
    has no room for units or keys it refuses puts, and reads see what queues and index have.
    """

    def __init__(self, parts: StoreComponents) -> None:
        """Serve ``parts``; callers use ``open``."""
        loaded, recovered = parts.loaded, parts.recovered
        self._parts = parts
        self.layout = loaded.layout
        self.config = loaded.config
        self.paths = loaded.paths
        self.read_only = loaded.read_only
        self.last_exit_ok = loaded.last_exit_ok
        self.report = loaded.report
        self.checkpoint = loaded.checkpoint
        self.commit_log = loaded.log
        self.queues = loaded.queues
        self.index, self._others = recovered.index, recovered.others
        self._plain_queries = _plain_queries(loaded.log, recovered.index, loaded.config)
        self.deleted_topics = loaded.deleted
        self.metrics = parts.metrics
        """Counters and figures of the store, see ``StoreMetrics.snapshot``."""
        self._state = loaded.state
        self._pending = recovered.pending
        self._dispatcher = recovered.dispatcher
        self._ready = read_guard_of(loaded.state, recovered.dispatcher)
        self._commit = recovered.commit
        self._rebuild = recovered.rebuild
        self._flush, self._flush_all = parts.flush, parts.flush_all
        self._puller, self._putter = parts.puller, parts.putter
        self._loop_puts: LoopPuts | None = None  # from the first ``put`` on
        self._loop_waits = None  # from the first wait of a task on
        self._clean, self._expiry, self._schedule = parts.clean, parts.expiry, parts.schedule
        self._mirror = self._tap = parts.mirror
        self._tracing = CheckedLock("the begin of a trace")
        self._trace = self._last_trace = None
        self._closing = CheckedLock("a close")  # one thread closes at a time
        self._state.locks.add_outer(self._tracing, self._closing)
        self._ended = self._all_flushed = self._released = False

    @classmethod
    def open(
        cls, root: Path | str, config: StoreConfig | None = None, *,
        read_only: bool = False,
        backend: str | None = None,
        commit_log: Path | None = None,
        cut_at: int | None = None,
        pass_over: Collection[int] = (),
        rebuild: Rebuild = Rebuild.NOTHING,
        housekeeping: bool = True,
        replicas: Replicas | None = None,
        surroundings: Environment | None = None,
        progress: Progress = noop,
    ) -> Self:  # fmt: skip
        """Open the store in ``root``; read-write, a new one is made if there is none.

        What lies on disk decides on backend and file sizes, unless ``config`` gives a size.
        Read-only: takes no lock and changes no byte, for a copy or a stopped broker's folder.
        ``commit_log`` names the log's folder when it lies elsewhere (read-only). ``cut_at`` allows
        to lose what lies behind damage at exactly that phy offset, ``pass_over`` to lose the
        damaged records at these alone: their places in the queues stay, and pulls pass over them.
        ``rebuild`` builds all queues, or the index, anew from the log, the queues in ``backend`` if
        it is given; what was there is moved to ``cqstore/replaced``. With ``housekeeping`` old log
        files go by RocketMQ's rules (``FileExpiry``), from a minute after the opening on, a disk
        that is nearly full takes no more puts, and delayed messages are delivered where
        ``enable_schedule_message_service`` says so. ``replicas`` are those who follow (the
        ``Followers`` of ``replication``): with them ``brokerRole=SYNC_MASTER`` is honoured, without
        it is refused. ``surroundings`` is the machine; the recovery tells ``progress`` phy offsets.

        Raises:
            StoreLockedError: somebody has it open.
            RefusedStoreError: it must not be opened this way; the sentence says why.
            StoreConfigError: the settings promise replicas that nobody feeds, or are wrong.
            CorruptionError: it cannot be read as a store.
            StoreIOError: the operating system refused something.
        """
        undo, root = ExitStack(), Path(root)
        options = OpenOptions(
            read_only=read_only, backend=backend, cut_at=cut_at, pass_over=pass_over,
            rebuild=rebuild, housekeeping=housekeeping, replicas=replicas,
            surroundings=surroundings or Environment(), progress=progress,
        )  # fmt: skip
        try:
            with os_errors("open the store", root):  # where nothing nearer names a path
                store = cls(open_parts(undo, root, config or StoreConfig(), commit_log, options))
            _LOG.info("opened %s: %s", root, store.report)
        except BaseException:
            undo.__exit__(*sys.exc_info())
            raise
        else:  # no call lies between: an interrupt is undone, or the caller has the store
            return store

    # ---- putting

    def put_message(self, message: Message) -> PutMessageResult:
        """Put one message and return its status and place.

        A message that cannot be stored is refused with a status and a reason before a byte is
        written. Under ``SYNC_MASTER`` it returns when the followers that were asked for have it, or
        with ``FLUSH_SLAVE_TIMEOUT`` after ``slaveTimeout``.

        Raises:
            StoreFailedError: an earlier write failed.
            StoreIOError: this one did; the store must be opened again.
            ReadOnlyStoreError, StoreClosedError: no puts here.

        Source: RocketMQ ``DefaultMessageStore.putMessage``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            return refused
        return self._putter.put(message)

    def put_message_async(self, message: Message) -> Future[PutMessageResult]:
        """Put one message; the future completes when it is as durable as the settings promise.

        The message has its place when this returns: calls of one thread keep their order. The
        future cannot be cancelled; its callbacks run in a thread of the store's and must be short.
        In asyncio ``put`` costs less.

        Raises:
            StoreError: as for ``put_message``; what goes wrong later is the future's.

        Source: RocketMQ ``DefaultMessageStore.asyncPutMessage``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            done = StoreFuture[PutMessageResult]()
            done.set_result(refused)
            return done
        return put_for_future(self._putter, message)

    async def put(self, message: Message) -> PutMessageResult:
        """Put one message; a task of an asyncio loop awaits that it is as durable as promised.

        Many tasks at once cost one sync and one turn of the loop. The message has its place before
        the first wait for the disk: tasks put in the order in which they run. Where the settings
        promise nothing to wait for, the loop does not get a turn. Checks and append run in its
        thread, and may wait there as ``put_message`` does: for another thread's append, a new file.
        With ``MAX_IN_FLIGHT`` of a loop's puts in flight the next one waits before it appends. On
        a loop that is not asyncio's own it is a future of ``put_message_async`` that is awaited.

        Cancelled before it has appended, it leaves nothing; later, the message stays where it is
        and the task alone goes.

        Raises:
            StoreError: as for ``put_message``.

        Source: RocketMQ ``DefaultMessageStore.asyncPutMessage``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            return refused
        loops = self._loop_puts
        if loops is None:
            from store.service.writing.loop_puts import LoopPuts  # noqa: PLC0415 - asyncio is large

            loops = self._loop_puts = LoopPuts()
        return await loops.put(self._putter, message)

    def put_messages(self, messages: Iterable[Message]) -> list[PutMessageResult]:
        """Put several messages, in order, under one lock; one result each.

        ``messages`` is iterated once, before the first put; what its owner does to it later changes
        nothing. A message that is refused does not keep the others out. Cheaper than single puts.

        Raises:
            TypeError: a text, bytes, a mapping or one message instead of several, or an element is
                no message; none was put.
            StoreError: as for ``put_message``.
        """
        given = listed(messages)
        if self._state.unwritable and (refused := self._refusal(len(given))):
            return [refused] * len(given)
        return self._putter.put_list(given)

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a client batch (``encode_client_batch`` makes its body): all messages or none.

        Returns one result a message, or one refusal for the whole batch.

        Source: RocketMQ ``DefaultMessageStore.putMessages``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            return [refused]
        return self._putter.put_client_batch(batch)

    def _refusal(self, messages: int = 1) -> PutMessageResult | None:
        """Return why nothing is put, ``None`` if a stalled dispatch has just found room.

        That many ``messages`` are counted as refused.

        Raises:
            StoreError: it is no matter of room.
        """
        self._state.check_writable()
        if self._state.stalled:
            with suppress(RetryableDiskFullError):
                self._dispatcher.drain()
        if not self._state.unwritable:
            return None
        refused = self._state.refuse_put()
        self._parts.putter.meter.not_ok(refused.status, messages)
        return refused

    def append_to_commit_log(self, phy_offset: int, data: bytes) -> int:
        """Append bytes of another store's log, of which ``data`` begins at ``phy_offset``.

        Whole records go in as they are, with the places and offsets that they have; what remains at
        the end of ``data`` is to come again. Returns the end of the log. With ``SYNC_FLUSH`` it is
        on disk then, or ``syncFlushTimeout`` is over (``commit_log.flushed_phy_offset`` tells).
        Puts go on behind. An empty log begins at the start of any file. Any thread; one at a time.

        Raises:
            RefusedStoreError: the records do not continue the log, or this store delivers delayed
                messages, as its master does; nothing was appended.
            CorruptionError: no valid record where one should start, or one whose queue would have
                a gap; nothing was appended.
            DiskFullError: there is no room for a next file, or for units or keys of records that
                were appended before; nothing was appended.

        Source: RocketMQ ``DefaultMessageStore.appendToCommitLog``, which checks nothing.
        """
        self._state.check_writable()
        if self._schedule is not None:
            raise RefusedStoreError(
                "enableScheduleMessageService: a follower leaves it to the"
                " master to deliver what is delayed", path=self.paths.root,
            )  # fmt: skip
        return self._parts.putter.append_raw(phy_offset, data)

    # ---- flush and close

    def flush(self) -> None:
        """Make everything durable: log, queues, index, checkpoint, offsets of delay levels.

        Raises:
            RetryableDiskFullError: there is no room for units or keys of records. The log is
                durable; the rest is with a later call, once there is room.
            StoreError: the disk refused; the store has failed.
        """
        with self._state.writing():
            self._flush_all()
        if self._schedule is not None:
            self._schedule.persist()

    def flush_log(self) -> None:
        """Make the log durable, and with it each message that was put before.

        Cheaper than ``flush``: a recovery brings the rest out of the log.

        Raises:
            StoreError: the disk refused; the store has failed.
        """
        with self._state.writing():
            self._commit.flush()

    def close(self) -> None:
        """Flush everything, then let the store go. A second call does nothing.

        After a failure ``abort`` stays, so that the next open recovers. A failure that was raised
        before is not raised again. One that is cut short goes on with the next call; so does one
        that another thread is at. In a child of the process that opened the store it does nothing.

        Raises:
            NestedCallError: this thread is inside another call of the store, or one of the store's
                own (a future's callback); nothing was done.
        """
        if self._state.forked:
            return
        self._state.locks.check()
        self._parts.refuse_own_threads()
        if self._last_trace is not None:
            self._last_trace.worker.refuse_itself()
        with self._closing.entry():
            if not (self._ended and self._released):
                self._close()

    def _close(self) -> None:
        failed_before = self._state.failure is not None
        try:
            with self._state.failing():
                self._stop_trace()
                self._parts.stop()
                self._dispatcher.raise_if_interrupted()
                with self._pending.owner.entry(), self._pending.lock:
                    self._pending.appending.raise_if_poisoned()
                    self._state.close()
                self._ended = True
        finally:
            if not self._released:
                with self._clean.lock.entry():  # what is being deleted comes to its end
                    self._release()
        if self._state.failure is not None and not failed_before:
            raise self._state.failure

    def _release(self) -> None:
        try:
            with self._state.failing():
                if not (self.read_only or self._state.failure or self._all_flushed):
                    self._flush_all()
                    self._all_flushed = True
        finally:
            self._parts.release(flushed=self._all_flushed)  # an interrupt may have come before
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


def _plain_queries(
    log: CommitLog, index: IndexService | None, config: StoreConfig
) -> _query.FastQuery | None:
    """Return the fast path of queries by key, ``None`` without an index."""
    if index is None:
        return None
    return _query.FastQuery(PlainLog(log), index, log.files.file_size, config.max_msgs_num_batch)
