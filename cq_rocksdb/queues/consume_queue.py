"""RocksDBConsumeQueue: one queue in RocksDB, identified by the prefix of its keys.

Source: RocketMQ ``RocksDBConsumeQueue``.
"""

from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable
from cqstore.cq_rocksdb.queues.unit_table import UnitTable
from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits, PulledUnits, no_units
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import UnitLocation
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadKind
from cqstore.store.queue.time_search import BoundaryType, search_offset
from cqstore.store.queue.units import QUEUE_UNIT, UnitBlock

_UPPER = BoundaryType.UPPER  # saves a lookup of the enum's attribute


class RocksDBConsumeQueue(ConsumeQueue):
    """One queue in RocksDB, by name. Stores only the prefix of its keys.

    Each call reads the queue's row in the table once.
    """

    __slots__ = ("_offsets", "_prefix", "_units")

    def __init__(
        self,
        offsets: OffsetTable,
        units: UnitTable,
        context: QueueStoreContext,
        topic: str,
        queue_id: int,
    ) -> None:
        self._offsets, self._units = offsets, units
        self._prefix = queue_prefix(topic, queue_id)
        self.context, self.topic, self.queue_id = context, topic, queue_id

    def max_offset(self) -> int:
        """Return the max offset from the cache, else from the ``max`` entry."""
        return self._offsets.last_offset(self._prefix) + 1

    def ends(self) -> tuple[int, int]:
        """Return the ends from the cache, else the entries, else a search; updates the cache only.

        The ``min`` entry is valid while its record exists. RocketMQ treats missing units as too
        small and writes what it finds; here they are skipped, and nothing is written.
        """
        (last_phy, last, first_phy, first), generation = self._offsets.row(self._prefix)
        if last < 0:
            return 0, 0
        high = last + 1
        min_phy_offset = self.context.log.min_phy_offset()
        if last_phy < min_phy_offset:
            return high, high
        if first < 0 or first_phy < min_phy_offset:
            first = self._find_first(first, last, min_phy_offset, generation)
        return min(first, high), high

    def _find_first(self, known: int, last: int, min_phy_offset: int, generation: int) -> int:
        """Return the first unit in the log, or the offset after ``last``; cache it.

        ``known``: an earlier first unit, negative if not looked up yet.
        """
        if known < 0 and (stored := self._offsets.stored_min(self._prefix)) is not None:
            known = stored.queue_offset
            if stored.phy_offset >= min_phy_offset:
                self._offsets.found_first(self._prefix, stored, generation)
                return known
        found = self._units.first_in_log(self._prefix, max(known, 0), last, min_phy_offset)
        if found is None:
            return last + 1
        self._offsets.found_first(self._prefix, found.entry, generation)
        return found.queue_offset

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Read one row, then the units with one seek."""
        low, high = self.ends()
        if low <= queue_offset < high:
            block = self._units.block(self._prefix, queue_offset, high, max_count)
        else:
            block = no_units(queue_offset, QUEUE_UNIT.size)
        return PulledUnits(low, high, block)

    def fast_units(self, queue_offset: int, max_count: int) -> FastUnits:
        """Read one row, then the units with one seek."""
        low, high = self.ends()
        if not low <= queue_offset < high:
            return low, high, b"", QUEUE_UNIT.size
        data = self._units.packed(self._prefix, queue_offset, min(max_count, high - queue_offset))
        return low, high, data, QUEUE_UNIT.size

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Read with one seek; keys are compared only if a unit is missing."""
        return self._units.block(self._prefix, queue_offset, self.max_offset(), max_count)

    def read_units_below(self, max_offset: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Read with one seek; the ``max`` entry is not read again."""
        return self._units.block(self._prefix, queue_offset, max_offset, max_count)

    def unit_timestamp(self, queue_offset: int) -> int:
        """Return the unit's timestamp; of the log, only its start and end are used."""
        if not 0 <= queue_offset < self.max_offset():
            return -1
        unit = self._units.get(self._prefix, queue_offset)
        log = self.context.log
        if unit is None or not log.min_phy_offset() <= unit.phy_offset < log.max_phy_offset():
            return -1
        return unit.store_timestamp

    def unit_location(self, queue_offset: int) -> UnitLocation:
        """Return the database's folder and the unit's key."""
        key = unit_key(self._prefix, queue_offset) if queue_offset >= 0 else self._prefix
        return UnitLocation(str(self._units.folder), key=key)

    def offset_by_time(self, timestamp: int, boundary: BoundaryType) -> int:
        """Search in one call if the engine supports it."""
        ends, log = self.ends(), self.context.log
        found = self._units.search(
            self._prefix, ends, timestamp, (log.min_phy_offset(), log.max_phy_offset()),
            upper=boundary is _UPPER,
        )  # fmt: skip
        if found is not None:
            return found
        self.context.read_fallbacks.add(ReadKind.SEARCH, FallbackReason.ENGINE)
        return search_offset(*ends, timestamp, boundary, self.unit_timestamp)
