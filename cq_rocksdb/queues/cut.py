"""Truncation of queues: after the end of the log (crash) and before its min offset (expiry).

Both yield writes of bounded size. Each write is consistent, so a crash between two writes leaves
some queues cut and others not, but never an inconsistent one.

Source: RocketMQ ``RocksDBConsumeQueueOffsetTable.truncateDirty``, ``ConsumeQueueCompactionFilter``.
"""

from collections.abc import Iterable, Iterator

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import (
    OFFSET_ENTRY,
    OffsetEntry,
    max_key,
    min_key,
    prefix_end,
    queue_prefix,
    unit_key,
)
from cqstore.cq_rocksdb.queues.offset_table import NO_UNIT, OffsetTable
from cqstore.cq_rocksdb.queues.unit_table import UnitTable

_QUEUES_A_WRITE = 1_000


def truncate_dirty(
    offsets: OffsetTable, units: UnitTable, phy_offset: int
) -> Iterator[EngineBatch]:
    """Yield the writes that cut every queue at ``phy_offset``, one ``max`` put per queue."""
    write = EngineBatch()
    for queue, last in offsets.last_units():
        if last.queue_offset < 0 or last.phy_offset < phy_offset:
            continue
        prefix = queue_prefix(*queue)
        kept = _last_kept(units, prefix, last, phy_offset)
        start = unit_key(prefix, kept.queue_offset + 1)
        write.delete_ranges.append((Family.DEFAULT, start, prefix_end(prefix)))
        write.deletes.append((Family.OFFSET, min_key(prefix)))  # it may refer to a unit that is cut
        write.puts.append((max_key(prefix), OFFSET_ENTRY.pack(kept)))
        if len(write.puts) >= _QUEUES_A_WRITE:
            yield write
            write = EngineBatch()
    if write.puts:
        yield write


def _last_kept(units: UnitTable, prefix: bytes, last: OffsetEntry, phy_offset: int) -> OffsetEntry:
    """Return the ``max`` entry of a queue that is cut at ``phy_offset``.

    Its queue offset makes the first cut message the next one. Its phy offset is that of the unit
    before. If that unit is missing (a hole, which a replay may fill), the phy offset is artificial:
    the highest possible one of a kept record, so that the replay is not mistaken for a new
    incarnation of the queue. If the queue has no earlier unit, they have expired, and the phy
    offset is -1: RocketMQ then treats all units as expired, and returns the right minimum.
    """
    cut = units.first_in_log(prefix, 0, last.queue_offset, phy_offset)
    end = cut.queue_offset if cut is not None else last.queue_offset
    before = units.at_or_before(prefix, end - 1) if end > 0 else None
    if before is None:
        return OffsetEntry(NO_UNIT.phy_offset, end - 1)
    if before.queue_offset == end - 1:
        return before.entry
    if cut is None:  # everything after `before` is missing; a replay appends
        return before.entry
    return OffsetEntry(phy_offset - 1, end - 1)


def clean_expired(
    lasts: Iterable[tuple[bytes, OffsetEntry]],
    units: UnitTable,
    min_phy_offset: int,
    *,
    delete: bool,
) -> Iterator[EngineBatch]:
    """Yield the writes that update the ``min`` entries of queues.

    ``lasts``: the queues by prefix, each with its last unit.

    A ``min`` entry refers to the first remaining unit. A queue without units gets RocketMQ's
    artificial entry: the log's minimum and the queue's next offset. With ``delete``, the units
    below are deleted by one range delete per queue; else the compaction filter drops them.
    """
    write = EngineBatch()
    for prefix, last in lasts:
        first = units.at_or_after(prefix, 0)
        if first is None or first.unit.phy_offset >= min_phy_offset:
            continue
        left = None
        if last.phy_offset >= min_phy_offset:
            left = units.first_in_log(prefix, first.queue_offset, last.queue_offset, min_phy_offset)
        entry = OffsetEntry(min_phy_offset, last.queue_offset + 1) if left is None else left.entry
        if delete:
            end = unit_key(prefix, entry.queue_offset)
            write.delete_ranges.append((Family.DEFAULT, prefix, end))
        write.puts.append((min_key(prefix), OFFSET_ENTRY.pack(entry)))
        if len(write.puts) >= _QUEUES_A_WRITE:
            yield write
            write = EngineBatch()
    if write.puts:
        yield write
