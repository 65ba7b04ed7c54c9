"""How many units and bytes queues hold, and of which time, from their units alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.progress import Progress, noop
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.facts import QueueSpan, QueueType
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import QUEUE_UNIT, UnitBlock
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_BLOCK_UNITS = 1 << 16
_FEW_UNITS = 32
"""Up to so many a loop is faster than arrays: most of a million queues have no more."""
DAY = 86_400_000
"""Milliseconds of a day."""


@dataclass(slots=True)
class Usage:
    """Units, the bytes of their records, and the store times of the first and last, ms."""

    units: int = 0
    bytes: int = 0
    oldest: int | None = None
    newest: int | None = None

    def add(self, other: "Usage") -> None:
        """Add units of another queue, or of another part of one."""
        self.units += other.units
        self.bytes += other.bytes
        self.observe(other.oldest)
        self.observe(other.newest)

    def observe(self, timestamp: int | None) -> None:
        """Widen the time by one store time; ``None`` or below 0: it is not known."""
        if timestamp is None or timestamp < 0:
            return
        if self.oldest is None or timestamp < self.oldest:
            self.oldest = timestamp
        if self.newest is None or timestamp > self.newest:
            self.newest = timestamp


class UnitSizes(NamedTuple):
    """Consecutive units of one queue."""

    queue_offset: int
    """Of the first; a batch queue's units do not count up by one."""
    sizes: NDArray[np.int64]
    """Bytes of each record."""
    timestamps: NDArray[np.int64] | None
    """Store time of each in ms, below 0 without a record; ``None``: the units do not hold it."""


def queue_usage(store: MessageStore, span: QueueSpan, progress: Progress = noop) -> Usage:
    """Return what the units of one queue come to; ``progress`` is called with its bytes so far.

    Where units have no store time that of the first and of the last record counts.

    Raises:
        StoreError: the queue cannot be read.
    """
    queue, low, high = (
        components_of(store).queues.queue(*span.queue),
        span.min_offset,
        span.max_offset,
    )
    found = Usage()
    if components_of(store).queues.queue_type(queue.topic) is QueueType.BATCH:
        pieces = _batch_pieces(queue, low, high) if low < high else iter(())
    else:
        pieces = _large_pieces(queue, low, high, found)
    for piece in pieces:
        found.units += len(piece.sizes)
        found.bytes += int(piece.sizes.sum())
        progress(found.bytes)
        if piece.timestamps is not None:
            known = piece.timestamps[piece.timestamps >= 0]
            if len(known):
                found.observe(int(known.min()))
                found.observe(int(known.max()))
        else:
            found.observe(queue.unit_timestamp(piece.queue_offset))
            found.observe(queue.unit_timestamp(piece.queue_offset + len(piece.sizes) - 1))
    return found


def _large_pieces(queue: ConsumeQueue, low: int, high: int, found: Usage) -> Iterator[UnitSizes]:
    """Yield what arrays are worth; add the units of small blocks to ``found``."""
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
    """Yield days since the epoch (UTC) with what the units of one queue come to on each.

    A day may come several times; ``None``: the store time is not known. Where units have no store
    time the ends of days are searched in the log, which holds if store times never decrease.

    Raises:
        StoreError: the queue cannot be read.
    """
    queue = components_of(store).queues.queue(*span.queue)
    for piece in _pieces(store, queue, span.min_offset, span.max_offset):
        if piece.timestamps is None:
            yield from _searched_days(queue, piece)
        else:
            yield from _counted_days(piece.sizes, piece.timestamps)


def _counted_days(
    sizes: NDArray[np.int64], timestamps: NDArray[np.int64]
) -> Iterator[tuple[int | None, Usage]]:
    """Yield each day of the units' store times with what they come to; ``None``: no time."""
    days = np.where(timestamps < 0, -1, timestamps // DAY)
    for day in np.unique(days).tolist():
        rows = days == day
        units, total = int(rows.sum()), int(sizes[rows].sum())
        if day < 0:
            yield None, Usage(units, total)
        else:
            times = timestamps[rows]
            yield day, Usage(units, total, int(times.min()), int(times.max()))


def _searched_days(queue: ConsumeQueue, piece: UnitSizes) -> Iterator[tuple[int | None, Usage]]:
    """Yield each day of a piece with what its units come to; days are searched by time."""
    first, count = piece.queue_offset, len(piece.sizes)
    at = 0
    while at < count:  # a step takes a unit or more, whatever the times say
        timestamp = queue.unit_timestamp(first + at)
        end, day = at + 1, None
        if timestamp >= 0:
            day = timestamp // DAY
            next_day = queue.offset_by_time((day + 1) * DAY, BoundaryType.LOWER) - first
            end = min(max(next_day, end), count)
        found = Usage(end - at, int(piece.sizes[at:end].sum()))
        found.observe(timestamp)
        found.observe(queue.unit_timestamp(first + end - 1))
        yield day, found
        at = end


def _pieces(store: MessageStore, queue: ConsumeQueue, low: int, high: int) -> Iterator[UnitSizes]:
    """Yield the units of [``low``, ``high``); what is missing is passed over."""
    if low >= high:
        return
    if components_of(store).queues.queue_type(queue.topic) is QueueType.BATCH:
        yield from _batch_pieces(queue, low, high)
        return
    yield from map(_unit_sizes, queue.blocks(low, high, _BLOCK_UNITS))


def _unit_sizes(block: UnitBlock) -> UnitSizes:
    units = block.columns()
    timestamps = None
    if block.stride == QUEUE_UNIT.size:
        timestamps = units["store_timestamp"].astype(np.int64)
    return UnitSizes(block.queue_offset, units["size"].astype(np.int64), timestamps)


def _batch_pieces(queue: ConsumeQueue, low: int, high: int) -> Iterator[UnitSizes]:
    """Yield the units of a batch queue, all as one piece."""
    found = [unit for unit in queue.iterate(low) if unit.queue_offset < high]
    if found:
        yield UnitSizes(
            found[0].queue_offset,
            np.array([unit.size for unit in found], np.int64),
            np.array([queue.unit_timestamp(unit.queue_offset) for unit in found], np.int64),
        )
