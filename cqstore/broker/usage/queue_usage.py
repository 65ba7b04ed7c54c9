"""Number of units, bytes and store times of queues, computed from the units alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.log.record_times import NO_TIME
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.facts import NO_RECORD_TIME, QueueSpan, QueueType
from cqstore.store.queue.units import QUEUE_UNIT, UnitBlock
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.time_runs import timed_units

_BLOCK_UNITS = 1 << 16
_FEW_UNITS = 32
"""Maximum number of units for which a loop is faster than arrays; most queues are this short."""
DAY = 86_400_000
"""One day in milliseconds."""


@dataclass(slots=True)
class Usage:
    """Number of units, bytes of their records, and oldest and newest store time in ms."""

    units: int = 0
    bytes: int = 0
    oldest: int | None = None
    newest: int | None = None

    def add(self, other: "Usage") -> None:
        """Add the usage of another queue, or of another part of a queue."""
        self.units += other.units
        self.bytes += other.bytes
        self.observe(other.oldest)
        self.observe(other.newest)

    def observe(self, timestamp: int | None) -> None:
        """Extend the time range by one store time; ``None`` and -1 mean unknown."""
        if timestamp is None or timestamp == NO_RECORD_TIME:
            return
        if self.oldest is None or timestamp < self.oldest:
            self.oldest = timestamp
        if self.newest is None or timestamp > self.newest:
            self.newest = timestamp


class UnitSizes(NamedTuple):
    """Consecutive units of one queue."""

    queue_offset: int
    """Queue offset of the first unit; offsets of a batch queue do not increase by one."""
    sizes: NDArray[np.int64]
    """Size of each record in bytes."""
    timestamps: NDArray[np.int64] | None
    """Store time of each unit in ms, -1 without a record; ``None``: units have no store time."""


def queue_usage(store: MessageStore, span: QueueSpan, progress: Progress = noop) -> Usage:
    """Return the totals of one queue; ``progress`` is called with its bytes so far.

    If units have no store time, the store times of the first and last record are used.

    Raises:
        StoreError: the queue cannot be read.
    """
    key, low, high = span
    queues = components_of(store).queues
    queue, found = queues.queue(*key), Usage()
    if queues.queue_type(key.topic) is QueueType.BATCH:
        pieces = _batch_pieces(queue, low, high) if low < high else iter(())
    else:
        pieces = _large_pieces(queue, low, high, found)
    for piece in pieces:
        found.units += len(piece.sizes)
        found.bytes += int(piece.sizes.sum())
        progress(found.bytes)
        if piece.timestamps is not None:
            known = piece.timestamps[piece.timestamps != NO_RECORD_TIME]
            if len(known):
                found.observe(int(known.min()))
                found.observe(int(known.max()))
        else:
            found.observe(queue.unit_timestamp(piece.queue_offset))
            found.observe(queue.unit_timestamp(piece.queue_offset + len(piece.sizes) - 1))
    return found


def _large_pieces(queue: ConsumeQueue, low: int, high: int, found: Usage) -> Iterator[UnitSizes]:
    """Yield the blocks for which arrays are faster; add the units of small blocks to ``found``."""
    for block in queue.blocks(low, high, _BLOCK_UNITS):
        if block.count > _FEW_UNITS:
            yield _unit_sizes(block)
            continue
        found.units += block.count
        if block.stride == QUEUE_UNIT.size:
            for _, size, _, timestamp in QUEUE_UNIT.struct.iter_unpack(block.data):
                found.bytes += size
                found.observe(timestamp)
        else:
            found.bytes += sum(size for _, size, _ in block.rows())
            found.observe(queue.unit_timestamp(block.queue_offset))
            found.observe(queue.unit_timestamp(block.queue_offset + block.count - 1))


def usage_by_day(store: MessageStore, span: QueueSpan) -> Iterator[tuple[int | None, Usage]]:
    """Yield each day since the epoch (UTC) with the totals of one queue on that day.

    The day is that of the record's store time. A day may be yielded several times; ``None``: the
    store time is unknown.

    Raises:
        StoreError: the queue cannot be read.
    """
    parts = components_of(store)
    for units in timed_units(parts, span.queue, span.min_offset, span.max_offset):
        days = np.where(units.stamps == NO_TIME, NO_TIME, units.stamps // DAY)
        for day in np.unique(days).tolist():
            rows = days == day
            count, total, times = int(rows.sum()), int(units.sizes[rows].sum()), units.stamps[rows]
            if day == NO_TIME:
                yield None, Usage(count, total)
            else:
                yield day, Usage(count, total, int(times.min()), int(times.max()))


def _unit_sizes(block: UnitBlock) -> UnitSizes:
    units = block.columns()
    timestamps = None
    if block.stride == QUEUE_UNIT.size:
        timestamps = units["store_timestamp"].astype(np.int64)
    return UnitSizes(block.queue_offset, units["size"].astype(np.int64), timestamps)


def _batch_pieces(queue: ConsumeQueue, low: int, high: int) -> Iterator[UnitSizes]:
    """Yield the units of a batch queue as one piece."""
    found = [unit for unit in queue.iterate(low) if unit.queue_offset < high]
    if found:
        yield UnitSizes(
            found[0].queue_offset,
            np.array([unit.size for unit in found], np.int64),
            np.array([queue.unit_timestamp(unit.queue_offset) for unit in found], np.int64),
        )
