"""Putter: the checks before a put, and the put.

check → encode outside the lock → append (``Appender``) → wait as configured (``AckWaiter``).

Source: RocketMQ ``HookUtils.checkBeforePutMessage``, ``CommitLog.asyncPutMessage``,
``DefaultMessageStore.putMessages``, ``MultiDispatch``.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from cqstore.store.concurrency.future import Promised, Soon, StoreFuture, at_once
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    DiskFullError,
    IllegalMessageError,
    PropertiesTooLongError,
    StoreError,
)
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.client_batch import decode_client_batch
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import (
    CHECKPOINT_TOPIC,
    RETRY_PREFIX,
    Message,
    MessageProperty,
    SysFlag,
)
from cqstore.store.record.message_check import illegal, require_message, require_messages
from cqstore.store.record.message_copy import copy_message, with_properties
from cqstore.store.record.properties import DispatchProperties, dispatch_properties_of
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET
from cqstore.store.record.scan import ScanRules
from cqstore.store.record.topic_names import INVALID
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.runtime.meters import PutMeter
from cqstore.store.service.writing.ack_waiter import AckWaiter
from cqstore.store.service.writing.append import Appender
from cqstore.store.service.writing.batch_put import BatchPut
from cqstore.store.service.writing.batch_topics import BatchTopics
from cqstore.store.service.writing.encoded import Encoded, add_encoded
from cqstore.store.service.writing.fast_put import SAMPLED_PUTS
from cqstore.store.service.writing.light_quota import LightQuotaError
from cqstore.store.service.writing.put_checks import (
    check_client_batch,
    check_light_size,
    has_units,
    inner_batch_of,
    inner_batch_size,
    light_names,
    refuse_inner_batch,
    refuse_light_offsets,
)
from cqstore.store.service.writing.schedule_hook import ScheduleMessageHook
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)
_MAX_TOPIC_BYTES = 127
_OK = PutMessageStatus.PUT_OK
_LIGHT = MessageProperty.INNER_MULTI_DISPATCH
_LIGHT_OFFSETS = MessageProperty.INNER_MULTI_QUEUE_OFFSET
_INNER_NUM = MessageProperty.INNER_NUM
_INNER = int(SysFlag.INNER_BATCH)
_NO_TOPICS = frozenset({".", "..", CHECKPOINT_TOPIC})
"""Invalid as a name of a folder: a topic with such a name could never be moved to file queues."""
_NOT_YET = PutMessageResult(_OK)
"""Placeholder until a result comes."""


class Puts(Protocol):
    """``Putter``, or an object that intercepts its calls."""

    def put(self, message: Message, *, wait: bool = True) -> PutMessageResult:
        """Put one message; ``wait``: until disk and followers have it, as the settings require."""

    def put_later(
        self, message: Message, promised: Promised[PutMessageResult], soon: Soon = at_once
    ) -> None:
        """Put one message; ``promised`` receives the result."""

    def put_list(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put a list under one lock."""

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a client batch completely or not at all."""


def put_for_future(puts: Puts, message: Message) -> StoreFuture[PutMessageResult]:
    """Put one message; the future, which cannot be cancelled, completes with its result."""
    done = StoreFuture[PutMessageResult]()
    done.set_running_or_notify_cancel()
    puts.put_later(message, done)
    return done


class Putter:
    """Puts messages into one store. Any number of threads may call."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: Dispatcher,
        append: Appender,
        ack_waiter: AckWaiter,
        look_ahead: Callable[[], object],
        batch_topics: BatchTopics,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._pending = dispatcher.pending  # `is_full` with two frames less
        self._append = append
        self._ack_waiter = ack_waiter
        self._replicas = ack_waiter.replicas
        self._has_to_wait = ack_waiter.waits
        self._locks = dispatcher.locks
        self.schedule = ScheduleMessageHook(config, self._pending.delays, self._check_delivery)
        self._rules = EncodingRules(config, self._check_topic)
        self._has_light = config.enable_lmq and (
            config.enable_multi_dispatch or not queues.lmq_needs_multi_dispatch
        )
        self._fast = append.fast_put(config, self._rules, dispatcher, alone=not ack_waiter.waits)
        batch_rules = EncodingRules(config, self._check_name)
        self._batches = BatchPut(batch_topics, append, self._fast.encoded, batch_rules)
        self.meter = PutMeter()
        self._timed_from = 0  # appended records at which the next put is timed
        self._look_ahead = look_ahead  # see LogPrefault.wake_if_due

    # ---- one message

    def put(self, message: Message, *, wait: bool = True) -> PutMessageResult:
        """Put one message, see ``MessageStore.put_message``; ``wait``: as the settings require."""
        result = self._fast.quick(message)
        if result:
            return result
        if self._has_to_wait:
            message = _copied(message)  # its properties determine the wait
        wait = wait and self._is_awaited(message)
        return self._put(message, wait=wait, eligible=result is None)

    def _put(self, message: Message, *, wait: bool, eligible: bool) -> PutMessageResult:
        """Put one message, and do other due work; ``eligible``: the fast path may take it.

        If puts wait, it is a copy; ``wait``: for disk and followers.
        """
        self._look_ahead()
        started = 0.0
        if self._has_to_wait:
            self._locks.check_dispatch()
        if self._log.appended_records >= self._timed_from:
            started = self._start_timing()
        if self._replicas is not None and (refused := self._refuse_without_replicas(message)):
            return refused
        result = (self._fast.one(message) if eligible else None) or self._put_any(message)
        if result.appended is None:
            return result
        if wait or len(self._pending.units) >= self._dispatcher.full_at:
            result = self._wait_and_dispatch([result], wait=wait)[0]
        if started:
            self.meter.seconds.observe(time.perf_counter() - started)
        return result

    def _start_timing(self) -> float:
        """Return when the put began."""
        self._timed_from = 0 if self._has_to_wait else self._log.appended_records + SAMPLED_PUTS
        return time.perf_counter()

    def _put_any(self, message: Message) -> PutMessageResult:
        """Put a message that need not be plain."""
        require_message(message)
        try:
            message = self.schedule.handle(copy_message(message))
            properties = message.properties
            if _LIGHT in properties or message.sys_flag & _INNER or _INNER_NUM in properties:
                if size := inner_batch_size(message):
                    result = self._batches.put(message, size)
                    self.meter.count_fallback()
                    return result
                if self._goes_to_light(message):
                    return self._put_light(message)
                refuse_light_offsets(message)
            records = self._fast.encoded()
            add_encoded(records, message, self._rules)
        except (DiskFullError, IllegalMessageError) as exc:
            return self._refused(exc)
        except (TypeError, AttributeError) as exc:
            return self._refused(illegal(message, exc))
        results = [_NOT_YET]
        self._append_all(records, [0], results, whole=False)
        if results[0].appended is not None:
            self.schedule.appended(message)
        return results[0]

    def put_later(
        self, message: Message, promised: Promised[PutMessageResult], soon: Soon = at_once
    ) -> None:
        """Put one message; ``promised`` is completed when its waits are over, maybe at once.

        ``soon`` triggers the sync for waiting puts.

        Raises:
            StoreError: as for ``put``; ``promised`` receives nothing.
        """
        if not self._has_to_wait:
            promised.set_result(self.put(message))
            return
        message = _copied(message)
        awaited = self._is_awaited(message)
        result = self._put(message, wait=False, eligible=True)
        if result.appended is None or not awaited:
            promised.set_result(result)
        else:
            self._ack_waiter.later(result, promised, self.meter.not_ok, soon)

    # ---- several messages

    def put_list(self, messages: Sequence[Message], *, wait: bool = True) -> list[PutMessageResult]:
        """Put a list under one lock, see ``MessageStore.put_messages``.

        ``messages`` is the caller's own copy: it is iterated more than once. ``wait``: for disk and
        followers, as the settings require; without it they are put whatever followers there are.
        """
        if self._has_to_wait:
            self._locks.check_dispatch()
            messages = [*map(_copied, messages)]
        if wait and self._replicas is not None and self._replicas.refusal():
            require_messages(messages)
            return [self.put(message) for message in messages]  # some may not require replicas
        started = time.perf_counter()
        self._look_ahead()
        awaited = wait and any(map(self._is_awaited, messages))
        done = self._fast.several(messages) or self._put_each(messages)
        done = self._wait_and_dispatch(done, wait=awaited)
        self.meter.list_seconds.observe(time.perf_counter() - started)
        return done

    def _put_each(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put messages of which any may be refused or belong to light queues."""
        require_messages(messages)
        results = [_NOT_YET] * len(messages)
        places: list[int] = []
        scheduled: list[tuple[int, Message]] = []
        records = self._fast.encoded()
        for place, given in enumerate(messages):
            message = given
            try:
                message = copy_message(given)
                delayed = self.schedule.handle(message)
                if delayed is not message:
                    scheduled.append((place, delayed))
                properties = message.properties
                if delayed is not message or not (
                    _LIGHT in properties or message.sys_flag & _INNER or _INNER_NUM in properties
                ):
                    add_encoded(records, delayed, self._rules)
                    places.append(place)
                    continue
            except IllegalMessageError as exc:
                results[place] = self._refused(exc)
                continue
            except (TypeError, AttributeError) as exc:
                results[place] = self._refused(illegal(message, exc))
                continue
            # Rare, and encoded under the lock: earlier messages are appended first.
            self._append_all(records, places, results, whole=False)
            records, places = self._fast.encoded(), []
            results[place] = self.put(message)
        self._append_all(records, places, results, whole=False)
        for place, delayed in scheduled:
            if results[place].appended is not None:
                self.schedule.appended(delayed)
        return results

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a client batch completely or not at all, see ``MessageStore.put_client_batch``."""
        if self._has_to_wait:
            self._locks.check_dispatch()
        require_message(batch, "batch")
        batch = copy_message(batch)
        if self._replicas is not None and (refused := self._refuse_without_replicas(batch)):
            return [refused]
        started = time.perf_counter()
        self._look_ahead()
        awaited = self._is_awaited(batch)
        try:
            check_client_batch(batch, self._config.max_message_size)
            if self._batches.topics.covers(batch.topic):
                return [self.put(inner_batch_of(batch))]
            done = self._fast.batch(batch) or self._put_whole(decode_client_batch(batch))
        except IllegalMessageError as exc:
            return [self._refused(exc)]
        done = self._wait_and_dispatch(done, wait=awaited)
        self.meter.list_seconds.observe(time.perf_counter() - started)
        return done

    def _put_whole(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put all messages or none: they are appended together."""
        for message in messages:
            self.schedule.refuse(message)
            refuse_inner_batch(message)
            refuse_light_offsets(message)
        records = self._fast.encoded()
        for message in messages:
            add_encoded(records, message, self._rules)
        results = [_NOT_YET] * len(messages)
        self._append_all(records, range(len(messages)), results, whole=True)
        return results

    def _append_all(
        self,
        records: Encoded,
        places: Sequence[int],
        results: list[PutMessageResult],
        *,
        whole: bool,
    ) -> None:
        """Append ``records`` under one lock; ``results[places[i]]`` is the result of record i."""
        at, count = 0, len(records)
        while at < count:  # once, except for a full disk or a record larger than a file
            try:
                done = self._append.encoded(records, whole=whole)
            except (DiskFullError, IllegalMessageError) as exc:  # nothing was appended
                one = isinstance(exc, IllegalMessageError) and not whole
                out = 1 if one else count - at
                for place in places[at : at + out]:
                    results[place] = self._refused(exc)
                records.skip(out)
                at += out
                continue
            self.meter.count_fallback(len(done))
            for place, result in zip(places[at:], done, strict=False):
                results[place] = result
            at += len(done)

    def append_raw(self, phy_offset: int, data: bytes) -> int:
        """Append bytes of another store's log, see ``MessageStore.append_to_commit_log``."""
        data = data if type(data) is bytes else bytes(memoryview(data))
        rules = ScanRules(self._config.check_crc_on_recover, self._config.force_verify_prop_crc)
        if self._dispatcher.is_stalled:
            self._dispatcher.drain()
        self._look_ahead()
        if self._has_to_wait:
            self._locks.check_dispatch()
        end = self._append.raw(phy_offset, data, rules)
        if self._ack_waiter.sync:
            self._ack_waiter.is_durable(end)
        if self._dispatcher.is_full:
            self._dispatcher.drain_unless_busy()
        return end

    # ---- light queues

    def _goes_to_light(self, message: Message) -> bool:
        names = message.properties.get(_LIGHT, "")
        return bool(self._has_light and names.strip() and has_units(message))

    def _put_light(self, message: Message) -> PutMessageResult:
        """Put a message into its own queue and into its light queues.

        Their offsets are among the properties, so it is encoded under the lock. A list that
        RocketMQ could not parse again is refused.
        """
        names = light_names(message, self._queues.check_topic)
        records = self._fast.encoded()

        def encode(offsets: Sequence[int]) -> DispatchProperties:
            properties = _with_offsets(message.properties, offsets)
            if records.next_bytes:  # encoded before, while the topic was held
                records.skip(1)
            add_encoded(records, with_properties(message, properties), self._rules)
            check_light_size(records.next_bytes, self._config.max_message_size)
            return dispatch_properties_of(properties)

        try:
            result = self._append.light(message.topic, names, records, encode)
        except PropertiesTooLongError as exc:  # RocketMQ's status for this step
            return self._refused(IllegalMessageError(exc.reason))
        except (DiskFullError, IllegalMessageError) as exc:
            return self._refused(exc)
        self.meter.count_fallback()
        return result

    # ---- before and after

    def _check_delivery(self, message: Message) -> None:
        """Refuse a delayed message now that would be refused when it is due.

        Raises:
            PropertiesTooLongError, IllegalMessageError: it would be refused.
        """
        refuse_inner_batch(message)
        if not self._goes_to_light(message):
            refuse_light_offsets(message)
            self._rules.learnt(message)
            return
        names = light_names(message, self._queues.check_topic)
        records = self._fast.encoded()
        properties = _with_offsets(message.properties, [MAX_QUEUE_OFFSET] * len(names))
        add_encoded(records, with_properties(message, properties), self._rules)
        check_light_size(records.next_bytes, self._config.max_message_size)

    def _check_topic(self, topic: str) -> None:
        """Refuse a topic that cannot have plain messages; called once per topic."""
        self._check_name(topic)
        self._batches.topics.refuse_plain(topic)

    def _check_name(self, topic: str) -> None:
        """Refuse a topic that log or queues do not support."""
        if not topic:
            raise IllegalMessageError("the topic is empty")
        size = len(topic.encode("utf-8", "surrogatepass"))
        if size > _MAX_TOPIC_BYTES and not topic.startswith(RETRY_PREFIX):
            raise IllegalMessageError(f"topic of {size} bytes, at most {_MAX_TOPIC_BYTES}")
        if topic in _NO_TOPICS:
            raise IllegalMessageError(f"invalid topic name {topic!r}: the name is reserved")
        if INVALID.search(topic):
            raise IllegalMessageError(
                f"invalid topic name {topic!r}: '/', blanks and control characters are not allowed"
            )
        self._queues.check_topic(topic)

    def _wait_and_dispatch(
        self, results: list[PutMessageResult], *, wait: bool
    ) -> list[PutMessageResult]:
        """Wait and dispatch as configured, after the lock is released."""
        end = 0
        if wait:
            end = max((r.phy_offset + r.appended.size for r in results if r.appended), default=0)
        if end and (late := self._ack_waiter.wait(end)) is not _OK:
            results = [r._replace(status=late) if r.appended else r for r in results]
            self.meter.not_ok(late, sum(result.ok for result in results))
        if self._dispatcher.is_full:
            self._dispatcher.drain_unless_busy()
        return results

    def _is_awaited(self, message: Message) -> bool:
        """Return whether a put of ``message`` waits; called first, as its properties may change."""
        if not self._has_to_wait:
            return False
        try:
            return _waits(message.properties)
        except (TypeError, AttributeError):
            return True  # not a message: reported later

    def _refuse_without_replicas(self, message: Message) -> PutMessageResult | None:
        """Refuse a message whose producer waits for replicas while too few are in sync."""
        lacking = "" if self._replicas is None else self._replicas.refusal()
        try:
            if not (lacking and _waits(message.properties)):
                return None
        except (TypeError, AttributeError):
            return None  # not a message: reported later
        status = PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        self.meter.not_ok(status)
        return PutMessageResult(status, reason=lacking)

    def _refused(self, exc: StoreError) -> PutMessageResult:
        status = status_of(exc)
        if status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            _LOG.error("put refused: %s", exc)
        self.meter.not_ok(status)
        return PutMessageResult(status, reason=str(exc))


def _copied(message: Message) -> Message:
    """Return a copy; or ``message`` if it cannot be copied: that is reported later."""
    try:
        return copy_message(message)
    except (TypeError, AttributeError):
        return message


def status_of(exc: StoreError) -> PutMessageStatus:
    """Return the status for a put that ``exc`` refuses."""
    if isinstance(exc, PropertiesTooLongError):
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    if isinstance(exc, LightQuotaError):
        return PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    if isinstance(exc, DiskFullError):
        return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    return PutMessageStatus.MESSAGE_ILLEGAL


def _waits(properties: dict[str, str]) -> bool:
    """Return whether the producer waits for disk and followers; a property can disable it."""
    value = properties.get(MessageProperty.WAIT)
    return value is None or value.lower() == "true"


def _with_offsets(properties: dict[str, str], offsets: Sequence[int]) -> dict[str, str]:
    return {**properties, _LIGHT_OFFSETS: ",".join(map(str, offsets))}
