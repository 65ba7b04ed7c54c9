"""QueueReads: what can be asked of all queues of one store, by any thread at any time."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueSpan, QueueType
from cqstore.store.queue.units import QueueKey


class FastReads(Protocol):
    """Reads of compiled code by the name of a queue. Any thread; ``None``: ask the queue."""

    def fast_units(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> FastUnits | None:
        """Return what ``ConsumeQueue.fast_units`` does."""

    def search(
        self, topic: str, queue_id: int, timestamp: int, upper: bool,  # noqa: FBT001 - a keyword costs
    ) -> int | None:  # fmt: skip
        """Return what ``ConsumeQueue.offset_by_time`` does."""


class QueueReads(ABC):
    """What may be asked of queues, also while a batch is put. Asking writes into caches alone."""

    context: QueueStoreContext
    fast_reads: FastReads | None = None
    """A shorter way to the same answers; ``None``: there is none."""

    @abstractmethod
    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield every queue (of ``topic``) that was ever written, in an order of the backend's own.

        Queues of one topic are adjacent. ``after``: go on behind that queue, so that a caller
        can page. ``prefix``: of topics that begin so, past all others. Memory does not grow with
        the number of queues.
        """

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield what ``queues`` does with ``min_offset`` and ``max_offset`` of each."""
        yield from self.spans_of(self.queues(topic, after))

    def spans_of(self, queues: Iterable[QueueKey]) -> Iterator[QueueSpan]:
        """Yield the spans of these queues in their order, (0, 0) for one that is not there."""
        for key in queues:
            yield QueueSpan(key, *self.queue(*key).ends())

    def unit_timestamps(self, units: Iterable[tuple[QueueKey, int]]) -> Iterator[int]:
        """Yield what ``unit_timestamp`` says of each unit, in their order.

        The units are given by queue and queue offset, the offset within the ends of its queue: that
        is not asked again.
        """
        for key, queue_offset in units:
            yield self.queue(*key).unit_timestamp(queue_offset)

    def topics(self, prefix: str = "") -> Iterator[str]:
        """Yield each topic that has a queue and begins with ``prefix``, once."""
        last = None
        for topic, _ in self.queues(prefix=prefix):
            if topic != last:
                yield topic
            last = topic

    def queues_estimate(self) -> int | None:
        """Return about how many ``queues`` yields, without a pass; ``None``: unknown."""
        return None

    @abstractmethod
    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue of that name, whether there is one or not; asked after ``recover``.

        Costs less than a look-up, whatever the number of queues.

        Raises:
            StoreClosedError: the store is closed.
            IllegalMessageError: the backend can hold no queue of that name.
        """

    @property
    def units_per_file(self) -> int:
        """Return the units of one queue file: a pull never passes a multiple of it.

        On every backend, so that moving queues changes no answer; asked after ``load``.
        """
        return self.context.config.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Return the kind of ``topic``'s queues."""
        _ = topic
        return QueueType.SIMPLE

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return where the queue goes on, from what it has; the writer counts on from there."""
        return self.queue(topic, queue_id).max_offset()
