"""QueueOffsets: the offset that the next message of each queue gets.

They belong to the writer: records of the log have theirs before any queue has the unit. What is not
kept here is read from the queues, so only those that have units waiting must be.

Source: RocketMQ ``QueueOffsetOperator``, ``RocksDBConsumeQueueOffsetTable``.
"""

from collections.abc import Collection, Iterable
from itertools import islice

from cqstore.store.errors import CorruptionError, IllegalMessageError, QueueGapError
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.dispatching.topic_hold import TopicHeldError, TopicHold

Queue = tuple[str, int]
"""Topic and queue id."""
_ROOM_SHARE = 64
"""So much more is forgotten than has to be: not every batch should forget."""
_OLD_SHARE = 5


class QueueOffsets:
    """Next offsets of the queues that are put to. Under the append lock, unless noted otherwise."""

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues
        self.next: dict[Queue, int] = {}
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

    def advance(self, queue: Queue, count: int = 1) -> None:
        """Take ``count`` offsets that were assigned, after the log has the records."""
        self.next[queue] += count

    def check_follow(self, units: UnitBatch) -> list[int]:
        """Refuse units that come with their offsets, if one is held or would leave a gap.

        A queue without a unit may begin anywhere; an offset that was there begins a new
        incarnation. Returns the next offset of each queue of ``units`` behind them.

        Raises:
            TopicHeldError: puts to the topic are refused for now, see ``hold``.
            QueueGapError: units are missing before one of them.
            CorruptionError: no queue could have the name of one.
        """
        there = [self._next_of(queue, number, units) for number, queue in enumerate(units.queues)]
        behind, gap = units.following(there)
        if gap >= 0:
            number = units.queue_index[gap]
            topic, queue_id = units.queues[number]
            raise QueueGapError(
                f"queue {queue_id} of topic {topic!r}: units are missing before the next record",
                phy_offset=units.phy_offset_of(gap),
                expected=f"queue offset {behind[number]}",
                got=f"queue offset {units.queue_offset[gap]}",
            )  # fmt: skip
        return behind

    def follow(self, queues: Iterable[Queue], next_offsets: Iterable[int]) -> None:
        """Go on at ``next_offsets``, after the log has the records that came with theirs."""
        self.next.update(zip(queues, next_offsets, strict=True))

    def hold(self, hold: TopicHold | None) -> None:
        """Assign no first offset to queues of the topics of ``hold``; ``None``: to all again.

        Offsets that are assigned already still count up until they are forgotten.
        """
        self._hold = hold

    @property
    def held_topics(self) -> Collection[str]:
        """Return the topics to whose queues no first offset is assigned."""
        return self._hold.topics if self._hold is not None else ()

    def queues_of(self, topics: Collection[str]) -> list[Queue]:
        """Return the queues of ``topics`` that are kept here. Any thread may ask.

        Held topics get no others meanwhile.
        """
        return [queue for queue in [*self.next] if queue[0] in topics]

    def forget(self, queues: Iterable[Queue]) -> None:
        """Forget the offsets of ``queues``: they are read from the queues again."""
        for queue in queues:
            self.next.pop(queue, None)

    def forget_all(self) -> None:
        """Forget all: they are read from the queues again, which must have every unit."""
        self.next.clear()

    def forget_beyond(self, limit: int) -> None:
        """Forget those beyond ``limit``, and a few: they are read from the queues again.

        These must have every unit. The newest go, so queues that are put to in turn, more than
        ``limit``, find most of these here. One in five that go is of the oldest, else queues that
        live no more would stay.
        """
        excess = len(self.next) - limit + limit // _ROOM_SHARE
        for queue in [*islice(self.next, max(excess, 0) // _OLD_SHARE)]:
            del self.next[queue]
        while len(self.next) > limit - limit // _ROOM_SHARE:
            self.next.popitem()

    def _next_of(self, queue: Queue, number: int, units: UnitBatch) -> int:
        """Return the next offset of the queue of ``number`` in ``units``."""
        known = self.next.get(queue)
        if known is not None:
            return known
        try:
            self._queues.check_topic(queue[0])
        except IllegalMessageError as exc:  # a damaged name: the CRC is the body's alone
            first = units.first_of(number)
            raise CorruptionError(
                f"cannot dispatch a record: {exc.reason}", phy_offset=units.phy_offset_of(first)
            ) from exc
        self._refuse_held(queue)
        return self._queues.next_offset(*queue)

    def _refuse_held(self, queue: Queue) -> None:
        if self._hold is not None and queue[0] in self._hold.topics:
            raise TopicHeldError(self._hold)
