"""UnitsAhead: entries of many short queues, read with one scan of the database.

A pass over a million short queues otherwise takes several calls of the database for each. Only
complete queues with regular entries are kept; callers read all others from the database.
"""

from collections.abc import Iterator

import numpy as np

from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.keys import parse_unit_key, prefix_end, queue_prefix
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRun, WholeQueue
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey

_LAST_KEY = b"\xff" * 4
_MIN_ROWS, _MAX_ROWS = 64, 1024
"""Entries that one scan reads: few while the queues are long, since these are read again."""
_MAX_QUEUES = 4096
_PLACE_BYTES = 8
_Rows = list[tuple[bytes, bytes]]


class UnitsAhead:
    """Ends and units of the queues that were listed last. One thread; the database is at rest."""

    def __init__(self, engine: RocksEngine) -> None:
        self._engine = engine
        self._ends: dict[QueueKey, int] = {}
        self._units: dict[QueueKey, WholeQueue] = {}

    def note_end(self, queue: QueueKey, next_offset: int) -> None:
        """Keep the next offset of a queue that was listed."""
        if len(self._ends) >= _MAX_QUEUES:
            self._ends.clear()
        self._ends[queue] = next_offset

    def end_of(self, queue: QueueKey) -> int | None:
        """Return the next offset of a queue, or ``None`` if it is not kept."""
        return self._ends.get(queue)

    def units_of(self, queue: QueueKey) -> UnitRun | None:
        """Return all units of a queue, or ``None`` if they are not kept."""
        units = self._units.get(queue)
        if units is None:
            return None
        return UnitRun(units.queue_offset, np.frombuffer(units.rows, UNIT_ROWS))

    def whole(self, queue: QueueKey) -> WholeQueue | None:
        """Return all units of a queue; ``None``: they are many or irregular, or it ends elsewhere.

        If they are not kept, they are read.
        """
        if queue not in self._units:
            prefix = queue_prefix(*queue)
            rows = self._engine.scan(Family.DEFAULT, prefix, prefix_end(prefix), _MIN_ROWS)
            if 0 < len(rows) < _MIN_ROWS:
                self._keep(queue, prefix, rows)
        units = self._units.get(queue)
        if units is None:
            return None
        end = units.queue_offset + len(units.rows) // QUEUE_UNIT.size
        return units if self._ends.get(queue) == end else None

    def queues(self, after: QueueKey | None) -> Iterator[QueueKey]:
        """Yield the queues that have a unit, in key order, and keep units of short ones.

        Raises:
            CorruptionError: a key is invalid.
        """
        start = prefix_end(queue_prefix(*after)) if after is not None else b""
        limit = _MIN_ROWS
        while rows := self._engine.scan(Family.DEFAULT, start, _LAST_KEY, limit):
            is_last, at = len(rows) < limit, 0
            while at < len(rows):
                queue, _ = parse_unit_key(rows[at][0])
                prefix = rows[at][0][:-_PLACE_BYTES]
                stop = at + 1
                while stop < len(rows) and rows[stop][0].startswith(prefix):
                    stop += 1
                start = prefix_end(prefix)
                if stop == len(rows) and not is_last:  # it may go on
                    if at:
                        start = rows[at][0]
                        limit = min(2 * limit, _MAX_ROWS)
                        break
                    limit = _MIN_ROWS
                else:
                    self._keep(queue, prefix, rows[at:stop])
                yield queue
                at = stop
            if is_last:
                return

    def _keep(self, queue: QueueKey, prefix: bytes, rows: _Rows) -> None:
        """Keep the units of a complete queue, if they are consecutive and regular."""
        first = int.from_bytes(rows[0][0][-_PLACE_BYTES:], signed=True)
        last = int.from_bytes(rows[-1][0][-_PLACE_BYTES:], signed=True)
        size = len(prefix) + _PLACE_BYTES
        if first < 0 or last - first + 1 != len(rows):
            return
        keys, values = zip(*rows, strict=True)
        if {*map(len, keys)} != {size} or {*map(len, values)} != {QUEUE_UNIT.size}:
            return
        if len(self._units) >= _MAX_QUEUES:
            self._units.clear()
        data = bytearray().join(values)
        self._units[queue] = WholeQueue(first, data)
