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

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, row_bytes
from cqstore.cq_rocksdb.keys import (
    OffsetEntry,
    max_keys,
    min_key,
    prefix_end,
    queue_prefix,
    unit_key,
)
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable, PlannedEnds
from cqstore.cq_rocksdb.queues.state_cache import FIELDS, UNKNOWN
from cqstore.cq_rocksdb.queues.unit_table import UnitTable
from cqstore.store.errors import QueueGapError
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, UnitRuns

MinPhyOffset = Callable[[], int]
_PHY = slice(0, 8)
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
        self._phy = _phy_offsets(runs.units)
        self._pieces = _Pieces()
        self._prefixes = [queue_prefix(*queue) for queue in runs.queues]
        self._rows = offsets.rows(self._prefixes)
        self._after = np.empty((0, FIELDS), np.int64)
        self._renewed = False
        self.write = EngineBatch()
        self.restarts: list[QueueRestart] = []

    def plan(self) -> EngineBatch:
        """Return the units and entries of the batch as one write.

        Raises:
            QueueGapError: a unit is beyond the end of a queue that has live units.
        """
        order = sorted(range(len(self._runs)), key=self._prefixes.__getitem__)  # stable
        if order and not self._plan_appends(order):
            self._plan_runs(order)
        write = self.write
        write.prefix_index, write.queue_offset, rows = self._pieces.expand()
        write.units = self._runs.units[rows]
        return write

    def ends(self) -> PlannedEnds:
        """Return the rows of the queues after the write."""
        return PlannedEnds(list(self.write.prefixes), self._after, renewed=self._renewed)

    def _plan_appends(self, order: list[int]) -> bool:
        """Plan the batch without a step per queue, if every run simply follows in its queue."""
        runs, prefixes = self._runs, self._prefixes
        if len(set(prefixes)) < len(prefixes):
            return False
        starts, ends = np.array(runs.starts), np.array(runs.ends)
        first = np.array(runs.first_offsets, np.int64)
        rows = self._rows
        follows = (first == rows[:, 1] + 1) & (self._phy[starts] > rows[:, 0])
        if not follows.all():
            return False
        after = rows.copy()
        after[:, 0] = self._phy[ends - 1]
        after[:, 1] = first + ends - starts - 1
        pieces = self._pieces
        pieces.prefix = list(range(len(order)))
        pieces.row = starts[order].tolist()
        pieces.count = (ends - starts)[order].tolist()
        pieces.queue_offset = first[order].tolist()
        self._plan_max_entries([prefixes[run] for run in order], after[order])
        return True

    def _plan_runs(self, order: list[int]) -> None:
        """Plan the runs one by one, for queues with several runs or with existing units."""
        runs, prefixes = self._runs, self._prefixes
        planned: list[_PlannedQueue] = []
        first_runs: list[int] = []
        for run in order:
            prefix = prefixes[run]
            if not planned or planned[-1].prefix != prefix:
                before = OffsetEntry(*self._rows[run, :2].tolist())
                place = len(planned), len(self._pieces.row)
                planned.append(_PlannedQueue(runs.queues[run], prefix, before, *place, before))
                first_runs.append(run)
            self._place(planned[-1], runs.first_offsets[run], runs.starts[run], runs.ends[run])
        after = self._rows[first_runs]
        after[:, :2] = [queue.last for queue in planned]
        renewed = [queue.renewed for queue in planned]
        after[renewed, 2:] = UNKNOWN
        self._renewed = any(renewed)
        changed = np.array([queue.last != queue.before for queue in planned], bool)
        self._plan_max_entries([queue.prefix for queue in planned], after, changed)

    def _plan_max_entries(
        self,
        prefixes: list[bytes],
        after: NDArray[np.int64],
        changed: NDArray[np.bool_] | None = None,
    ) -> None:
        """Plan the ``max`` entries of the queues, in key order; all of them, or those changed."""
        self._after = after
        self.write.prefixes = prefixes
        keys = max_keys(prefixes)
        values = row_bytes(np.ascontiguousarray(after[:, :2]).astype(">i8").view(np.uint8))
        puts = zip(keys, values, strict=True)
        self.write.puts = list(puts if changed is None else compress(puts, changed.tolist()))

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
                wanted[at : at + block.count] = _phy_offsets(there) < self._phy[rows]
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
        raise QueueGapError(
            f"queue {queue.key.queue_id} of topic {queue.key.topic!r}: units are missing before the"
            " next record",
            phy_offset=int(self._phy[start]), expected=offset + 1, got=first,
        )  # fmt: skip


def _phy_offsets(units: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(units[:, _PHY]).view(">i8").ravel().astype(np.int64)
