"""BatchPlan: what a batch of units means for the queues, as one atomic write.

A unit is new if its record lies behind that of the queue's last unit. New units are appended, or
begin a new life of the queue, or jump a gap. The others are a replay: they fill what is missing and
leave what is there, and where two lives of a queue claim an offset, the later record wins. So a
replay from any position ends in the same state, and may be cut short anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

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
    """One queue while its runs are planned."""

    key: QueueKey
    state: QueueState
    prefix: int
    first_piece: int
    last: OffsetEntry
    renewed: bool = False
    """Its first live unit may be another one than before."""


class BatchPlan:
    """Plans one batch; nothing is written before the whole plan stands.

    After the write, ``states`` are to be given to the offset table.
    """

    def __init__(self, units: UnitTable, min_phy_offset: MinPhyOffset) -> None:
        self._units = units
        self._min_phy_offset = min_phy_offset
        self._pieces = _Pieces()
        self._prefixes: list[bytes] = []
        self._planned: list[_Queue] = []
        self._phy: NDArray[np.int64] = np.empty(0, np.int64)
        self.write = EngineBatch()
        self.restarts: list[QueueRestart] = []

    def plan(self, runs: UnitRuns, states: list[QueueState]) -> EngineBatch:
        """Return the write for ``runs``; ``states[r]`` is that of the queue of run *r*.

        Raises:
            QueueGapError: a unit lies beyond the end of a queue that has live units.
        """
        self._phy = np.ascontiguousarray(runs.units[:, _PHY]).view(">i8").ravel().astype(np.int64)
        first_phy = self._phy[runs.starts].tolist()
        last_phy = self._phy[np.array(runs.ends, np.int64) - 1].tolist() if len(runs) else []
        prefixes = [state.prefix for state in states]
        pieces, queue = self._pieces, None
        for run in sorted(range(len(runs)), key=prefixes.__getitem__):  # stable: dispatch order
            if queue is None or queue.state.prefix != prefixes[run]:
                queue = self._begin(runs.queues[run], states[run])
            first, start, end = runs.first_offsets[run], runs.starts[run], runs.ends[run]
            phy, offset = queue.last
            if first == offset + 1 and first_phy[run] > phy:
                pieces.add(queue.prefix, start, end - start, first)
                queue.last = OffsetEntry(last_phy[run], first + end - start - 1)
            else:
                self._place(queue, first, start, end)
        return self._finish(runs)

    def states(self) -> list[tuple[QueueKey, QueueState]]:
        """Return the queues of the batch with their states after the write."""
        changed = []
        for queue in self._planned:
            state = queue.state
            if queue.renewed:  # readers may still be filling the old one's `first`
                state = QueueState(state.prefix, queue.last)
            state.last = queue.last
            changed.append((queue.key, state))
        return changed

    def _begin(self, key: QueueKey, state: QueueState) -> _Queue:
        queue = _Queue(key, state, len(self._prefixes), len(self._pieces.row), state.last)
        self._prefixes.append(state.prefix)
        self._planned.append(queue)
        return queue

    def _place(self, queue: _Queue, first: int, start: int, end: int) -> None:
        """Plan a run that is not simply the next one of its queue."""
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
                there = np.frombuffer(block.data, np.uint8).reshape(-1, QUEUE_UNIT.size)[:, _PHY]
                stored = np.ascontiguousarray(there).view(">i8").ravel()
                rows = slice(start + at, start + at + block.count)
                wanted[at : at + block.count] = stored < self._phy[rows]
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

    def _finish(self, runs: UnitRuns) -> EngineBatch:
        write = self.write
        write.prefixes = self._prefixes
        write.prefix_index, write.queue_offset, rows = self._pieces.expand()
        write.units = runs.units[rows]
        write.puts = [
            (queue.state.max_key, _PACK_ENTRY(*queue.last))
            for queue in self._planned
            if queue.last is not queue.state.last
        ]
        return write
