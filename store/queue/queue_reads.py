"""QueueReads: reads of all queues of one store, by any thread at any time."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueSpan, QueueType
from cqstore.store.queue.units import QueueKey

QueueEnd = tuple[QueueKey, int]
"""A queue and its max offset."""


class FastReads(Protocol):
    """Reads of compiled code by the name of a queue. Any thread; ``None``: use the queue."""

    def fast_units(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> FastUnits | None:
        """Return the result of ``ConsumeQueue.fast_units``."""

    def search(
        self, topic: str, queue_id: int, timestamp: int, upper: bool,  # noqa: FBT001 - a keyword costs
    ) -> int | None:  # fmt: skip
        """Return the result of ``ConsumeQueue.offset_by_time``."""


class QueueReads(ABC):
    """Reads of queues, also while a batch is put. Reads write to caches only."""

    context: QueueStoreContext
    fast_reads: FastReads | None = None
    """A faster path to the same results; ``None``: there is none."""

    @abstractmethod
    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield every queue (of ``topic``) that was ever written, in an order of the backend.

        Queues of one topic are adjacent. ``after``: continue after that queue, for paging.
        ``prefix``: only topics that begin with it; others are skipped without reading them. Memory
        does not grow with the number of queues.
        """

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield the result of ``queues`` with ``min_offset`` and ``max_offset`` of each."""
        yield from self.spans_of(self.queues(topic, after))

    def spans_of(self, queues: Iterable[QueueKey]) -> Iterator[QueueSpan]:
        """Yield the spans of these queues in their order, (0, 0) for a missing queue."""
        for key in queues:
            yield QueueSpan(key, *self.queue(*key).ends())

    def queue_ends(self, queues: Iterable[QueueKey] | None = None) -> Iterator[QueueEnd]:
        """Yield these queues, by default all, with their max offsets; 0 for a missing queue."""
        for key in self.queues() if queues is None else queues:
            yield key, self.queue(*key).max_offset()

    def unit_timestamps(self, units: Iterable[tuple[QueueKey, int]]) -> Iterator[int]:
        """Yield the store time of each unit, as ``unit_timestamp`` does, in their order.

        Units are given by queue and queue offset. The offset must be within the ends of its queue,
        which is not checked.
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
        """Return the approximate number of ``queues`` without an iteration; ``None``: unknown."""
        return None

    @abstractmethod
    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue with that name, whether or not it exists; called after ``recover``.

        Cheaper than a lookup, for any number of queues.

        Raises:
            StoreClosedError: the store is closed.
            IllegalMessageError: the backend does not support a queue with that name.
        """

    @property
    def units_per_file(self) -> int:
        """Return the units per queue file: a pull never crosses a multiple of it.

        The same on every backend, so that moving queues changes no result; called after ``load``.
        """
        return self.context.config.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Return the type of ``topic``'s queues."""
        _ = topic
        return QueueType.SIMPLE

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of the queue from its units; the writer counts from there."""
        return self.queue(topic, queue_id).max_offset()
