"""LmdbConsumeQueue: one queue, identified by its key. Each call reads one snapshot."""

from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits, PulledUnits, no_units
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import NO_RECORD_TIME, UnitLocation
from cqstore.store.queue.units import MAX_UNITS, QUEUE_UNIT, BlockStop, UnitBlock
from cqstore_lmdb.layout import BLOCK_UNITS, UNIT_BYTES, block_key, queue_key
from cqstore_lmdb.memory import Memory, QueueView, Snapshot


class LmdbConsumeQueue(ConsumeQueue):
    """One queue in LMDB, by name."""

    __slots__ = ("_key", "_memory", "_path")

    def __init__(
        self, memory: Memory, context: QueueStoreContext, path: str, topic: str, queue_id: int
    ) -> None:
        """``path``: the file of the database."""
        self._memory, self._key, self._path = memory, queue_key(topic, queue_id), path
        self.context, self.topic, self.queue_id = context, topic, queue_id

    def max_offset(self) -> int:
        """Read the ends."""
        view = self._memory.read(Snapshot.queue, self._key)
        return 0 if view is None else view.ends.next

    def ends(self) -> tuple[int, int]:
        """Read the ends, and search the first unit in the log."""
        low, high, _ = self._memory.read(self._ends)
        return low, high

    def _ends(self, snapshot: Snapshot) -> tuple[int, int, QueueView | None]:
        view = snapshot.queue(self._key)
        if view is None:
            return 0, 0, None
        return view.first_in_log(self.context.log.min_phy_offset()), view.ends.next, view

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Read ends and units."""
        return self._memory.read(self._pull, queue_offset, max_count)

    def _pull(self, snapshot: Snapshot, queue_offset: int, max_count: int) -> PulledUnits:
        low, high, view = self._ends(snapshot)
        if view is None or not low <= queue_offset < high:
            return PulledUnits(low, high, no_units(queue_offset, UNIT_BYTES))
        return PulledUnits(low, high, _block(view, high, queue_offset, max_count))

    def fast_units(self, queue_offset: int, max_count: int) -> FastUnits:
        """Read ends and units."""
        return self._memory.read(self._fast_units, queue_offset, max_count)

    def _fast_units(self, snapshot: Snapshot, queue_offset: int, max_count: int) -> FastUnits:
        low, high, view = self._ends(snapshot)
        if view is None or not low <= queue_offset < high:
            return low, high, b"", UNIT_BYTES
        data = view.units(queue_offset, min(queue_offset + max_count, high))
        return low, high, bytes(data), UNIT_BYTES

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Read units up to the end."""
        return self._memory.read(self._read, MAX_UNITS, queue_offset, max_count)

    def read_units_below(self, max_offset: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Read units up to ``max_offset``."""
        return self._memory.read(self._read, max_offset, queue_offset, max_count)

    def _read(self, snapshot: Snapshot, stop: int, queue_offset: int, max_count: int) -> UnitBlock:
        view = snapshot.queue(self._key)
        if view is None:
            return no_units(queue_offset, UNIT_BYTES)
        return _block(view, min(stop, view.ends.next), queue_offset, max_count)

    def unit_timestamp(self, queue_offset: int) -> int:
        """Return the unit's timestamp; of the log, only its start and end are used."""
        data, log = self._memory.read(self._unit, queue_offset), self.context.log
        if data is None:
            return NO_RECORD_TIME
        unit = QUEUE_UNIT.unpack_from(data)
        if not log.min_phy_offset() <= unit.phy_offset < log.max_phy_offset():
            return NO_RECORD_TIME
        return unit.store_timestamp

    def _unit(self, snapshot: Snapshot, queue_offset: int) -> bytes | bytearray | None:
        view = snapshot.queue(self._key)
        if view is None or not view.ends.first <= queue_offset < view.ends.next:
            return None
        return view.unit(queue_offset)

    def unit_location(self, queue_offset: int) -> UnitLocation:
        """Return the database's file and the key of the unit's block."""
        return UnitLocation(
            self._path, key=block_key(self._key, max(queue_offset, 0) // BLOCK_UNITS)
        )


def _block(view: QueueView, max_offset: int, start: int, max_count: int) -> UnitBlock:
    """Return at most ``max_count`` units from ``start`` on, all below ``max_offset``."""
    stop = min(start + max_count, max_offset)
    first = view.ends.first
    if not 0 <= start < stop:
        return no_units(start, UNIT_BYTES)
    if start < first:
        hole = range(start, min(first, max_offset))
        return UnitBlock(start, b"", UNIT_BYTES, BlockStop.HOLE, hole)
    data = view.units(start, stop)
    missing = start + len(data) // UNIT_BYTES
    if missing < stop:
        hole = range(missing, min(missing - missing % BLOCK_UNITS + BLOCK_UNITS, max_offset))
        return UnitBlock(start, data, UNIT_BYTES, BlockStop.HOLE, hole)
    end = BlockStop.LIMIT if stop == start + max_count else BlockStop.END
    return UnitBlock(start, data, UNIT_BYTES, end)
