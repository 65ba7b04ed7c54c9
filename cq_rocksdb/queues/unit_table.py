"""UnitTable: the family ``default``, units by queue and queue offset.

Within a queue, records are in the log in the order of their queue offsets, so the unit for a phy
offset is found by bisection. Units may be missing (lost in a crash, or expired and dropped in a
compaction): bisection then uses the next existing unit.

Source: RocketMQ ``RocksDBConsumeQueueTable``.
"""

from pathlib import Path
from typing import NamedTuple

from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.keys import OffsetEntry, unit_key
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, QueueUnit, UnitBlock


class FoundUnit(NamedTuple):
    """A unit and its queue offset, as found by a search."""

    queue_offset: int
    unit: QueueUnit

    @property
    def entry(self) -> OffsetEntry:
        """Return the ``max`` or ``min`` entry for the unit."""
        return OffsetEntry(self.unit.phy_offset, self.queue_offset)


class UnitTable:
    """The units of all queues, each queue given by its key prefix. Any thread may read."""

    def __init__(self, engine: RocksEngine) -> None:
        self._engine = engine

    @property
    def folder(self) -> Path:
        """Return the folder of the database."""
        return self._engine.folder

    def get(self, prefix: bytes, queue_offset: int) -> QueueUnit | None:
        """Return the unit at ``queue_offset``, or ``None`` if it is missing or too short."""
        value = self._engine.get(Family.DEFAULT, unit_key(prefix, queue_offset))
        if value is None or len(value) < QUEUE_UNIT.size:
            return None
        return QUEUE_UNIT.unpack_from(value)

    def search(
        self, prefix: bytes, ends: tuple[int, int], timestamp: int, log: tuple[int, int],
        *, upper: bool,
    ) -> int | None:  # fmt: skip
        """Search by time in one call, see ``RocksEngine``."""
        return self._engine.search(prefix, ends, timestamp, log, upper=upper)

    def at_or_after(self, prefix: bytes, queue_offset: int) -> FoundUnit | None:
        """Return the first existing unit at or after ``queue_offset``."""
        return _found(self._engine.first_unit(prefix, queue_offset))

    def at_or_before(self, prefix: bytes, queue_offset: int) -> FoundUnit | None:
        """Return the last existing unit at or before ``queue_offset``."""
        return _found(self._engine.last_unit(prefix, queue_offset))

    def block(self, prefix: bytes, start: int, max_offset: int, max_count: int) -> UnitBlock:
        """Return at most ``max_count`` units from ``start`` on, all below ``max_offset``."""
        count = min(max_count, max_offset - start)
        if start < 0 or count <= 0:
            return UnitBlock(start, b"", QUEUE_UNIT.size, BlockStop.END)
        data, stop, next_offset = self._engine.scan_units(prefix, start, count)
        if stop is BlockStop.LIMIT:
            stop = BlockStop.LIMIT if count == max_count else BlockStop.END
            return UnitBlock(start, data, QUEUE_UNIT.size, stop)
        missing = start + len(data) // QUEUE_UNIT.size
        behind = min(next_offset, max_offset) if stop is BlockStop.HOLE else max_offset
        return UnitBlock(start, data, QUEUE_UNIT.size, BlockStop.HOLE, range(missing, behind))

    def packed(self, prefix: bytes, start: int, count: int) -> bytes:
        """Return up to ``count`` units (one or more) from ``start`` on, up to the first hole."""
        return self._engine.scan_units(prefix, start, count).data

    def first_in_log(self, prefix: bytes, low: int, last: int, phy_offset: int) -> FoundUnit | None:
        """Return the first unit in [low, last] whose record is at or after ``phy_offset``.

        O(log n) seeks; holes are skipped.
        """
        answer = None
        high = last + 1
        middle = low  # usually it is the first unit
        while low < high:
            found = self.at_or_after(prefix, middle)
            if found is None or found.queue_offset >= high:
                high = middle
            elif found.unit.phy_offset >= phy_offset:
                answer, high = found, middle
            else:
                low = found.queue_offset + 1
            middle = (low + high) // 2
        return answer


def _found(row: tuple[int, bytes] | None) -> FoundUnit | None:
    return None if row is None else FoundUnit(row[0], QUEUE_UNIT.unpack_from(row[1]))
