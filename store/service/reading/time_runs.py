"""Units of a queue that may be in a range of store times, by the time of each record.

Not a binary search: its result is correct only if store times never decrease, which is not the case
after a clock was set back, nor in a batch queue. The head of each record is read, with numpy.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.record_times import NO_TIME
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.reading.store_times import Time, TimeRange, time_range

_BLOCK_UNITS = 1 << 14
_GAP_UNITS = 32
"""Units between two runs that one pull reads as cheaply as two pulls would skip them."""


class TimedParts(Protocol):
    """The components of an open store that are needed, see ``StoreComponents``."""

    queues: ConsumeQueueStore

    @property
    def log(self) -> CommitLog:
        """Return the log."""


class TimedUnits(NamedTuple):
    """Some units of one queue in ascending order; the arrays have one shape, (n,)."""

    offsets: NDArray[np.int64]
    """Queue offset of each unit's first message."""
    ends: NDArray[np.int64]
    """Queue offset after its last message."""
    sizes: NDArray[np.int64]
    """Size of its record in bytes."""
    stamps: NDArray[np.int64]
    """Store time of its record, ms; ``NO_TIME`` if the log does not have it."""

    def within(self, times: TimeRange) -> NDArray[np.bool_]:
        """Return which units were stored in ``times``."""
        known = self.stamps != NO_TIME
        found = known & (self.stamps >= times.begin) & (self.stamps <= times.end)
        return np.asarray(found, np.bool_)


def timed_units(parts: TimedParts, key: QueueKey, first: int, end: int) -> Iterator[TimedUnits]:
    """Yield the units of [``first``, ``end``) with their store times; holes are left out.

    Raises:
        StoreError: the queue cannot be read.
    """
    queue = parts.queues.queue(*key)
    if parts.queues.queue_type(key.topic) is QueueType.BATCH:
        waiting = []
        for unit in queue.iterate(first):
            if unit.queue_offset >= end:
                break
            waiting.append((unit.queue_offset, unit.batch_num, unit.phy_offset, unit.size))
            if len(waiting) == _BLOCK_UNITS:
                yield _timed(parts, *np.array(waiting, np.int64).T)
                waiting = []
        if waiting:
            yield _timed(parts, *np.array(waiting, np.int64).T)
        return
    for block in queue.blocks(first, end, _BLOCK_UNITS):
        units = block.columns()
        offsets = np.arange(block.queue_offset, block.queue_offset + block.count, dtype=np.int64)
        ones = np.ones(block.count, np.int64)
        yield _timed(parts, offsets, ones, units["phy_offset"], units["size"])


def time_runs(
    parts: TimedParts, key: QueueKey, times: TimeRange, first: int, end: int
) -> Iterator[range]:
    """Yield the queue offsets of [``first``, ``end``) whose records may be of ``times``, ascending.

    Includes all of them, and a few others in between: the reader compares the time of each record.
    Also includes missing units, and units without a record in the log: the reader reports them.

    Raises:
        StoreError: the queue cannot be read.
    """
    if times.is_all:
        yield from whole_run(*key, times, first, end)
        return
    begin = stop = -1
    for run in _runs(parts, key, times, first, end):
        if begin >= 0 and run.start > stop + _GAP_UNITS:
            yield range(begin, stop)
            begin = -1
        begin, stop = run.start if begin < 0 else begin, min(run.stop, end)
    if begin >= 0:
        yield range(begin, stop)


def whole_run(
    _topic: str, _queue_id: int, _times: TimeRange, first: int, end: int
) -> Iterator[range]:
    """Yield all of [``first``, ``end``): used for a store without ``time_runs``."""
    yield range(first, end)


def offset_at_time(parts: TimedParts, key: QueueKey, time: Time, boundary: BoundaryType) -> int:
    """Return the offset of the first unit at or after ``time``, or the last one at or before it.

    See ``MessageStore.offset_at_time``.

    Raises:
        RefusedStoreError: the time is probably not in ms.
        StoreError: the queue cannot be read.
    """
    is_upper = boundary is BoundaryType.UPPER
    times = time_range(end=time) if is_upper else time_range(time)
    low, high = parts.queues.queue(*key).ends()
    found = low if is_upper else high
    for units in timed_units(parts, key, low, high):
        rows = np.flatnonzero(units.within(times))
        if len(rows) and not is_upper:
            return int(units.offsets[rows[0]])
        if len(rows):
            found = int(units.offsets[rows[-1]])
    return found


def _runs(
    parts: TimedParts, key: QueueKey, times: TimeRange, first: int, end: int
) -> Iterator[range]:
    """Yield runs of units that may be in the range, and each hole between units."""
    at = first
    for units in timed_units(parts, key, first, end):
        maybe = units.within(times) | (units.stamps == NO_TIME)
        follows = np.concatenate(([at], units.ends[:-1]))
        for hole in np.flatnonzero(units.offsets > follows).tolist():
            maybe[hole] = True  # the hole before it is read with it
            units.offsets[hole] = follows[hole]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], maybe.view(np.int8), [0]))))
        for low, high in edges.reshape(-1, 2).tolist():
            yield range(int(units.offsets[low]), int(units.ends[high - 1]))
        at = int(units.ends[-1])
    if at < end:
        yield range(at, end)


def _timed(
    parts: TimedParts, offsets: NDArray[np.int64], counts: NDArray[np.int64],
    phys: NDArray[np.int64], sizes: NDArray[np.int64],
) -> TimedUnits:  # fmt: skip
    sizes = sizes.astype(np.int64)
    try:
        stamps = parts.log.known_timestamps(phys.astype(np.int64), sizes)
    except (CorruptionError, StoreIOError):  # a pull reports it at the record to which it belongs
        stamps = np.full(len(offsets), NO_TIME, np.int64)
    return TimedUnits(offsets.astype(np.int64), offsets + np.maximum(counts, 1), sizes, stamps)
