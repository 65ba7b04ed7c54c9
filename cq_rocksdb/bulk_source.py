"""RocksDBUnitSource: reads whole queues of a database."""

from collections.abc import Iterator

import numpy as np

from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.keys import (
    OFFSET_ENTRY,
    max_key,
    queue_prefix,
)
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable
from cqstore.cq_rocksdb.units_ahead import UnitsAhead
from cqstore.store.queue.bulk import (
    UNIT_ROWS,
    UnitRows,
    UnitRun,
    WholeQueue,
    WrittenEnd,
    key_order,
    merge_queues,
    row_table,
)
from cqstore.store.queue.units import BlockStop, QueueKey


class RocksDBUnitSource:
    """Reads whole queues of a database, see ``UnitSource``; closes the engine that it was given."""

    has_timestamps = True

    def __init__(self, engine: RocksEngine) -> None:
        self._engine = engine
        self._offsets = OffsetTable(engine, hot_queues=1)
        self._ahead = UnitsAhead(engine)

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        """Yield the queues after ``after`` up to ``up_to``, in key order.

        A queue counts if it has a ``max`` entry or a unit.
        """
        limit = None if up_to is None else key_order(up_to)
        with_end = (end.queue for end in self.written_ends(after))
        for queue, *_ in merge_queues(with_end, self._ahead.queues(after)):
            if limit is not None and key_order(queue) > limit:
                return
            yield queue

    def written_ends(
        self, after: QueueKey | None = None, up_to: QueueKey | None = None
    ) -> Iterator[WrittenEnd]:
        """Yield the ``max`` entry of each queue."""
        limit = None if up_to is None else key_order(up_to)
        for queue, (last_phy, queue_offset) in self._offsets.last_units(after=after):
            if limit is not None and key_order(queue) > limit:
                return
            self._ahead.note_end(queue, queue_offset + 1)
            yield WrittenEnd(queue, queue_offset + 1, last_phy)

    def next_offset(self, queue: QueueKey) -> int:
        """Return the next offset according to the ``max`` entry; 0 without a valid entry."""
        if (known := self._ahead.end_of(queue)) is not None:
            return known
        value = self._engine.get(Family.OFFSET, max_key(queue_prefix(*queue)))
        if value is None or len(value) != OFFSET_ENTRY.size:
            return 0
        return OFFSET_ENTRY.unpack_from(value).queue_offset + 1

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Fill ``rows`` with a queue's units from ``queue_offset`` on; return how many."""
        run = self._ahead.units_of(queue)
        if run is not None and (at := queue_offset - run.queue_offset) >= 0:
            count = min(len(rows), max(len(run.rows) - at, 0))
            rows[:count] = run.rows[at : at + count]
            return count
        return self._engine.scan_into(queue_prefix(*queue), queue_offset, row_table(rows))[0]

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        """Yield the queue's units in runs without a gap, each of at most ``max_units``.

        Includes units that no ``max`` entry covers.
        """
        run = self._ahead.units_of(queue)
        if run is not None and len(run.rows) <= max_units:
            yield run
            return
        prefix = queue_prefix(*queue)
        found = self._engine.first_unit(prefix, 0)
        position = found[0] if found is not None else None
        while position is not None:
            rows = np.empty(max_units, UNIT_ROWS)
            count, stop, following = self._engine.scan_into(prefix, position, row_table(rows))
            if count:  # 0 if the previous run ended at a gap
                yield UnitRun(position, rows[:count])
            position = None if stop is BlockStop.END else following

    def whole(self, queue: QueueKey) -> WholeQueue | None:
        """Return the units of a short queue, usually one that was listed just before."""
        return self._ahead.whole(queue)

    def facts_of(self, queue: QueueKey) -> bytes | None:
        """Return ``None``: a queue has no files of its own."""
        _ = queue
        return None

    def behind(self, queue: QueueKey) -> UnitRun | None:
        """Return no rows: RocketMQ reads no unit after the ``max`` entry."""
        _ = queue
        return None

    def is_open_ended(self, queue: QueueKey) -> bool:
        """Return False: the ``max`` entry defines the end of the queue."""
        _ = queue
        return False

    def close(self) -> None:
        """Close the database."""
        self._engine.close(flush=False)
