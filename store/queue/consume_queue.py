"""ConsumeQueue: one queue of a store; all readers of a queue, on any thread, use this class.

Source: RocketMQ ``ConsumeQueueInterface``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from cqstore.store.queue import _estimate
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.estimate import MessageFilter
from cqstore.store.queue.facts import UnitLocation
from cqstore.store.queue.time_search import BoundaryType, search_offset
from cqstore.store.queue.units import BlockStop, CqUnit, QueueKey, UnitBlock

_ITERATE_UNITS = 1024
FastUnits = tuple[int, int, bytes, int]
"""Min and max offset of a queue, packed units, and the bytes per unit (20 or 28)."""


class PulledUnits(NamedTuple):
    """The result of a pull from a queue: its ends, and units."""

    min_offset: int
    max_offset: int
    block: UnitBlock | None
    """Units in [min, max), as from ``read_units``; empty if the pull starts outside.

    ``None``: a batch queue, whose units are not addressed by offset: use ``iterate``.
    """


class ConsumeQueue(ABC):
    """The queue of one topic and queue id, as ``ConsumeQueueStore.queue`` returns it.

    It represents the name, not one incarnation: each call reads the queue that has the name at that
    time. A queue that was never written is empty, and has units once they are dispatched. After its
    topic was deleted and written again, only the new incarnation is read, also by objects that were
    created before. So an object may be kept for any time, or created for each call: it holds no
    file, no lock and no data.

    Any thread may read, several at once. Reading never writes, except into caches. Once the store
    is closed, every method raises ``StoreClosedError``.
    """

    __slots__ = ("context", "queue_id", "topic")

    context: QueueStoreContext
    topic: str
    queue_id: int

    @property
    def key(self) -> QueueKey:
        """Return the queue's name."""
        return QueueKey(self.topic, self.queue_id)

    @abstractmethod
    def max_offset(self) -> int:
        """Return the queue offset after the last unit; 0 for an unknown queue."""

    def min_offset(self) -> int:
        """Return the offset of the first unit whose record is in the log.

        ``max_offset`` if every record has expired; 0 for an unknown queue. Pre-blank units of a
        file do not count.
        """
        return self.ends()[0]

    @abstractmethod
    def ends(self) -> tuple[int, int]:
        """Return ``min_offset`` and ``max_offset`` of one moment, the first never larger."""

    @abstractmethod
    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Return ``ends`` and the units from ``queue_offset`` on, read at one moment.

        The units are those of that moment, except for units that are removed during the read: these
        are a hole.
        """

    def fast_units(self, queue_offset: int, max_count: int) -> FastUnits | None:
        """Return the result of ``pull``, for compiled code; ``None``: call ``pull`` instead.

        ``max_count`` is at least 1. No units if the pull starts outside the queue.
        """
        _ = queue_offset, max_count
        return None

    @abstractmethod
    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Return at most ``max_count`` consecutive units from ``queue_offset`` on.

        Empty with ``BlockStop.END`` at or after ``max_offset`` or below 0, and for unknown queues.
        A missing unit ends the block with ``BlockStop.HOLE`` and the missing range; the block is
        empty if the hole begins at ``queue_offset``. Units of expired records may be returned while
        they exist: check ``min_offset``.

        Raises:
            UnsupportedFormatError: a batch queue, whose units are not addressed by offset.
        """

    def read_units_below(self, max_offset: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Return ``read_units`` up to a ``max_offset`` that the caller has just read."""
        return self.read_units(queue_offset, min(max_count, max_offset - queue_offset))

    def blocks(self, begin: int, end: int, max_count: int) -> Iterator[UnitBlock]:
        """Yield the units [``begin``, ``end``), at most ``max_count`` per block, without holes.

        ``end`` is a max offset that the caller has just read, or less.

        Raises:
            UnsupportedFormatError: as for ``read_units``.
        """
        at = begin
        while at < end:
            block = self.read_units_below(end, at, max_count)
            if block.count:
                yield block
            at += block.count
            if block.stop is BlockStop.HOLE and block.hole is not None:
                at = block.hole.stop
            elif not block.count:
                return

    @abstractmethod
    def unit_timestamp(self, queue_offset: int) -> int:
        """Return the store time, ms, of the record of one unit; -1 without unit or record."""

    def unit_location(self, queue_offset: int) -> UnitLocation:
        """Return the location on disk of unit ``queue_offset``, whether or not it exists."""
        _ = queue_offset
        return UnitLocation()

    def resolve_tags_code(self, tags_code: int) -> int | None:
        """Return the tags code at an extension address; other codes are returned unchanged.

        ``None``: the address is invalid.
        """
        return tags_code

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Yield the units from ``queue_offset`` to the end or to the first hole.

        Batch queues begin with the unit that contains ``queue_offset``.
        """
        while True:
            block = self.read_units(queue_offset, _ITERATE_UNITS)
            for offset, (phy_offset, size, code) in enumerate(block.rows(), queue_offset):
                yield CqUnit(offset, phy_offset, size, self.resolve_tags_code(code))
            queue_offset += block.count
            if block.count < _ITERATE_UNITS:
                return

    def offset_by_time(self, timestamp: int, boundary: BoundaryType) -> int:
        """Return the offset for ``timestamp`` (ms), always within [min, max].

        LOWER: the first unit stored at or after it, ``max_offset`` without one. UPPER: the last
        unit stored at or before it, ``min_offset`` without one. 0 for an empty queue.
        """
        return search_offset(*self.ends(), timestamp, boundary, self.unit_timestamp)

    def estimate_message_count(
        self,
        from_offset: int,
        to_offset: int,
        matches: MessageFilter,
        fast: _estimate.FastFilter | None = None,
    ) -> int:
        """Estimate how many messages of [from_offset, to_offset) satisfy ``matches``.

        ``fast`` is the same filter in compiled code, if there is one.

        The range is first limited to [min, max]. Exact if fewer than ``max_consume_queue_scan``
        units are scanned and at most ``sample_count_threshold`` match.
        """
        low, high = self.ends()
        start, end = max(from_offset, low), min(to_offset, high)
        if start >= end:
            return 0
        config = self.context.config
        bounds = config.max_consume_queue_scan, config.sample_count_threshold
        if fast is not None:
            found = fast.estimate(self, start, end, config.units_per_file, *bounds)
            if found is not None:
                return found
        return _estimate.estimate(self.iterate(start), start, end, matches, *bounds)


def no_units(queue_offset: int, stride: int) -> UnitBlock:
    """Return the empty block of a queue without a unit at ``queue_offset``."""
    return UnitBlock(queue_offset, b"", stride, BlockStop.END)
