"""LevelDelivery: delivers the due messages of one delay level, in the order of its queue.

Source: RocketMQ ``ScheduleMessageService.DeliverDelayedMessageTimerTask``.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.progress import noop
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import BlockStop
from cqstore.store.record.decoder import StoredMessage, refuse_filler
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.service.dispatching.delay import deliver_time
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.scheduling.time_up import message_time_up

_LOG = StoreLogger(__name__)
MAX_BATCH = 256
"""Messages per put: the maximum of duplicates if the process is killed during a put."""
_MAX_BATCH_BYTES = 1 << 20
RETRY_MS = 1_000
"""Interval before the next attempt of a refused delivery, for example on a full disk."""
_NEVER_TAKEN = {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}


class ListPut(Protocol):
    """Puts a list, see ``Putter.put_list``."""

    def __call__(self, messages: Sequence[Message], /) -> list[PutMessageResult]:
        """Put ``messages``, without waiting for disk or followers."""


class DelayLevelFigures(NamedTuple):
    """Progress of one delay level."""

    level: int
    """Counted from 1."""
    delivered: int
    """Messages that were put to their own topics since the store was opened."""
    failures: int
    """Messages that could not be delivered, and will not be."""
    offset: int
    """Queue offset of the next message to deliver."""
    max_offset: int
    """End of the level's queue.

    Source of both: RocketMQ ``ScheduleMessageService.buildRunningStats``.
    """
    lag_ms: int | None
    """How long the first waiting message is overdue; 0: it is not due, or none waits.

    ``None``: it cannot be read.
    """

    @property
    def waiting(self) -> int:
        """Return how many messages wait, including those that are not due."""
        return max(self.max_offset - self.offset, 0)


class _Due(NamedTuple):
    """Due messages of a level, and the position after them."""

    messages: list[Message]
    places: list[tuple[int, int]]
    """Queue offset of each, and its due time, ms."""
    next_offset: int
    """After them, and after messages that cannot be delivered."""
    next_look: int
    """Due time of the unit at ``next_offset``, ms."""


class LevelDelivery:
    """Delivers one level.

    One thread delivers; any thread sets ``is_noted`` and calls ``figures``.
    """

    def __init__(
        self, level: int, delay_ms: int, log: CommitLog, queues: ConsumeQueueStore, put: ListPut,
        on_delivered: Callable[[int], object] = noop,
    ) -> None:  # fmt: skip
        """``on_delivered`` is called with the due time of a message, ms, once it has been put."""
        self.level = level
        self._delay_ms = delay_ms
        self._log, self._queues, self._put = log, queues, put
        self._on_delivered = on_delivered
        self.next_offset = 0
        """Queue offset of the first message that is not delivered."""
        self.due: int | None = None
        """Time of the next check, ms since the epoch; ``None``: nothing waits."""
        self.is_noted = False
        """Whether there was an append since the last check, if ``due`` is ``None``."""
        self.delivered = 0
        """Messages that were put to their own topics."""
        self.failures = 0
        """Messages that could not be delivered, and will not be."""

    @property
    def _queue(self) -> ConsumeQueue:
        return self._queues.queue(SCHEDULE_TOPIC, self.level - 1)

    def end(self) -> int:
        """Return the queue offset after the last message of the level."""
        return self._queue.max_offset()

    def begin(self, offset: int | None) -> None:
        """Continue at ``offset``, within the queue; ``None``: at its begin.

        Source: RocketMQ ``ScheduleMessageService.correctDelayOffset``.
        """
        low, high = self._queue.ends()
        self.next_offset = low if offset is None else min(max(offset, low), high)
        if offset is not None and offset != self.next_offset:
            _LOG.warning(
                "delay level %d continues at queue offset %d, not at %d: its queue is [%d, %d)",
                self.level, self.next_offset, offset, low, high,
            )  # fmt: skip
        self.is_noted = self.next_offset < high

    def figures(self, now: int) -> DelayLevelFigures | None:
        """Return the progress of the level at ``now``, ms; ``None``: it never had a message.

        Units that wait to be dispatched are not in its queue, as in any other.
        """
        low, high = self._queue.ends()
        if not high:
            return None
        at = max(self.next_offset, low)
        lag = self._overdue(at, high, now) if at < high else 0
        return DelayLevelFigures(self.level, self.delivered, self.failures, at, high, lag)

    def _overdue(self, at: int, high: int, now: int) -> int | None:
        """Return how long the unit at ``at`` is overdue, ms; ``None``: it cannot be read."""
        queue = self._queue
        try:
            row = next(queue.read_units_below(high, at, 1).rows(), None)
            if row is None:
                return None
            phy_offset, size, tags_code = row
            due = self._due_time(queue.resolve_tags_code(tags_code), phy_offset, size, now)
        except StoreError:
            return None
        return max(now - due, 0)

    def is_due(self, now: int) -> bool:
        """Return whether to check at ``now``, ms: also if the clock was set back meanwhile."""
        if self.due is None:
            return self.is_noted
        return not now < self.due <= now + max(self._delay_ms, RETRY_MS)

    def deliver(self, now: int) -> None:
        """Deliver a batch of messages due at ``now``, ms; ``due`` is the time of the next check.

        Units that were appended before must be dispatched.

        Raises:
            StoreError: queue or log cannot be read, or the store accepts no more puts.
        """
        self.is_noted = False
        queue = self._queue
        low, high = queue.ends()
        if self.next_offset < low:
            _LOG.error(
                "%d messages of delay level %d expired before they were delivered",
                low - self.next_offset, self.level,
            )  # fmt: skip
            self.next_offset = low
        if self.next_offset >= high:  # after the end: the queue is being rebuilt
            self.due = None if self.next_offset == high else now + RETRY_MS
            return
        found = self._find(queue, high, now)
        if self._put_all(found):
            self.next_offset, self.due = found.next_offset, found.next_look
        else:
            self.due = now + RETRY_MS

    def _put_all(self, found: _Due) -> bool:
        """Put the due messages; return False if a message must be put again later."""
        if not found.messages:
            return True
        results = self._put(found.messages)
        for place, message, result in zip(found.places, found.messages, results, strict=True):
            offset, due = place
            if result.appended is not None:
                self.delivered += 1
                self._on_delivered(due)
            elif result.status in _NEVER_TAKEN:
                self._pass_over(
                    offset, f"topic {message.topic!r} refuses the message: {result.reason}"
                )
            else:
                _LOG.warning(
                    "delay level %d waits at queue offset %d: %s", self.level, offset, result
                )
                self.next_offset = offset
                return False
        return True

    def _find(self, queue: ConsumeQueue, high: int, now: int) -> _Due:
        """Read units until one is not due, or a batch is full."""
        block = queue.read_units_below(high, self.next_offset, MAX_BATCH)
        messages: list[Message] = []
        places: list[tuple[int, int]] = []
        at, left = self.next_offset, _MAX_BATCH_BYTES
        for phy_offset, size, tags_code in block.rows():
            due = self._due_time(queue.resolve_tags_code(tags_code), phy_offset, size, now)
            if due > now:
                return _Due(messages, places, at, due)
            if left <= 0:
                return _Due(messages, places, at, now)
            try:
                messages.append(message_time_up(self._stored(phy_offset)))
                places.append((at, due))
            except CorruptionError as exc:
                self._pass_over(at, str(exc))
            left -= size
            at += 1
        if block.stop is BlockStop.HOLE and block.hole is not None:
            self._pass_over(at, f"units up to {block.hole.stop} are missing")
            at = block.hole.stop
        gone = at == self.next_offset  # its queue is being rebuilt
        return _Due(messages, places, at, now + RETRY_MS if gone else now)

    def _due_time(self, tags_code: int | None, phy_offset: int, size: int, now: int) -> int:
        """Return when a unit is due; now, if the clock was set back to before its put.

        Source: RocketMQ ``correctDeliverTimestamp``.
        """
        due = deliver_time(tags_code, self._delay_ms, self._log, phy_offset, size)
        return now if due > now + self._delay_ms else due

    def _stored(self, phy_offset: int) -> StoredMessage:
        message = self._log.message(phy_offset)
        refuse_filler(message)
        message.check_body()  # its copy would have its own checksum
        return message

    def _pass_over(self, offset: int, reason: str) -> None:
        self.failures += 1
        _LOG.error("message %d of delay level %d is not delivered: %s", offset, self.level, reason)
