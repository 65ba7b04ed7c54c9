"""BatchPlan: turns a batch of units into one atomic write to the queues.

A unit is new if its record is after that of the queue's last unit. New units are appended, begin a
new incarnation of the queue, or skip a gap. Other units are a replay: they are written if missing,
and existing units are kept; if two incarnations of a queue use the same offset, the later record
wins. So a replay from any position has the same result, and can be interrupted anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, max_puts
from cqstore.cq_rocksdb.keys import (
    OffsetEntry,
    min_key,
    prefix_end,
    queue_prefix,
    unit_key,
)
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable, PlannedEnds
from cqstore.cq_rocksdb.queues.state_cache import FIELDS, UNKNOWN
from cqstore.cq_rocksdb.queues.unit_table import UnitTable
from cqstore.store.errors import queue_gap
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, UnitRuns, phy_offsets

MinPhyOffset = Callable[[], int]
_FILL_UNITS = 4_096


@dataclass(slots=True)
class _Pieces:
    """Pieces as columns: consecutive rows of a batch for consecutive offsets of one queue."""

    prefix: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    queue_offset: list[int] = field(default_factory=list)

    def add(self, prefix: int, row: int, count: int, queue_offset: int) -> None:
        self.prefix.append(prefix)
        self.row.append(row)
        self.count.append(count)
        self.queue_offset.append(queue_offset)

    def cut(self, first: int, queue_offset: int) -> None:
        """Remove units at or after ``queue_offset`` in the pieces from ``first`` on."""
        for piece in range(first, len(self.row)):
            kept = max(0, queue_offset - self.queue_offset[piece])
            self.count[piece] = min(self.count[piece], kept)

    def expand(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return prefix index, queue offset and row of every unit."""
        counts = np.array(self.count, np.int64)
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = np.repeat(np.array(self.queue_offset, np.int64), counts) + steps
        rows = np.repeat(np.array(self.row, np.int64), counts) + steps
        return np.repeat(np.array(self.prefix, np.int64), counts), offsets, rows


@dataclass(slots=True)
class _PlannedQueue:
    """One queue while its runs are planned one by one."""

    key: QueueKey
    prefix: bytes
    before: OffsetEntry
    """The ``max`` entry before the batch."""
    index: int
    first_piece: int
    last: OffsetEntry
    renewed: bool = False
    """Whether its first live unit may have changed."""


class BatchPlan:
    """Plan for one batch; nothing is written before the plan is complete."""

    def __init__(
        self, runs: UnitRuns, offsets: OffsetTable, units: UnitTable, log: MinPhyOffset
    ) -> None:
        """Read the rows of the queues of ``runs`` from ``offsets``."""
        self._runs = runs
        self._offsets = offsets
        self._units = units
        self._min_phy_offset = log
        self._phy = runs.phys
        self._pieces = _Pieces()
        self._prefixes = [queue_prefix(*queue) for queue in runs.queues]
        self._rows = offsets.rows(self._prefixes)
        self._after = np.empty((0, FIELDS), np.int64)
        self.write = EngineBatch()
        self.restarts: list[QueueRestart] = []

    def plan(self) -> EngineBatch:
        """Return the units and entries of the batch as one write.

        Raises:
            QueueGapError: a unit is beyond the end of a queue that has live units.
        """
        planned, write = self._plan_queues(), self.write
        if planned:
            self._after[:, :2] = [queue.last for queue in planned]
            self._after[[queue.renewed for queue in planned], 2:] = UNKNOWN
            write.prefixes = [queue.prefix for queue in planned]
            puts = max_puts(write.prefixes, self._after[:, :2])
            write.puts = list(compress(puts, [queue.last != queue.before for queue in planned]))
        write.prefix_index, write.queue_offset, rows = self._pieces.expand()
        write.units = self._runs.units[rows]
        return write

    def ends(self) -> PlannedEnds:
        """Return the rows of the queues after the write."""
        return PlannedEnds(list(self.write.prefixes), self._after, renewed=bool(self.write.deletes))

    def _plan_queues(self) -> list[_PlannedQueue]:
        """Plan the runs one by one; return the queues in key order."""
        runs, prefixes = self._runs, self._prefixes
        planned: list[_PlannedQueue] = []
        first_runs: list[int] = []
        for run in sorted(range(len(runs)), key=prefixes.__getitem__):  # stable
            prefix = prefixes[run]
            if not planned or planned[-1].prefix != prefix:
                before = OffsetEntry(*self._rows[run, :2].tolist())
                place = len(planned), len(self._pieces.row)
                planned.append(_PlannedQueue(runs.queues[run], prefix, before, *place, before))
                first_runs.append(run)
            self._place(planned[-1], runs.first_offsets[run], runs.starts[run], runs.ends[run])
        self._after = self._rows[first_runs]
        return planned

    def _place(self, queue: _PlannedQueue, first: int, start: int, end: int) -> None:
        """Plan one run: which part is a replay, and how the rest continues the queue."""
        phy, offset = queue.last
        replayed = int(np.searchsorted(self._phy[start:end], phy, "right"))
        if replayed:
            self._fill(queue, first, start, min(replayed, offset + 1 - first))
        first, start = first + replayed, start + replayed
        if start == end:
            return
        if first <= offset:
            self._restart(queue, first, start)
        elif first > offset + 1:
            self._check_gap(queue, first, start)
            self._renew(queue)
        self._pieces.add(queue.index, start, end - start, first)
        queue.last = OffsetEntry(int(self._phy[end - 1]), first + end - start - 1)

    def _fill(self, queue: _PlannedQueue, first: int, start: int, count: int) -> None:
        """Plan replayed units that are missing, or whose offset has an older record."""
        wanted = np.ones(max(count, 0), bool)
        at = 0
        while at < count:
            block = self._units.block(queue.prefix, first + at, first + count, _FILL_UNITS)
            if block.count:
                there = np.frombuffer(block.data, np.uint8).reshape(-1, QUEUE_UNIT.size)
                rows = slice(start + at, start + at + block.count)
                wanted[at : at + block.count] = phy_offsets(there) < self._phy[rows]
            at += block.count
            if block.hole is not None:
                at = block.hole.stop - first
        if wanted.any():
            self._renew(queue)
        edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False)).tolist()
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            self._pieces.add(queue.index, start + low, high - low, first + low)

    def _restart(self, queue: _PlannedQueue, first: int, start: int) -> None:
        """Plan the end of a queue's older incarnation from offset ``first`` on."""
        prefix = queue.prefix
        self._pieces.cut(queue.first_piece, first)
        self.write.delete_ranges.append(
            (Family.DEFAULT, unit_key(prefix, first), prefix_end(prefix))
        )
        self._renew(queue)
        dropped = range(first, queue.last.queue_offset + 1)
        self.restarts.append(QueueRestart(queue.key, dropped, int(self._phy[start])))

    def _renew(self, queue: _PlannedQueue) -> None:
        """Delete the ``min`` entry: without it, the first live unit is searched in the units."""
        self.write.deletes.append((Family.OFFSET, min_key(queue.prefix)))
        queue.renewed = True

    def _check_gap(self, queue: _PlannedQueue, first: int, start: int) -> None:
        """Allow a queue to continue after a gap only if all its units have expired."""
        phy, offset = queue.last
        if offset < 0 or phy < self._min_phy_offset():
            return
        unwritten = queue.last != queue.before
        if not unwritten and self._units.get(queue.prefix, offset) is None:
            return  # entry without a unit, as after RocketMQ's initialisation of a queue
        raise queue_gap(queue.key, int(self._phy[start]), expected=offset + 1, got=first)
