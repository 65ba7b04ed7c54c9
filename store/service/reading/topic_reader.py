"""read_topic: the messages of a topic from all of its queues, in the order of their store times.

Lazily: in memory is at most one pull per queue, and nothing else grows with the topic.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple, Protocol

from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.reading.store_times import EARLIEST, Time, TimeRange, time_range
from cqstore.store.service.reading.time_runs import whole_run
from cqstore.store.service.results import GetMessageResult, GetMessageStatus

_BATCH = 32
_BATCH_BYTES = 1 << 20
_AT_AN_END = {
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
    GetMessageStatus.OFFSET_OVERFLOW_ONE,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
}


class TopicMessage(NamedTuple):
    """A message of a topic, with its queue and queue offset.

    The record of a message in a light queue (``%LMQ%``) contains another topic, queue and offset.
    """

    queue_id: int
    queue_offset: int
    message: StoredMessage

    @property
    def order(self) -> tuple[int, int]:
        """Return store time and phy offset."""
        return self.message.store_timestamp, self.message.phy_offset


class TopicDamage(NamedTuple):
    """Units that a reader skipped because they, or their records, are missing or damaged."""

    queue_id: int
    queue_offset: int
    units: int
    reason: str


OnDamage = Callable[[TopicDamage], object]


class ReadableStore(Protocol):
    """The methods of a store that a reader calls, see ``MessageStore``."""

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msgs: int = ...,
        tags: TagFilter | None = ..., max_total_bytes: int = ...,
    ) -> GetMessageResult:  # fmt: skip
        """Pull from a queue, see ``MessageStore.get_message``."""

    def queue_keys(
        self, topic: str | None = ..., after: QueueKey | None = ...
    ) -> Iterator[QueueKey]:
        """Yield the queues of ``topic``, or all, after the queue ``after``."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = ...
    ) -> int:
        """Return the offset for a time."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the first message."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last message."""


def read_topic(
    store: ReadableStore,
    topic: str,
    begin: Time | None = None,
    end: Time | None = None,
    *,
    queue_ids: Collection[int] | None = None,
    tags: TagFilter | None = None,
    from_offsets: Mapping[int, int] | None = None,
    batch: int = _BATCH,
    batch_bytes: int = _BATCH_BYTES,
    on_damage: OnDamage | None = None,
) -> Iterator[TopicMessage]:
    """Return the messages of ``topic`` that were stored between two times, both included.

    ``None`` is unlimited. They are sorted by store time, equal times by phy offset; those of one
    queue in queue order. This call lists the queues and reads their ends; the iterator pulls the
    messages on demand, up to those ends. The time of each record is compared, so that none is
    missed after a clock was set back; a range reads the heads of all records of the queues. After
    such a clock change messages are merged as each queue has them.

    ``queue_ids`` are the queues to read, default all. ``from_offsets`` is the lowest offset to read
    per queue. At most ``batch`` messages of a queue are in memory, and of several queues at most
    ``batch_bytes``; they are views of the log, see ``GetMessageResult``. Damaged or missing records
    are skipped and reported to ``on_damage``, also if their time is unknown. An unknown topic has
    no messages.

    Raises:
        RefusedStoreError: a time is probably not in ms.
        StoreConfigError: ``begin`` is later than ``end``.
        StoreClosedError: the store is closed, at this call or during the iteration.
        StoreError: a queue or the log cannot be read, at this call or during the iteration.
    """
    times = time_range(begin, end)
    wanted = sorted(key.queue_id for key in store.queue_keys(topic))
    queues = [
        _MergedQueue(store, topic, queue_id, times, tags, batch, batch_bytes, on_damage)
        for queue_id in wanted
        if queue_ids is None or queue_id in queue_ids
    ]
    given = from_offsets or {}
    spans = [(queue, *queue.span(given.get(queue.queue_id, 0))) for queue in queues]
    return heapq.merge(
        *(queue.messages(first, last) for queue, first, last in spans if first < last),
        key=attrgetter("order"),
    )


def last_offsets(
    store: ReadableStore, topic: str, count: int, *, queue_ids: Collection[int] | None = None
) -> dict[int, int]:
    """Return for each queue of ``topic`` where its part of the topic's last ``count`` begins.

    For ``from_offsets`` of ``read_topic``. Reads the newest message of each queue and, for each of
    the ``count``, the one before it.
    """
    begins: dict[int, int] = {}
    newest: list[tuple[int, int, int, int]] = []  # negative time and phy offset, queue id, offset
    for key in store.queue_keys(topic):
        if queue_ids is None or key.queue_id in queue_ids:
            begins[key.queue_id] = store.max_offset(topic, key.queue_id)
            _push_before(newest, store, topic, key.queue_id, begins[key.queue_id])
    left = count
    while left > 0 and newest:
        _, _, queue_id, at = heapq.heappop(newest)
        begins[queue_id] = at
        _push_before(newest, store, topic, queue_id, at)
        left -= 1
    return begins


def _push_before(
    newest: list[tuple[int, int, int, int]],
    store: ReadableStore, topic: str, queue_id: int, behind: int,
) -> None:  # fmt: skip
    """Add the last message of a queue before ``behind`` to the heap, if there is one.

    A unit with an unreadable record counts as the oldest possible one.
    """
    at = behind - 1
    if at < store.min_offset(topic, queue_id):
        return
    found = store.get_message(topic, queue_id, at, 1)
    for message, offset in zip(found.messages(), found.queue_offsets, strict=True):
        heapq.heappush(
            newest, (-message.store_timestamp, -message.phy_offset, queue_id, min(offset, at))
        )
        return
    heapq.heappush(newest, (-EARLIEST, 0, queue_id, at))


class _MergedQueue:
    """One queue that is being read."""

    def __init__(
        self, store: ReadableStore, topic: str, queue_id: int, times: TimeRange,
        tags: TagFilter | None, batch: int, batch_bytes: int, on_damage: OnDamage | None,
    ) -> None:  # fmt: skip
        self._store, self._topic, self.queue_id = store, topic, queue_id
        self._times, self._tags = times, tags
        self._batch, self._batch_bytes, self._on_damage = batch, batch_bytes, on_damage

    def span(self, minimum: int) -> tuple[int, int]:
        """Return the queue offsets to start at and to end before."""
        store, where = self._store, (self._topic, self.queue_id)
        return max(store.min_offset(*where), minimum), store.max_offset(*where)

    def messages(self, first: int, last: int) -> Iterator[TopicMessage]:
        """Yield the messages of [first, last) that were stored between the two times."""
        find = getattr(self._store, "time_runs", whole_run)  # other stores: pull all
        for run in find(self._topic, self.queue_id, self._times, first, last):
            yield from self._pulled(run.start, run.stop)

    def _pulled(self, at: int, last: int) -> Iterator[TopicMessage]:
        """Yield the messages of [at, last), which are pulled."""
        while at < last:
            found = self._store.get_message(
                self._topic,
                self.queue_id,
                at,
                min(self._batch, last - at),
                self._tags,
                self._batch_bytes,
            )
            messages = found.messages()
            for damaged in found.damaged:
                self._report(damaged.queue_offset, 1, damaged.reason)
            if found.status is GetMessageStatus.OFFSET_FOUND_NULL and found.hole is not None:
                hole = range(found.hole.start, min(found.hole.stop, last))
                self._report(hole.start, len(hole), "missing in the queue")
            for offset, message in zip(found.queue_offsets, messages, strict=True):
                if offset >= last:
                    return
                if self._times.holds(message.store_timestamp):
                    yield TopicMessage(self.queue_id, offset, message)
            if found.status in _AT_AN_END or found.next_begin_offset <= at:
                return
            at = found.next_begin_offset

    def _report(self, queue_offset: int, units: int, reason: str) -> None:
        if self._on_damage is not None:
            self._on_damage(TopicDamage(self.queue_id, queue_offset, units, reason))
