"""QueueReads: what can be asked of all queues of one store, by any thread at any time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from store.queue.context import QueueStoreContext
from store.queue.estimate import MessageFilter, estimate
from store.queue.facts import QueueSpan, QueueType
from store.queue.time_search import BoundaryType, search_offset
from store.queue.units import CqUnit, QueueKey, UnitBlock

_ITERATE_UNITS = 1024


class QueueReads(ABC):
    """The questions, also while a batch is being put. Asking never writes, save into caches."""

    context: QueueStoreContext

    @abstractmethod
    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield every queue (of ``topic``) that was ever written, in an order of the backend's own.

        Queues of one topic stand together. ``after``: go on behind that queue, so that a caller
        can page. ``prefix``: of topics that begin so, past all others. Memory does not grow with
        the number of queues.
        """

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield what ``queues`` does with ``min_offset`` and ``max_offset`` of each."""
        for key in self.queues(topic, after):
            yield QueueSpan(key, self.min_offset(*key), self.max_offset(*key))

    def topics(self, prefix: str = "") -> Iterator[str]:
        """Yield each topic that has a queue and begins with ``prefix``, once."""
        last = None
        for topic, _ in self.queues(prefix=prefix):
            if topic != last:
                yield topic
            last = topic

    @abstractmethod
    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset behind the last unit; 0 for an unknown queue."""

    @abstractmethod
    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first unit whose record is in the log.

        ``max_offset`` if every record has expired; 0 for an unknown queue. Pre-blank units of a
        file do not count.
        """

    @abstractmethod
    def read_units(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Return at most ``max_count`` consecutive units from ``queue_offset`` on.

        Empty with ``BlockStop.END`` at or behind ``max_offset`` or below 0, and for unknown
        queues. A unit that should exist and does not ends the block with ``BlockStop.HOLE`` and
        its range; the block is empty if the hole begins at ``queue_offset``. Units of expired
        records may be returned as long as they are there: ask ``min_offset``.
        """

    @abstractmethod
    def unit_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time, ms, of the record of one unit; -1 without unit or record."""

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

    def resolve_tags_code(self, topic: str, queue_id: int, tags_code: int) -> int | None:
        """Return the tags code behind an extension address, other codes as they are.

        ``None``: the address leads nowhere.
        """
        _ = topic, queue_id
        return tags_code

    def iterate(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[CqUnit]:
        """Yield the units from ``queue_offset`` to the end or to the first hole.

        Batch queues begin with the unit that holds ``queue_offset``.
        """
        while True:
            block = self.read_units(topic, queue_id, queue_offset, _ITERATE_UNITS)
            for offset, (phy_offset, size, code) in enumerate(block.rows(), queue_offset):
                tags_code = self.resolve_tags_code(topic, queue_id, code)
                yield CqUnit(offset, phy_offset, size, tags_code)
            queue_offset += block.count
            if block.count < _ITERATE_UNITS:
                return

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
    ) -> int:
        """Return the offset that ``timestamp`` (ms) leads to, always within [min, max].

        LOWER: the first unit stored at or after it, ``max_offset`` if there is none. UPPER: the
        last unit stored at or before it, ``min_offset`` if there is none. 0 for an empty queue.
        """
        return search_offset(
            self.min_offset(topic, queue_id),
            self.max_offset(topic, queue_id),
            timestamp,
            boundary,
            lambda offset: self.unit_timestamp(topic, queue_id, offset),
        )

    def estimate_message_count(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, matches: MessageFilter
    ) -> int:
        """Estimate how many units of [from_offset, to_offset) ``matches`` lets through.

        The range is first cut to [min, max]. Exact as long as fewer than
        ``max_consume_queue_scan`` units are scanned and at most ``sample_count_threshold`` match.
        """
        start = max(from_offset, self.min_offset(topic, queue_id))
        end = min(to_offset, self.max_offset(topic, queue_id))
        if start >= end:
            return 0
        config = self.context.config
        return estimate(
            self.iterate(topic, queue_id, start),
            end - start,
            matches,
            config.max_consume_queue_scan,
            config.sample_count_threshold,
        )

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return where the queue goes on, from what it has; the writer counts on from there."""
        return self.max_offset(topic, queue_id)
