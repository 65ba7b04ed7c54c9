"""BatchPlan: what a batch of units means for the queues, as one atomic write.

A unit is new if its record lies behind that of the queue's last unit. New units are appended, or
begin a new life of the queue, or jump a gap. The others are a replay: they fill what is missing and
leave what is there, and where two lives of a queue claim an offset, the later record wins. So a
replay from any position ends in the same state, and may be cut short anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cq_rocksdb.engine import EngineBatch, Family
from cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, min_key, prefix_end, unit_key
from cq_rocksdb.offset_table import QueueState
from cq_rocksdb.unit_table import UnitTable
from store.errors import QueueGapError
from store.queue.consume_queue_store import QueueRestart
from store.queue.units import QUEUE_UNIT, BlockStop, QueueKey, UnitRuns

MinPhyOffset = Callable[[], int]
_PHY = slice(0, 8)
_FILL_UNITS = 4_096
_PACK_ENTRY = OFFSET_ENTRY.struct.pack


@dataclass(slots=True)
class _Pieces:
    """Consecutive rows of a batch that go to consecutive offsets of one queue, as columns."""

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
        """Drop what lies at or behind ``queue_offset`` in the pieces from ``first`` on."""
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
class _Queue:
    """One queue while its runs are planned one by one."""

    key: QueueKey
    state: QueueState
    prefix: int
    first_piece: int
    last: OffsetEntry
    renewed: bool = False
    """Its first live unit may be another one than before."""


class BatchPlan:
    """Plans one batch; nothing is written before the whole plan stands."""

    def __init__(
        self, runs: UnitRuns, states: list[QueueState], units: UnitTable, log: MinPhyOffset
    ) -> None:
        """Take ``runs``, where ``states[r]`` is that of the queue of run *r*."""
        self._runs = runs
        self._states = states
        self._units = units
        self._min_phy_offset = log
        self._phy = _phy_offsets(runs.units)
        self._pieces = _Pieces()
        self._planned: list[_Queue] = []
        self.write = EngineBatch()
        self._in_order: list[QueueState] = []
        self.restarts: list[QueueRestart] = []
        self.queues: list[QueueKey] = []
        """The queues of the batch, each once, in key order."""
        self.lasts: list[OffsetEntry] = []
        """Their ``max`` entries after the write."""

    def plan(self) -> EngineBatch:
        """Return the write.

        Raises:
            QueueGapError: a unit lies beyond the end of a queue that has live units.
        """
        runs, states = self._runs, self._states
        prefixes = [state.prefix for state in states]
        order = sorted(range(len(runs)), key=prefixes.__getitem__)  # stable: keeps dispatch order
        if not self._plan_appends(order):
            self._plan_runs(order)
        write = self.write
        write.prefix_index, write.queue_offset, rows = self._pieces.expand()
        write.units = runs.units[rows]
        return write

    def written(self) -> list[QueueState]:
        """Bring the states of ``queues`` up to date after the write; return them."""
        renewed = {queue.prefix for queue in self._planned if queue.renewed}
        for index, last in enumerate(self.lasts):
            if index in renewed:  # readers may still be filling the old one's `first`
                self._in_order[index] = QueueState(self.write.prefixes[index], last)
            else:
                self._in_order[index].last = last
        return self._in_order

    def _plan_appends(self, order: list[int]) -> bool:
        """Plan the batch without a step a queue, if every run simply follows in its queue."""
        runs, states = self._runs, self._states
        if not order or len(set(states)) < len(states):
            return False
        numbers = chain.from_iterable([state.last for state in states])
        lasts = np.fromiter(numbers, np.int64, 2 * len(states)).reshape(-1, 2)
        starts, ends = np.array(runs.starts), np.array(runs.ends)
        first = np.array(runs.first_offsets, np.int64)
        follows = (first == lasts[:, 1] + 1) & (self._phy[starts] > lasts[:, 0])
        if not follows.all():
            return False
        pieces = self._pieces
        pieces.prefix = list(range(len(order)))
        pieces.row = starts[order].tolist()
        pieces.count = (ends - starts)[order].tolist()
        pieces.queue_offset = first[order].tolist()
        last_phy = self._phy[ends - 1][order].tolist()
        last_offset = (first + ends - starts - 1)[order].tolist()
        lasts_after = list(map(OffsetEntry._make, zip(last_phy, last_offset, strict=True)))
        self._take([(runs.queues[run], states[run]) for run in order], lasts_after)
        return True

    def _plan_runs(self, order: list[int]) -> None:
        """Plan run by run."""
        runs, states = self._runs, self._states
        queue = None
        for run in order:
            if queue is None or queue.state.prefix != states[run].prefix:
                state, index = states[run], len(self._planned)
                queue = _Queue(runs.queues[run], state, index, len(self._pieces.row), state.last)
                self._planned.append(queue)
            self._place(queue, runs.first_offsets[run], runs.starts[run], runs.ends[run])
        planned = self._planned
        self._take(
            [(queue.key, queue.state) for queue in planned], [queue.last for queue in planned]
        )

    def _take(self, queues: list[tuple[QueueKey, QueueState]], lasts: list[OffsetEntry]) -> None:
        self.queues = [key for key, _ in queues]
        self._in_order = [state for _, state in queues]
        self.lasts = lasts
        self.write.prefixes = [state.prefix for state in self._in_order]
        self.write.puts = [
            (state.max_key, _PACK_ENTRY(*last))
            for state, last in zip(self._in_order, lasts, strict=True)
            if last is not state.last
        ]

    def _place(self, queue: _Queue, first: int, start: int, end: int) -> None:
        """Plan one run: what of it is a replay, and how the rest goes on from there."""
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
        self._pieces.add(queue.prefix, start, end - start, first)
        queue.last = OffsetEntry(int(self._phy[end - 1]), first + end - start - 1)

    def _fill(self, queue: _Queue, first: int, start: int, count: int) -> None:
        """Plan replayed units: those that are missing, or whose place an older record has."""
        wanted = np.ones(max(count, 0), bool)
        at = 0
        while at < count:
            block = self._units.block(
                queue.state.prefix, first + at, first + count, min(_FILL_UNITS, count - at)
            )
            if block.count:
                there = np.frombuffer(block.data, np.uint8).reshape(-1, QUEUE_UNIT.size)
                rows = slice(start + at, start + at + block.count)
                wanted[at : at + block.count] = _phy_offsets(there) < self._phy[rows]
            at += block.count
            if block.stop is BlockStop.HOLE and block.hole is not None:
                at = block.hole.stop - first
        if wanted.any():
            self._renew(queue)
        edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False)).tolist()
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            self._pieces.add(queue.prefix, start + low, high - low, first + low)

    def _restart(self, queue: _Queue, first: int, start: int) -> None:
        """Plan the end of a queue's older life from offset ``first`` on."""
        prefix = queue.state.prefix
        self._pieces.cut(queue.first_piece, first)
        self.write.delete_ranges.append(
            (Family.DEFAULT, unit_key(prefix, first), prefix_end(prefix))
        )
        self._renew(queue)
        dropped = range(first, queue.last.queue_offset + 1)
        self.restarts.append(QueueRestart(queue.key, dropped, int(self._phy[start])))

    def _renew(self, queue: _Queue) -> None:
        """Let go of the ``min`` entry: without it the first live unit is sought in the units."""
        if not queue.renewed:
            self.write.deletes.append((Family.OFFSET, min_key(queue.state.prefix)))
        queue.renewed = True

    def _check_gap(self, queue: _Queue, first: int, start: int) -> None:
        """Let a queue go on behind a gap only if all it had has expired."""
        phy, offset = queue.last
        if offset < 0 or phy < self._min_phy_offset():
            return
        unwritten = queue.last is not queue.state.last
        if not unwritten and self._units.get(queue.state.prefix, offset) is None:
            return  # an entry without its unit, as RocketMQ's initialisation of a queue leaves it
        raise QueueGapError(
            f"units of {queue.key.topic}/{queue.key.queue_id} are missing",
            phy_offset=int(self._phy[start]), expected=offset + 1, got=first,
        )  # fmt: skip


def _phy_offsets(units: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(units[:, _PHY]).view(">i8").ravel().astype(np.int64)
