"""QueueOffsets: the offset that the next message of each queue gets.

They belong to the writer: records in the log have offsets before any queue has the unit. An offset
that is not cached here is read from the queues, so only queues with waiting units must be cached.

Source: RocketMQ ``QueueOffsetOperator``, ``RocksDBConsumeQueueOffsetTable``.
"""

from collections.abc import Collection, Iterable
from itertools import islice

from cqstore.store.errors import CorruptionError, IllegalMessageError, queue_gap
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.dispatching.topic_hold import TopicHeldError, TopicHold

Queue = tuple[str, int]
"""Topic and queue id."""
_ROOM_SHARE = 64
"""Share that is dropped in addition to the excess, so that not every batch drops some."""
_OLD_SHARE = 5


class QueueOffsets:
    """Next offsets of the queues of puts. Under the append lock, unless noted otherwise."""

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues
        self.next: dict[Queue, int] = {}
        self.batch_next: dict[Queue, int] = {}
        """Of batch queues: apart, as in RocketMQ, so that no plain message gets such an offset."""
        self._batch_topics: set[str] = set()  # followed, maybe without a queue yet
        self._hold: TopicHold | None = None

    def __len__(self) -> int:
        return len(self.next)

    def assign(self, queue: Queue) -> int:
        """Return the offset that the next message of ``queue`` gets.

        Raises:
            TopicHeldError: puts to the topic are refused for now, see ``hold``.
        """
        offset = self.next.get(queue)
        if offset is None:
            self._refuse_held(queue)
            offset = self.next[queue] = self._queues.next_offset(*queue)
        return offset

    def assign_plain(self, queue: Queue) -> int:
        """Return the offset that the next plain message of ``queue`` gets.

        Raises:
            IllegalMessageError: the topic has batch queues.
            TopicHeldError: as for ``assign``.
        """
        offset = self.assign(queue)
        if self.has_batches(queue[0]):
            del self.next[queue]
            raise not_plain(queue[0])
        return offset

    def assign_batch(self, queue: Queue) -> int:
        """Return the offset that the first message of the next inner batch of ``queue`` gets.

        Raises:
            IllegalMessageError: the topic has no batch queues.
            TopicHeldError: as for ``assign``.
        """
        offset = self.batch_next.get(queue)
        if offset is None:
            self._refuse_held(queue)
            if not self.has_batches(queue[0]):
                raise not_batch(queue[0])
            offset = self.batch_next[queue] = self._queues.next_offset(*queue)
        return offset

    def has_batches(self, topic: str) -> bool:
        """Return whether the topic is a BatchCQ topic. Any thread."""
        return self._queues.queue_type(topic) is QueueType.BATCH or topic in self._batch_topics

    def advance(self, queue: Queue, count: int = 1) -> None:
        """Consume ``count`` assigned offsets, after the log has the records."""
        self.next[queue] += count

    def check_follow(self, units: UnitBatch) -> list[int]:
        """Refuse units with offsets, if their topic is held or they would leave a gap.

        A queue without a unit may begin anywhere; an existing offset begins a new incarnation.
        Returns the next offset of each queue of ``units`` after them.

        Raises:
            TopicHeldError: puts to the topic are refused for now, see ``hold``.
            QueueGapError: units are missing before one of them.
            CorruptionError: the name of a queue is invalid.
        """
        there = [self._next_of(queue, number, units) for number, queue in enumerate(units.queues)]
        behind, gap = units.following(there)
        if gap >= 0:
            number = units.queue_index[gap]
            raise queue_gap(
                units.queues[number],
                units.phy_offset_of(gap),
                expected=behind[number],
                got=int(units.queue_offset[gap]),
            )
        return behind

    def follow(self, units: UnitBatch, next_offsets: Iterable[int]) -> None:
        """Continue at ``next_offsets``, after the log has the records of ``units``."""
        self.next.update(zip(units.queues, next_offsets, strict=True))
        for queue in units.batch_queues():
            self._batch_topics.add(queue.topic)
            self.batch_next[queue] = self.next.pop(queue)

    def hold(self, hold: TopicHold | None) -> None:
        """Assign no first offset to queues of the topics of ``hold``; ``None``: to all again.

        Offsets that are already assigned still increase until they are dropped.
        """
        self._hold = hold

    @property
    def held_topics(self) -> Collection[str]:
        """Return the topics whose queues get no first offset."""
        return self._hold.topics if self._hold is not None else ()

    def queues_of(self, topics: Collection[str]) -> list[Queue]:
        """Return the cached queues of ``topics``. Any thread.

        Held topics get no other queues meanwhile.
        """
        return [queue for queue in [*self.next, *self.batch_next] if queue[0] in topics]

    def forget(self, queues: Iterable[Queue]) -> None:
        """Drop the offsets of ``queues``: they are read from the queues again."""
        for queue in queues:
            self.next.pop(queue, None)
            if self.batch_next.pop(queue, None) is not None:
                self._batch_topics.discard(queue[0])

    def forget_all(self) -> None:
        """Drop all: they are read from the queues again, which must have every unit."""
        self.next.clear()
        self.batch_next.clear()
        self._batch_topics.clear()

    def forget_beyond(self, limit: int) -> None:
        """Drop the offsets beyond ``limit``, and a few more: they are read from the queues again.

        These must have every unit. The newest are dropped, so if more than ``limit`` queues are
        used in rotation, most remain cached. One in five of those dropped is one of the oldest,
        otherwise unused queues would stay.
        """
        excess = len(self.next) - limit + limit // _ROOM_SHARE
        for queue in [*islice(self.next, max(excess, 0) // _OLD_SHARE)]:
            del self.next[queue]
        while len(self.next) > limit - limit // _ROOM_SHARE:
            self.next.popitem()
        self.batch_next.clear()
        self._batch_topics.clear()

    def _next_of(self, queue: Queue, number: int, units: UnitBatch) -> int:
        """Return the next offset of the queue with ``number`` in ``units``."""
        known = self.next.get(queue, self.batch_next.get(queue))
        if known is not None:
            return known
        try:
            self._queues.check_topic(queue[0])
        except IllegalMessageError as exc:  # a damaged name: the CRC covers only the body
            first = units.first_of(number)
            raise CorruptionError(
                f"cannot dispatch a record: {exc.reason}", phy_offset=units.phy_offset_of(first)
            ) from exc
        self._refuse_held(queue)
        if self.has_batches(queue[0]):
            return 0  # RocketMQ's plain messages have offsets there, but no units
        return self._queues.next_offset(*queue)

    def _refuse_held(self, queue: Queue) -> None:
        if self._hold is not None and queue[0] in self._hold.topics:
            raise TopicHeldError(self._hold)


def not_plain(topic: str) -> IllegalMessageError:
    """Return the error for a plain message to a topic with batch queues."""
    return IllegalMessageError(
        f"{topic!r} is a BatchCQ topic: no consumer would get a plain message. Put an inner batch"
    )


def not_batch(topic: str) -> IllegalMessageError:
    """Return the error for an inner batch to a topic without batch queues."""
    return IllegalMessageError(
        f"an inner batch needs a BatchCQ topic: {topic!r} is not one (see create_batch_topic)"
    )
