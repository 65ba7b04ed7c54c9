"""MessageStore: the public interface of a store.

Opening takes the lock, recovers and reports; any number of threads may put and pull. Each method
checks whether the store is in a state that allows the call, then calls one component of the store.

Source: RocketMQ ``DefaultMessageStore``, ``RocksDBMessageStore``.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from cqstore.store.concurrency.future import StoreFuture
from cqstore.store.paths import named_path
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage, refuse_filler
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.record.message_check import listed
from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.dispatching.arrivals import ArrivalListener, ArrivalSubscription
from cqstore.store.service.layout.store_layout import check_backend
from cqstore.store.service.maintenance.check import CheckFinding, StoreCheck
from cqstore.store.service.maintenance.clean_service import ExpiryReport
from cqstore.store.service.maintenance.disk_levels import DiskDemand
from cqstore.store.service.maintenance.file_expiry import FileOutlook
from cqstore.store.service.opening.components import StoreComponents
from cqstore.store.service.opening.dropped import when_dropped
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, RecoveryOptions, StoreHooks
from cqstore.store.service.opening.shutdown import StoreShutdown
from cqstore.store.service.reading.arguments import (
    check_callable,
    check_kind,
    check_numbers,
    check_optional_texts,
    check_path,
    check_pull,
    check_queue,
    check_search,
    check_seconds,
    check_tags,
    check_texts,
    listed_numbers,
    query_times,
)
from cqstore.store.service.reading.arrival_waits import ArrivalWaits, ThreadWait
from cqstore.store.service.reading.puller import MAX_PULL_BYTES, TagFilter
from cqstore.store.service.reading.read_guard import read_guard_of
from cqstore.store.service.reading.read_interceptor import (
    ReadInterceptor,
    estimate_question,
    max_offset_question,
    min_offset_question,
    time_question,
)
from cqstore.store.service.reading.store_times import Time, TimeRange
from cqstore.store.service.reading.time_runs import offset_at_time, time_runs
from cqstore.store.service.recovering.queue_rebuild import RebuildReport
from cqstore.store.service.results import (
    GetMessageResult,
    GetMessageStatus,
    PutMessageResult,
    QueryMessageResult,
)
from cqstore.store.service.writing.put_guard import PutGuard
from cqstore.store.service.writing.putter import Puts, put_for_future
from cqstore.store.service.writing.replicas import Replicas
from cqstore.store.settings.config import StoreConfig

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cqstore.store.comparing.compared import Compared
    from cqstore.store.service.metrics.metrics import StoreMetrics
    from cqstore.store.service.reading.loop_waits import LoopWait
    from cqstore.store.service.recovering.recovery_report import RecoveryReport

_NO_MESSAGE = GetMessageStatus.NO_MESSAGE_IN_QUEUE  # an enum member costs a lookup
_UPPER = BoundaryType.UPPER
_T = TypeVar("_T")


class MessageStore:
    """One open store. Create it with ``MessageStore.open``, end it with ``close``.

    Any thread may call any method. A message that was put is visible to every later read; it is
    durable when the put returns under ``SYNC_FLUSH``, and survives a killed process (not a power
    failure) under ``ASYNC_FLUSH``. After a failed write or flush the store refuses further writes.
    While a disk has no space for units or keys it refuses puts, and reads use the stored ones.
    """

    def __init__(self, components: StoreComponents) -> None:
        """Use ``components``; callers use ``open``."""
        self._components = components
        self.root: Path = components.paths.root
        """Root folder of the store."""
        self.config: StoreConfig = components.config
        """The settings of this opening, with file sizes as on disk."""
        self.read_only: bool = components.read_only
        """Whether the store was opened read-only."""
        self.last_exit_ok: bool = components.last_exit_ok
        """Whether the store had been closed cleanly before this opening."""
        self.report: RecoveryReport = components.report
        """Findings and actions of the opening."""
        self.metrics: StoreMetrics = components.metrics
        """Counters and measurements of the store, see ``StoreMetrics.snapshot``."""
        self._log, self._queues = components.log, components.queues
        self._state, self._dispatcher = components.state, components.dispatcher
        self._commit, self._flush_all = components.commit, components.flush_all
        self._clean, self._expiry = components.clean, components.expiry
        self._schedule = components.schedule
        self._ready = read_guard_of(components.state, components.dispatcher)
        """Refuses after a close, and dispatches waiting units, so that a reader sees them."""
        guard = PutGuard(components.state, components.dispatcher, components.putter.meter)
        self._refusal = guard.refusal
        self._puller, self._queries = components.puller, components.queries
        arrivals = components.dispatcher.arrivals
        self._loops = components.loops
        self._waits = ArrivalWaits(
            components.queues, arrivals, components.state, self._ready,
            None if self._loops is None else self._loops[1],
        )  # fmt: skip
        self._route(components.puts, components.interceptor)
        self._shutdown = StoreShutdown(components)
        components.state.locks.add_outer(self._shutdown.lock)
        self._note_closed = when_dropped(self, components)

    def __repr__(self) -> str:
        backends = "+".join(each.name for each in self._queues.backends())
        return f"<MessageStore {str(self.root)!r}, {backends}, {self._state.word}>"

    def _route(self, putter: Puts, interceptor: ReadInterceptor | None) -> None:
        """Route puts through ``putter``, and show reads to ``interceptor``."""
        self._putter, self._interceptor = putter, interceptor

    @classmethod
    def open(
        cls, root: Path | str, config: StoreConfig | None = None, *,
        backend: str | None = None, read_only: bool = False, housekeeping: bool = True,
        recovery: RecoveryOptions | None = None, hooks: StoreHooks | None = None,
        replicas: Replicas | None = None, progress: Progress = noop,
    ) -> Self:  # fmt: skip
        """Open the store in ``root``. If there is none, create one, unless ``read_only``.

        The files on disk determine the backends, and file sizes that ``config`` does not set. A
        store that is dropped without ``close`` is left as after a kill, see ``close``.

        Args:
            root: root folder (``storePathRootDir``). A commit log in another folder is set by
                ``store_path_commit_log``; it is written if ``store_path_root_dir`` is ``root``.
            config: the settings; default: RocketMQ's.
            backend: name of the backend to create a new store with, to read if the store has
                several, or to rebuild into. Default: ``storeType`` of the settings.
            read_only: take no lock and change no byte: for a copy, a stopped broker's folder, or a
                store that another process writes.
            housekeeping: delete old log files by RocketMQ's rules, refuse puts while a disk is
                nearly full, deliver delayed messages if ``enable_schedule_message_service`` is set.
            recovery: what the recovery may discard and must rebuild; default: nothing.
            hooks: put hooks and dispatchers; default: those of installed packages.
            replicas: the followers that puts wait for; required for ``SYNC_MASTER``.
            progress: called by the recovery with phy offsets.

        Raises:
            StoreLockedError: the store is open already.
            RefusedStoreError: the store must not be opened this way; the error has the reason.
            StoreConfigError: settings or hooks are invalid, contradict ``backend``, or require
                replicas that are not given.
            DispatcherError: a dispatcher failed at a record that the recovery dispatches.
            CorruptionError: the store is damaged and cannot be opened.
            StoreIOError: an operation of the operating system failed.
        """
        config = _checked_config(root, config, backend, recovery, hooks, progress)
        options = OpenOptions(
            backend=backend, read_only=read_only, housekeeping=housekeeping,
            recovery=recovery or RecoveryOptions(), hooks=hooks or StoreHooks(),
            replicas=replicas, progress=progress,
        )  # fmt: skip
        undo = ExitStack()
        try:
            store = open_served(cls, named_path(root), config, options, undo)
        except BaseException:
            undo.__exit__(*sys.exc_info())
            raise
        else:  # no call in between: an interrupt is undone, or the caller has the store
            return store

    # ---- putting

    def put_message(self, message: Message) -> PutMessageResult:
        """Put one message and return its status and position.

        A message that cannot be stored is refused with a status and a reason before a byte is
        written. Under ``SYNC_MASTER`` it returns when enough followers have the message, or with
        ``FLUSH_SLAVE_TIMEOUT`` after ``slaveTimeout``.

        Raises:
            PutHookError: a put hook failed; nothing was put.
            StoreFailedError: an earlier write failed.
            StoreIOError: this write failed; the store must be opened again.
            ReadOnlyStoreError, StoreClosedError: the store is read-only or closed.

        Source: RocketMQ ``DefaultMessageStore.putMessage``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            return refused
        return self._putter.put(message)

    def put_message_future(self, message: Message) -> Future[PutMessageResult]:
        """Put one message; the future completes when it is as durable as the settings promise.

        The message has its position when this returns: calls of one thread keep their order. The
        future cannot be cancelled; its callbacks run in a thread of the store and must be short. In
        asyncio, ``put_message_async`` is cheaper.

        Raises:
            StoreError: as for ``put_message``; later errors are set in the future.

        Source: RocketMQ ``DefaultMessageStore.asyncPutMessage``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            done = StoreFuture[PutMessageResult]()
            done.set_result(refused)
            return done
        return put_for_future(self._putter, message)

    async def put_message_async(self, message: Message) -> PutMessageResult:
        """Put one message; awaits, in a task of an asyncio loop, the promised durability.

        Many tasks at once cost one sync and one turn of the loop. The message has its position
        before the first wait for the disk: tasks put in the order in which they run. If the
        settings require no wait, the loop does not get a turn. Checks and append run in its thread,
        and may wait there as ``put_message`` does: for another thread's append, or a new file. With
        ``MAX_IN_FLIGHT`` puts of a loop in flight, the next one waits before it appends. On a loop
        that is not asyncio's own, a future of ``put_message_future`` is awaited.

        If the task is cancelled before the append, nothing is stored; later, the message stays
        stored and only the task ends.

        Raises:
            StoreError: as for ``put_message``.

        Source: RocketMQ ``DefaultMessageStore.asyncPutMessage``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            return refused
        assert self._loops is not None  # a store without them is read-only: refused above
        return await self._loops[0].put(self._putter, message)

    def put_messages(self, messages: Iterable[Message]) -> list[PutMessageResult]:
        """Put several messages, in order, under one lock; one result each.

        ``messages`` is iterated once, before the first put; later changes to it have no effect. A
        refused message does not prevent the others. Cheaper than single puts.

        Raises:
            TypeError: a text, bytes, a mapping or a single message was given, or an element is not
                a message; none was put.
            StoreError: as for ``put_message``.
        """
        given = listed(messages)
        if self._state.unwritable and (refused := self._refusal(len(given))):
            return [refused] * len(given)
        return self._putter.put_list(given)

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a client batch (``encode_client_batch`` makes its body): all messages or none.

        Returns one result per message, or one refusal for the whole batch. In a BatchCQ topic it
        becomes one inner batch, with one result, and needs a ``UNIQ_KEY``, as in a broker.

        Source: RocketMQ ``DefaultMessageStore.putMessages``.
        """
        if self._state.unwritable and (refused := self._refusal()):
            return [refused]
        return self._putter.put_client_batch(batch)

    def append_to_commit_log(self, phy_offset: int, data: bytes) -> int:
        """Append bytes of another store's log; ``data`` begins at ``phy_offset``.

        Complete records are appended unchanged, with their offsets; pass the rest of ``data`` again
        later. Returns the end of the log. With ``SYNC_FLUSH`` it is on disk then, or
        ``syncFlushTimeout`` has passed (see ``flushed_phy_offset``). Puts continue after it. An
        empty log begins at any file's start. Any thread, one at a time.

        Raises:
            RefusedStoreError: the records do not continue the log, or this store delivers delayed
                messages, like its master; nothing was appended.
            CorruptionError: an invalid record, or a gap in its queue; nothing was appended.
            DiskFullError: there is no space for the next file, or for units or keys of records that
                were appended before; nothing was appended.
            DispatcherError: a dispatcher failed at such a record; nothing was appended.

        Source: RocketMQ ``DefaultMessageStore.appendToCommitLog``, which checks nothing.
        """
        check_numbers(phy_offset=phy_offset)
        check_kind((bytes, bytearray, memoryview), "bytes", data=data)
        self._state.check_writable()
        self._components.refuse_if_delivering()
        return self._components.putter.append_raw(phy_offset, data)

    # ---- flush and close

    def flush(self) -> None:
        """Make everything durable: log, queues, index, checkpoint, offsets of delay levels.

        Raises:
            RetryableDiskFullError: there is no space for units or keys of records. The log is
                durable; a later call writes the rest, once there is space.
            DispatcherError: a dispatcher failed. The log is durable; a later call writes the rest.
            StoreError: a sync failed; the store has failed.
        """
        with self._state.writing():
            self._flush_all()
        if self._schedule is not None:
            self._schedule.persist()

    def flush_log(self) -> None:
        """Make the log durable, and with it each message that was put before.

        Cheaper than ``flush``: a recovery restores everything else from the log.

        Raises:
            StoreError: a sync failed; the store has failed.
        """
        with self._state.writing():
            self._commit.flush()

    def close(self) -> None:
        """Flush everything, then release the store. A second call does nothing.

        A store that is dropped without ``close`` is released with a ``ResourceWarning`` and not
        flushed: ``abort`` stays, and the next open recovers. (The engine ``rocksdict`` writes
        RocksDB's memtables even then.)

        After a failure ``abort`` stays, so that the next open recovers. An error that was raised
        before is not raised again. The next call continues an interrupted close. In a child of the
        process that opened the store it does nothing.

        Raises:
            NestedCallError: this thread is inside another call of the store, or belongs to the
                store (a future's callback); nothing was done.
        """
        if self._state.forked:
            return
        self._state.locks.check()
        self._components.refuse_own_threads()
        try:
            self._shutdown.run()
        finally:
            if self._shutdown.is_done:
                self._note_closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- reading: each call sees all messages that were put before it

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msgs: int = 32,
        tags: TagFilter | None = None, max_total_bytes: int = MAX_PULL_BYTES,
    ) -> GetMessageResult:  # fmt: skip
        """Pull at most ``max_msgs`` messages from ``offset`` on.

        The first message is returned whatever its size. There is no parameter for the consumer
        group: the store does not need it.

        Raises:
            TypeError: an argument has a wrong type.

        Source: RocketMQ ``DefaultMessageStore.getMessage``.
        """
        self._ready()
        found = None
        try:
            if (interceptor := self._interceptor) is not None and interceptor.samples_this():
                found = interceptor.pull(topic, queue_id, offset, max_msgs, tags, max_total_bytes)
            else:
                found = self._puller.get(topic, queue_id, offset, max_msgs, tags, max_total_bytes)
        finally:
            if found is None or found.status is _NO_MESSAGE:
                check_pull(topic, queue_id, offset, max_msgs, max_total_bytes)
                check_tags(tags, TagFilter)
        return found

    def message_by_offset(self, phy_offset: int) -> StoredMessage:
        """Return the message that starts at ``phy_offset``.

        Raises:
            CorruptionError: no message starts there, or its record was skipped as damaged.
        """
        self._ready()
        check_numbers(phy_offset=phy_offset)
        message = self._log.message(phy_offset)
        refuse_filler(message)
        return message

    def message_by_id(self, message_id: str) -> StoredMessage:
        """Return the message with an offset message id.

        Raises:
            IllegalMessageError: the message id is invalid.
            CorruptionError: no message starts at the phy offset in the id.
        """
        check_texts(message_id=message_id)
        return self.message_by_offset(decode_message_id(message_id)[1])

    def query_message(
        self, topic: str, key: str, max_num: int = 32,
        begin: Time | None = None, end: Time | None = None,
    ) -> QueryMessageResult:  # fmt: skip
        """Return messages of ``topic`` with ``key`` (one of KEYS, or UNIQ_KEY), in log order.

        The newest ``max_num``; ``has_more`` of the result is true if there are others. The setting
        ``max_msgs_num_batch``, if given, limits them too. ``begin`` and ``end`` limit the store
        time of each record, both included (``Time``; ``None``: unlimited). The index has hashes
        only: each record's own keys are compared, so a collision is not returned (RocketMQ returns
        it). A broker's index in ``rocksdbstore`` is searched too, as it was at the first query.

        Raises:
            TypeError: an argument has a wrong type.
            RefusedStoreError: a time is probably not in ms.
            StoreConfigError: ``begin`` is later than ``end``.
            CorruptionError, StoreIOError, UnsupportedFormatError: an index cannot be read
                completely; ``query_index_files`` uses the index in files only.
        """
        self._ready()
        if begin is None and end is None and self._interceptor is None:
            found = self._queries.fast.all_times(topic, key, max_num)
            if found is not None:
                return found
        times = query_times(topic, key, max_num, begin, end)
        if (interceptor := self._interceptor) is not None:
            interceptor.on_query(topic, key, max_num, *times)
        return self._queries.in_all(topic, key, max_num, times)

    def query_index_files(
        self, topic: str, key: str, max_num: int = 32,
        begin: Time | None = None, end: Time | None = None,
    ) -> QueryMessageResult:  # fmt: skip
        """Like ``query_message``, with the index in files only; empty without one."""
        self._ready()
        times = query_times(topic, key, max_num, begin, end)
        if (interceptor := self._interceptor) is not None:
            interceptor.on_query(topic, key, max_num, *times)
        return self._queries.in_files(topic, key, max_num, times)

    def messages_with_key(
        self, topic: str, key: str, phy_offsets: list[int]
    ) -> list[StoredMessage]:
        """Return the records at ``phy_offsets`` that are of ``topic`` and have ``key``.

        For a caller that has the offsets from another index. Expired records are left out.

        Raises:
            CorruptionError: no record starts at an offset, although the log contains it.
        """
        self._ready()
        check_texts(topic=topic, key=key)
        places = listed_numbers(phy_offsets=phy_offsets)
        return self._queries.messages_with_key(topic, key, places)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return the queue offset for ``timestamp`` (ms), within [min, max].

        This is RocketMQ's binary search: if a clock was set back, and in batch queues, messages of
        that time or later may be before that offset; ``offset_at_time`` compares the time of each.
        """
        self._ready()
        check_search(topic, queue_id, timestamp)
        if (interceptor := self._interceptor) is not None and interceptor.samples_this():
            return interceptor.number(time_question(topic, queue_id, timestamp, boundary))
        found = None
        if (reads := self._queues.fast_reads) is not None:
            found = reads.search(topic, queue_id, timestamp, boundary is _UPPER)
        if found is None:
            found = self._queues.queue(topic, queue_id).offset_by_time(timestamp, boundary)
        return found

    def offset_at_time(
        self, topic: str, queue_id: int, time: Time, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return where the messages from ``time`` on begin in a queue, by each record's store time.

        LOWER: the first message stored at or after ``time``, the max offset without one. UPPER: the
        last message stored at or before ``time``, the min offset without one. Correct even if a
        clock was set back; it reads the heads of records up to there.

        Raises:
            RefusedStoreError: the time is probably not in ms.
            StoreError: the queue cannot be read.
        """
        self._ready()
        check_queue(topic, queue_id)
        return offset_at_time(self._components, QueueKey(topic, queue_id), time, boundary)

    def time_runs(
        self, topic: str, queue_id: int, times: TimeRange, first: int, end: int
    ) -> Iterator[range]:
        """Yield the offsets of [``first``, ``end``) at which records may be of ``times``.

        A superset: ``read_topic`` compares the records that it pulls.
        """
        self._ready()
        check_queue(topic, queue_id, first=first, end=end)
        check_kind(TimeRange, "a TimeRange", times=times)
        key = QueueKey(topic, queue_id)
        return _keeping(self, time_runs(self._components, key, times, first, end))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of the queue whose record is in the log."""
        self._ready()
        if (interceptor := self._interceptor) is not None and interceptor.samples_this():
            return interceptor.number(min_offset_question(topic, queue_id))
        found = 0
        try:
            found = self._queues.queue(topic, queue_id).min_offset()
        finally:
            if not found:
                check_queue(topic, queue_id)
        return found

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of the queue; 0 if the queue does not exist."""
        self._ready()
        if (interceptor := self._interceptor) is not None and interceptor.samples_this():
            return interceptor.number(max_offset_question(topic, queue_id))
        found = 0
        try:
            found = self._queues.queue(topic, queue_id).max_offset()
        finally:
            if not found:
                check_queue(topic, queue_id)
        return found

    def min_phy_offset(self) -> int:
        """Return the phy offset at which the log starts; -1 without files.

        Source: RocketMQ ``DefaultMessageStore.getMinPhyOffset``.
        """
        return self._log.min_phy_offset()

    def max_phy_offset(self) -> int:
        """Return the phy offset at which the log ends: where the next record is appended.

        Source: RocketMQ ``DefaultMessageStore.getMaxPhyOffset``.
        """
        return self._log.max_phy_offset()

    def flushed_phy_offset(self) -> int:
        """Return the phy offset up to which the log is on disk.

        Source: RocketMQ ``DefaultMessageStore.getFlushedWhere``.
        """
        return self._log.flushed_phy_offset()

    def confirm_phy_offset(self) -> int:
        """Return the confirmed end of the log: on disk with ``SYNC_FLUSH``, otherwise its end.

        Source: RocketMQ ``DefaultMessageStore.getConfirmOffset``.
        """
        if self.config.syncs_each_put:
            return self._log.flushed_phy_offset()
        return self._log.max_phy_offset()

    def estimate_message_count(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate how many messages of the range match a filter, by their tag hashes."""
        self._ready()
        check_queue(topic, queue_id, from_offset=from_offset, to_offset=to_offset)
        check_kind(TagFilter, "a TagFilter", tags=tags)
        if (interceptor := self._interceptor) is not None and interceptor.samples_this():
            question = estimate_question(topic, queue_id, from_offset, to_offset, tags)
            return interceptor.number(question)
        queue = self._queues.queue(topic, queue_id)
        return queue.estimate_message_count(from_offset, to_offset, tags.may_match, tags.fast)

    def queue_keys(
        self, topic: str | None = None, after: QueueKey | None = None
    ) -> Iterator[QueueKey]:
        """Yield the queues (of ``topic``), in unspecified order."""
        self._ready()
        _check_walk(topic, after)
        return _keeping(self, self._queues.queues(topic, after))

    def queue_spans(
        self, topic: str | None = None, after: QueueKey | None = None
    ) -> Iterator[QueueSpan]:
        """Yield ``queue_keys`` with min and max offset; much cheaper than reading each queue's."""
        self._ready()
        _check_walk(topic, after)
        return _keeping(self, self._queues.spans(topic, after))

    def topics(self, prefix: str = "") -> Iterator[str]:
        """Yield each topic that has a queue and begins with ``prefix``, in unspecified order."""
        self._ready()
        check_texts(prefix=prefix)
        if (interceptor := self._interceptor) is not None:
            interceptor.on_list_topics(prefix)
        return _keeping(self, self._queues.topics(prefix))

    # ---- waiting for new messages

    def wait_for(
        self, topic: str, queue_id: int, offset: int, timeout: float | None = None
    ) -> bool:
        """Wait until the queue has a unit at or after ``offset``; return whether it has.

        Waits at most ``timeout`` seconds; ``None``: without limit. The queue need not exist yet. If
        the unit at ``offset`` has expired, the call does not wait. In the main thread an exception
        from a signal handler ends the wait.

        Raises:
            ReadOnlyStoreError: the store is read-only: nothing arrives.
            StoreClosedError, StoreFailedError: closed, or a failed write, also during the wait.
            NestedCallError: the thread is inside another call of the store.
        """
        check_queue(topic, queue_id, offset=offset)
        return self.wait_for_any({QueueKey(topic, queue_id): offset}, timeout)

    def wait_for_any(self, offsets: Mapping[QueueKey, int], timeout: float | None = None) -> bool:
        """Wait until one of several queues has its offset, see ``wait_for``."""
        check_seconds(timeout=timeout)
        return self._waits.wait_for_any(offsets, timeout)

    async def wait_for_async(
        self, topic: str, queue_id: int, offset: int, timeout: float | None = None
    ) -> bool:
        """Wait as ``wait_for`` does, in a task of asyncio. A cancelled wait leaves nothing."""
        check_queue(topic, queue_id, offset=offset)
        return await self.wait_for_any_async({QueueKey(topic, queue_id): offset}, timeout)

    async def wait_for_any_async(
        self, offsets: Mapping[QueueKey, int], timeout: float | None = None
    ) -> bool:
        """Wait until one of several queues has its offset, see ``wait_for_async``."""
        check_seconds(timeout=timeout)
        return await self._waits.wait_for_any_async(offsets, timeout)

    def loop_wait(self, offsets: Mapping[QueueKey, int]) -> "AbstractContextManager[LoopWait]":
        """Return a wait of the running loop: a task may await its ``future``, then check ``error``.

        Existing units do not complete it: read the queues after the block begins. Its ``wake``
        completes it too.

        Raises:
            StoreError: as for ``wait_for``.
        """
        return self._waits.loop_wait(offsets)

    def thread_wait(self, offsets: Mapping[QueueKey, int]) -> "AbstractContextManager[ThreadWait]":
        """Return a wait of the calling thread, which another thread may end with its ``wake``.

        Existing units do not end it: read the queues after the block begins.

        Raises:
            StoreError: as for ``wait_for``.
        """
        return self._waits.thread_wait(offsets)

    def add_arrival_listener(self, listener: ArrivalListener) -> ArrivalSubscription:
        """Call ``listener`` with units that become visible from now on, including light queues.

        In log order, batch by batch, in a separate thread; see ``ArrivalListener``.

        Raises:
            StoreError: as for ``wait_for``.
        """
        check_callable(listener=listener)
        self._state.check_open()
        return self._dispatcher.arrivals.add_listener(listener)

    # ---- creation, deletion, expiry and rebuilds of topics

    def create_batch_topic(self, topic: str) -> None:
        """Make a topic without queues a BatchCQ topic, durably: inner batches are put to it.

        Not needed if the broker's metadata has the topic with ``queue.type=BatchCQ``. The topic is
        one until it is deleted; if it is one already, nothing is done.

        Raises:
            IllegalMessageError: the name is invalid, or the queues are not in files: RocksDB queues
                cannot have units of several messages.
            RefusedStoreError: the topic has queues of the usual type.
            StoreError: as for ``put_message``.
        """
        check_texts(topic=topic)
        self._state.locks.check()
        self._components.batch_topics.create(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete one topic, see ``delete_topics``."""
        check_texts(topic=topic)
        self.delete_topics([topic])

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete the queues of ``topics``, durably: neither a crash nor a replay restores them.

        Their records stay in the log until they expire. A later put begins a new incarnation.
        Topics are deleted in batches of a thousand: a put to one of them waits until its batch is
        deleted; other puts continue. After a crash, whole batches are deleted and later ones
        unchanged.

        Raises:
            IllegalMessageError: a name is invalid; nothing was deleted.
            TypeError: a single name was given, whose letters would be used as topics.
            RefusedStoreError: delayed messages are delivered from one of them.
            StoreError: as for ``put_message``.
        """
        self._clean.delete_topics(topics)

    def clean_unused_topics(self, retain: Collection[str], *, dry_run: bool = True) -> list[str]:
        """Delete the topics with queues that are not in ``retain``, the broker's table of topics.

        Never deletes a light queue or a system topic. Returns the topics; with ``dry_run`` nothing
        is deleted.

        Raises:
            TypeError: a single name was given: all other topics would be deleted.
        """
        self._ready()
        return self._clean.clean_unused_topics(retain, dry_run=dry_run)

    def delete_expired_files(self, phy_offset: int) -> ExpiryReport:
        """Delete the log files that end at or before ``phy_offset``, except for the last one.

        Units and index entries of their records are deleted too, partly in the background.

        Raises:
            TypeError: ``phy_offset`` is not an integer; nothing was deleted.
            StoreError: as for ``put_message``.
        """
        check_numbers(phy_offset=phy_offset)
        return self._clean.delete_expired_files(int(phy_offset))

    def rebuild_queues(
        self,
        topic: str,
        queue_id: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> RebuildReport:
        """Rebuild one queue, or all queues of ``topic``, from the log.

        Reads the whole log twice; during the second time no thread can put, and a reader of these
        queues sees them grow. A next offset without a record is kept. ``progress`` gets phy offsets
        during the first time.

        Raises:
            CorruptionError: the log is damaged; nothing was changed.
            RefusedStoreError: the queue has units that the log would not restore.
            StoreError: as for ``put_message``.
        """
        check_texts(topic=topic)
        if queue_id is not None:
            check_numbers(queue_id=queue_id)
            queue_id = int(queue_id)
        if progress is not None:
            check_callable(progress=progress)
        self._state.locks.check()
        with self._clean.lock.entry():
            self._state.check_writable()
            report = self._components.rebuild.run(topic, queue_id, progress)
        if self._schedule is not None and topic == SCHEDULE_TOPIC:
            self._schedule.notify_all()
        return report

    def delete_files_manually(self) -> None:
        """Delete expired log files at the next checks, whatever the hour.

        Source: RocketMQ ``DefaultMessageStore.executeDeleteFilesManually``.
        """
        self._state.check_log_writable()
        self._expiry.delete_manually()
        self._expiry.run()

    # ---- checks

    def checker(self, progress: Callable[[int], None] | None = None) -> StoreCheck:
        """Return a check of everything, for the caller to run; ``progress`` gets phy offsets.

        Raises:
            RetryableDiskFullError: there is no space for units, which would be reported as missing.
        """
        if progress is not None:
            check_callable(progress=progress)
        end = self._log.max_phy_offset()  # first: all records before it get dispatched
        self._ready_for_all()
        return StoreCheck(
            self.config, self._log, end, self._queues, self._components.index,
            self._components.deleted, progress, self.report.index_left_out, self.report.notes,
        )  # fmt: skip

    def _ready_for_all(self) -> None:
        """Like ``_ready``, but refuse if queues or index lack records that were put before."""
        self._ready()
        if self._dispatcher.is_stalled:
            self._dispatcher.drain()

    def check(self) -> Iterator[CheckFinding]:
        """Check every record, unit and file, and yield the findings."""
        return self.checker().run()

    def expiring_files(self) -> tuple[DiskDemand, list[FileOutlook]]:
        """Return the disks' demand, and the log files that a manual deletion would delete now.

        Raises:
            StoreIOError: a file's status cannot be read.
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

        Compares all queues, those of ``topic``, or one. The reference is the backend that is read.

        Raises:
            RefusedStoreError: only one backend is in use: there is nothing to compare.
            RetryableDiskFullError: one backend may have a batch for which the other had no space.
            StoreIOError: a read from disk failed.
        """
        from cqstore.store.comparing.open_sides import compare_open  # noqa: PLC0415 - seldom needed

        check_optional_texts(topic=topic)
        if queue_id is not None:
            check_numbers(queue_id=queue_id)
        check_callable(progress=progress)
        self._ready_for_all()
        self._state.locks.check()
        locks = (self._clean.lock, self._dispatcher.owner, self._dispatcher.drain_lock)
        return compare_open(self._queues, topic, queue_id, locks=locks, progress=progress)

    def detached_backends(self) -> dict[str, Exception]:
        """Return the backends that failed and are unused until the next open, and their errors."""
        queues = self._queues
        return queues.detached if isinstance(queues, CombinedConsumeQueueStore) else {}


def _checked_config(
    root: object, config: StoreConfig | None, backend: str | None, recovery: object, hooks: object,
    progress: object,
) -> StoreConfig:  # fmt: skip
    """Return the settings to open with; raise an error if an argument has a wrong type."""
    check_path(root=root)
    check_kind((StoreConfig, type(None)), "a StoreConfig", config=config)
    check_optional_texts(backend=backend)
    check_kind((RecoveryOptions, type(None)), "RecoveryOptions", recovery=recovery)
    check_kind((StoreHooks, type(None)), "StoreHooks", hooks=hooks)
    check_callable(progress=progress)
    settings = config or StoreConfig()
    check_backend(settings, backend)
    return settings


def _check_walk(topic: object, after: object) -> None:
    """Raise an error if an argument of an iteration over queues has a wrong type."""
    check_optional_texts(topic=topic)
    if after is not None:
        check_kind(QueueKey, "a QueueKey", after=after)


def _keeping(store: MessageStore, found: Iterator[_T]) -> Iterator[_T]:
    """Yield the items of ``found``; ``store`` is not dropped meanwhile."""
    _ = store
    yield from found


def route_calls(store: MessageStore, putter: Puts, interceptor: ReadInterceptor | None) -> None:
    """Route puts through ``putter``, and show reads to ``interceptor``; see ``StoreComponents``."""
    store._route(putter, interceptor)  # noqa: SLF001 - the one door to it
