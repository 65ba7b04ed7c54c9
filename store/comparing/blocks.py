"""Blocks: units that both sides have, from as many queues as needed, compared with numpy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.comparing.alignment import Stretch
from cqstore.store.comparing.log_heads import Heads, RecordHeads
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.sums import (
    FIELDS,
    Columns,
    Longs,
    Sum,
    columns,
    queue_seed,
    unit_hashes,
)
from cqstore.store.comparing.tally import DifferenceKind
from cqstore.store.queue.bulk import NO_TIMESTAMP, UNIT_ROWS, UnitRows, UnitSource
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.record.message import LMQ_PREFIX

BLOCK_UNITS = 1 << 17
Flags = NDArray[np.bool_]
DeepCheck = Callable[[QueueFindings, int, int, int, int], DifferenceKind | None]
"""Queue, queue offset, phy offset, size and tags code of a unit → its fault, if any."""


@dataclass(slots=True)
class _Stretch:
    """Consecutive units of one queue that both sides have, from ``queue_offset`` on."""

    queue: QueueFindings
    queue_offset: int
    source: UnitRows
    target: UnitRows


class WholePair(NamedTuple):
    """A short queue, complete and with the same queue offsets on both sides, as packed rows."""

    queue: QueueKey
    queue_offset: int
    source: bytes | bytearray
    target: bytes | bytearray

    @property
    def units(self) -> int:
        """Return the number of units, which is the same on both sides."""
        return len(self.source) // QUEUE_UNIT.size

    def stretch(self) -> Stretch:
        """Return the units of both sides."""
        rows = (np.frombuffer(each, UNIT_ROWS) for each in (self.source, self.target))
        return Stretch(self.queue_offset, *rows)


class _Joined(NamedTuple):
    """The units of many stretches, one after the other."""

    starts: Longs
    """Row of the first unit of each stretch."""
    lengths: Longs
    places: Longs
    """Queue offset of each unit."""
    source: Columns
    target: Columns
    heads: Heads
    """Heads of the records of the target's units."""


@dataclass(slots=True)
class Blocks:
    """Collects stretches and compares them. One thread."""

    log: RecordHeads
    source: UnitSource
    target: UnitSource
    deep: DeepCheck | None = None
    agreed: bool = field(default=True, kw_only=True)
    """Also compare units that are equal on both sides with the log."""
    shifted: int = 0
    units: int = 0
    _waiting: list[_Stretch] = field(default_factory=list)

    def add(
        self, queue: QueueFindings, queue_offset: int, source: UnitRows, target: UnitRows
    ) -> bool:
        """Add units that both sides have; return whether ``compare`` is due."""
        self._waiting.append(_Stretch(queue, queue_offset, source, target))
        self.units += len(source)
        return self.units >= BLOCK_UNITS

    def compare(self) -> None:
        """Compare the collected units, and update the queues' findings and sums."""
        waiting, self._waiting, self.units = self._waiting, [], 0
        if not waiting:
            return
        starts, lengths, places, source, target, heads = self._join(
            [len(each.source) for each in waiting],
            [each.queue_offset for each in waiting],
            np.concatenate([each.source for each in waiting], dtype=UNIT_ROWS),
            np.concatenate([each.target for each in waiting], dtype=UNIT_ROWS),
        )
        self._sum(waiting, starts, lengths, places, source, target)
        different = self._different(waiting, starts, places, source, target, heads)
        if self.agreed:
            self._check_log(waiting, starts, lengths, places, target, heads, ~different)

    def _join(
        self, counts: Sequence[int], offsets: Sequence[int], source_rows: UnitRows,
        target_rows: UnitRows,
    ) -> _Joined:  # fmt: skip
        """Return the units of stretches with so many units from these queue offsets on."""
        lengths = np.array(counts, np.int64)
        starts = np.cumsum(lengths) - lengths
        firsts = np.array(offsets, np.int64)
        places = np.arange(int(lengths.sum())) + np.repeat(firsts - starts, lengths)
        source, target = columns(source_rows), columns(target_rows)
        heads = self.log.read_heads(target.phy_offset, target.size)
        source_heads = heads
        same = (source.phy_offset == target.phy_offset) & (source.size == target.size)
        if not same.all() and not self.source.has_timestamps:
            source_heads = self.log.read_heads(source.phy_offset, source.size)
        if not self.source.has_timestamps:
            source = _with_times(source, source_heads)
        if not self.target.has_timestamps:
            target = _with_times(target, heads)
        return _Joined(starts, lengths, places, source, target, heads)

    def sum_if_equal(self, pairs: Sequence[WholePair]) -> Sum | None:
        """Return the sum of the units of ``pairs``, the same on both sides.

        ``None``: in at least one unit the sides differ, from each other or from the log, as
        ``compare`` finds them. Records are not decoded.
        """
        joined = self._join(
            [each.units for each in pairs],
            [each.queue_offset for each in pairs],
            np.frombuffer(b"".join([each.source for each in pairs]), UNIT_ROWS),
            np.frombuffer(b"".join([each.target for each in pairs]), UNIT_ROWS),
        )
        _, lengths, places, source, target, heads = joined
        are_equal = (
            heads.found.all()
            and np.array_equal(target.store_timestamp, heads.store_timestamp)
            and all(map(np.array_equal, source, target))
        )
        if not are_equal:
            return None
        if self.agreed:
            own = ~_of_light_queues([each.queue for each in pairs], lengths)
            ids = np.repeat(np.array([each.queue.queue_id for each in pairs], np.int64), lengths)
            if (own & (heads.queue_id != ids)).any():
                return None
            self.shifted += int(np.count_nonzero(own & (heads.queue_offset != places)))
        found = Sum()
        seeds = np.array([queue_seed(each.queue) for each in pairs], np.uint64)
        found.add_units(target, unit_hashes(np.repeat(seeds, lengths), places, target))
        return found

    def _sum(
        self, waiting: list[_Stretch], starts: Longs, lengths: Longs, places: Longs,
        source: Columns, target: Columns,
    ) -> None:  # fmt: skip
        """Add units, bytes and checksum of each side to the queues' sums."""
        seeds = np.array([queue_seed(each.queue.queue) for each in waiting], np.uint64)
        seeds = np.repeat(seeds, lengths)
        sizes: list[list[int]] = []
        hashes: list[list[int]] = []
        for side in (source, target):
            sizes.append(np.add.reduceat(side.size, starts).tolist())
            each_hash = unit_hashes(seeds, places, side)
            hashes.append(np.bitwise_xor.reduceat(each_hash, starts).tolist())
        for number, each in enumerate(waiting):
            count = len(each.source)
            each.queue.source.add(count, sizes[0][number], hashes[0][number])
            each.queue.target.add(count, sizes[1][number], hashes[1][number])

    def _different(
        self, waiting: list[_Stretch], starts: Longs, places: Longs,
        source: Columns, target: Columns, heads: Heads,
    ) -> Flags:  # fmt: skip
        """Record units that differ; return which."""
        different = np.zeros(len(places), np.bool_)
        moved = (source.phy_offset != target.phy_offset) | (source.size != target.size)
        for number, name in enumerate(FIELDS):
            left, right = source[number], target[number]
            differs = left != right
            if name == "store_timestamp":
                if not (self.source.has_timestamps or self.target.has_timestamps):
                    break
                if not (self.source.has_timestamps and self.target.has_timestamps):
                    known = (left != NO_TIMESTAMP) & (right != NO_TIMESTAMP)
                    # If the units differ, a time from the log is that of another record.
                    differs &= known & (~moved | self.target.has_timestamps)
                untrue = heads.found & ~moved & (right != heads.store_timestamp)
                left = np.where(untrue & ~differs, heads.store_timestamp, left)
                differs |= untrue
            if differs.any():
                different |= differs
                self._note_field(waiting, starts, places, name, differs, left, right)
        if different.any():
            for stretch, at in _by_stretch(starts, np.flatnonzero(different)):
                waiting[stretch].queue.count(DifferenceKind.DIFFERENT, len(at))
        return different

    def _note_field(
        self, waiting: list[_Stretch], starts: Longs, places: Longs, name: str,
        differs: Flags, left: Longs, right: Longs,
    ) -> None:  # fmt: skip
        """Record units that differ in one field, with one finding per run of units."""
        for stretch, at in _by_stretch(starts, np.flatnonzero(differs)):
            queue = waiting[stretch].queue
            queue.count_field(name, len(at))
            for run in _runs(at):
                queue.add(
                    DifferenceKind.DIFFERENT, int(places[run[0]]), int(places[run[-1]]),
                    units=len(run), field_name=name, source=int(left[run[0]]),
                    target=int(right[run[0]]),
                )  # fmt: skip

    # ---- units that are equal on both sides, compared with the log

    def _check_log(
        self, waiting: list[_Stretch], starts: Longs, lengths: Longs, places: Longs,
        units: Columns, heads: Heads, equal: Flags,
    ) -> None:  # fmt: skip
        """Record units that are equal on both sides but do not point to a record of their queue."""
        self._note(
            waiting,
            starts,
            places,
            DifferenceKind.NO_RECORD,
            equal & ~heads.found,
            units.phy_offset,
        )
        known = equal & heads.found
        own = known & ~_of_light_queues([each.queue.queue for each in waiting], lengths)
        ids = np.array([each.queue.queue.queue_id for each in waiting], np.int64)
        other = own & (heads.queue_id != np.repeat(ids, lengths))
        self._note(waiting, starts, places, DifferenceKind.OTHER_QUEUE, other, units.phy_offset)
        self.shifted += int(np.count_nonzero(own & ~other & (heads.queue_offset != places)))
        if self.deep is not None:
            self._compare_records(waiting, starts, places, units, known & ~other)

    def _compare_records(
        self, waiting: list[_Stretch], starts: Longs, places: Longs, units: Columns, which: Flags
    ) -> None:
        """Decode the records of the units ``which``, and record the faults found by ``deep``."""
        assert self.deep is not None
        kinds = (DifferenceKind.NO_RECORD, DifferenceKind.OTHER_QUEUE, DifferenceKind.OTHER_TAGS)
        wrong = {kind: np.zeros(len(places), np.bool_) for kind in kinds}
        stretches = np.searchsorted(starts, np.arange(len(places)), "right") - 1
        for at in np.flatnonzero(which).tolist():
            kind = self.deep(
                waiting[int(stretches[at])].queue, int(places[at]), int(units.phy_offset[at]),
                int(units.size[at]), int(units.tags_code[at]),
            )  # fmt: skip
            if kind is not None:
                wrong[kind][at] = True
        for kind, flags in wrong.items():
            values = units.tags_code if kind is DifferenceKind.OTHER_TAGS else units.phy_offset
            self._note(waiting, starts, places, kind, flags, values)

    @staticmethod
    def _note(
        waiting: list[_Stretch], starts: Longs, places: Longs, kind: DifferenceKind, which: Flags,
        values: Longs,
    ) -> None:  # fmt: skip
        """Record the units ``which`` as findings of one kind, one per run of units."""
        for stretch, at in _by_stretch(starts, np.flatnonzero(which)):
            queue = waiting[stretch].queue
            queue.count(kind, len(at))
            for run in _runs(at):
                first, value = int(places[run[0]]), int(values[run[0]])
                queue.add(
                    kind, first, int(places[run[-1]]), units=len(run), source=value, target=value
                )


def _of_light_queues(queues: Sequence[QueueKey], lengths: Longs) -> Flags:
    """Return which units are of light queues; a queue has so many of them."""
    light = [queue.topic.startswith(LMQ_PREFIX) for queue in queues]
    return np.repeat(np.array(light, np.bool_), lengths)


def _with_times(units: Columns, heads: Heads) -> Columns:
    times = np.where(heads.found, heads.store_timestamp, units.store_timestamp)
    return units._replace(store_timestamp=times)


def _by_stretch(starts: Longs, at: Longs) -> list[tuple[int, Longs]]:
    """Return the rows ``at`` by stretch, for stretches that have some."""
    if not len(at):
        return []
    stretches = np.searchsorted(starts, at, "right") - 1
    breaks = np.flatnonzero(np.diff(stretches)) + 1
    numbers = stretches[np.concatenate(([0], breaks))].tolist()
    return list(zip(numbers, np.split(at, breaks), strict=True))


def _runs(at: Longs) -> list[Longs]:
    """Return the rows ``at`` as runs of consecutive rows."""
    return np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
