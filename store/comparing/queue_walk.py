"""QueueWalk: iterates over one queue from its first unit to its last, on both sides."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.comparing.alignment import Stretch
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.sums import Columns, Longs, columns, queue_seed, unit_hashes
from cqstore.store.comparing.tally import DifferenceKind
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.queue.bulk import UnitRows

NO_END = LONG_MAX
"""``Bounds.complete_to`` if the whole log counts."""


class Bounds(NamedTuple):
    """The range of the log to compare, in bytes."""

    min_phy_offset: int
    """Units of records that begin before it have expired."""
    complete_to: int
    """The target may lack units of records that end after it."""


@dataclass(slots=True)
class _Absent:
    """Adjacent units that the target lacks."""

    first: int
    last: int
    units: int


class QueueWalk:
    """Takes the stretches of one queue in order; returns units that both sides have."""

    def __init__(
        self,
        found: QueueFindings,
        bounds: Bounds,
        ends: tuple[int, int],
        *,
        once: DifferenceKind | None,
    ) -> None:
        """``ends``: next offsets of source and target; ``once``: the kind if only one has it."""
        self.found = found
        self.expired = [0, 0]
        self.later = 0
        self.unreachable = 0
        self._bounds = bounds
        self._ends = ends
        self._once = once
        self._begun = False  # a unit of the source with a record in the log was found
        self._met = False  # a unit that both sides have was found
        self._absent: list[_Absent] = []  # since that unit
        self._later: list[tuple[int, Longs, Columns]] = []  # absent, which is allowed

    @property
    def is_empty(self) -> bool:
        """Return whether the queue never had a unit on either side."""
        units = self.found.source.units + self.found.target.units
        return not (units or self.later or any(self.expired) or any(self._ends))

    def advance(self, stretch: Stretch) -> Stretch | None:
        """Record units that only one side has; return units of both sides, to be compared."""
        offset, source, target = stretch
        if source is not None:
            reachable = min(max(self._ends[0] - offset, 0), len(source))
            if reachable < len(source):
                return self._skip_unreachable(offset, source, target, reachable)
            if not self._begun:
                return self._skip_expired(offset, source, target)
            if target is None:
                self._note_missing(offset, source)
                return None
            self._classify_missing()
            return stretch
        if target is not None:
            self._has_more(offset, target)
        return None

    def _skip_unreachable(
        self, offset: int, source: UnitRows, target: UnitRows | None, reachable: int
    ) -> Stretch | None:
        """Count units after the end that the source has stored; they are not part of its queue."""
        self.unreachable += len(source) - reachable
        both = None
        if reachable:
            head = None if target is None else target[:reachable]
            both = self.advance(Stretch(offset, source[:reachable], head))
        if target is not None:
            self._has_more(offset + reachable, target[reachable:])
        return both

    def _skip_expired(
        self, offset: int, source: UnitRows, target: UnitRows | None
    ) -> Stretch | None:
        """Skip units whose records have left the log."""
        first = 0
        if len(source) and int(source[0]["phy_offset"]) < self._bounds.min_phy_offset:
            live = source["phy_offset"] >= self._bounds.min_phy_offset
            first = int(np.argmax(live)) if live.any() else len(source)
        self.expired[0] += first
        if target is not None:
            self.expired[1] += first
        if first == len(source):
            return None
        self._begun = True
        rest = None if target is None else target[first:]
        return self.advance(Stretch(offset + first, source[first:], rest))

    def _has_more(self, offset: int, rows: UnitRows) -> None:
        """Record units that only the target has."""
        extra = np.ones(len(rows), np.bool_)
        if not self._begun:
            extra = rows["phy_offset"] >= self._bounds.min_phy_offset
            self.expired[1] += len(rows) - int(np.count_nonzero(extra))
        at = np.flatnonzero(extra)
        if not len(at):
            return
        units, hashes = self._sum_of(offset, rows)
        self.found.target.add_units(units.of(at), hashes[at])
        if self._once is None:
            self._list(DifferenceKind.EXTRA, offset, at, units)

    def _list(self, kind: DifferenceKind, offset: int, at: Longs, units: Columns) -> None:
        """Record the units ``at`` as findings of one kind, one per run of units."""
        self.found.count(kind, len(at))
        for run in np.split(at, np.flatnonzero(np.diff(at) != 1) + 1):
            first, last = int(run[0]), int(run[-1])
            phy_offset = int(units.phy_offset[first])
            self.found.add(
                kind, offset + first, offset + last, units=len(run), field_name="phy_offset",
                target=phy_offset,
            )  # fmt: skip

    def _note_missing(self, offset: int, rows: UnitRows) -> None:
        """Record units that only the source has; their kind is known when the next units follow."""
        units, hashes = self._sum_of(offset, rows)
        due = units.phy_offset + units.size <= self._bounds.complete_to
        at = np.flatnonzero(due)
        self.found.source.add_units(units.of(at), hashes[at])
        if len(at):
            self._note_absent(offset + int(at[0]), offset + int(at[-1]), len(at))
        if len(at) < len(rows):
            at = np.flatnonzero(~due)
            self._later.append((offset, at, units.of(at)))

    def _note_absent(self, first: int, last: int, units: int) -> None:
        known = self._absent[-1] if self._absent else None
        if known is not None and known.last == first - 1:
            known.last = last
            known.units += units
        else:
            self._absent.append(_Absent(first, last, units))

    def _classify_missing(self) -> None:
        """Record units that the target lacks before this position: at its head, or as a hole."""
        for offset, at, units in self._later:
            # The target has later units itself, so it should have these too.
            hashes = unit_hashes(self._seeds(len(at)), offset + at, units)
            self.found.source.add_units(units, hashes)
            self._note_absent(offset + int(at[0]), offset + int(at[-1]), len(at))
        self._later = []
        if self._absent:
            self._absent.sort(key=lambda each: each.first)
            self._finish(DifferenceKind.HOLE if self._met else DifferenceKind.MISSING_HEAD)
        self._met = True

    def _finish(self, kind: DifferenceKind) -> None:
        for each in self._absent:
            self.found.count(kind, each.units)
            self.found.add(kind, each.first, each.last, units=each.units)
        self._absent = []

    def end(self) -> None:
        """Record the results that are known only at the end of the queue."""
        self.later = sum(len(at) for _, at, _ in self._later)
        if self._once is not None:
            self._end_once(self._once)
            return
        self._finish(DifferenceKind.MISSING_TAIL if self._met else DifferenceKind.MISSING_HEAD)
        source_end, target_end = self._ends
        if self._later:
            offset, at, _ = self._later[0]
            source_end = offset + int(at[0])
        if source_end != target_end:
            self.found.of_queue(DifferenceKind.NEXT_OFFSET, source_end, target_end)

    def _end_once(self, kind: DifferenceKind) -> None:
        """Record a queue that only one side has, unless all its records end after the bounds."""
        side = 0 if kind is DifferenceKind.ONLY_SOURCE else 1
        if side == 0 and not self._absent and self._later:
            return
        if self.is_empty:
            return
        sums = self.found.target if side else self.found.source
        text = f"{sums.units} units, next offset {self._ends[side]}"
        self.found.of_queue(kind, *((None, text) if side else (text, None)))

    # ---- sums

    def _sum_of(self, offset: int, rows: UnitRows) -> tuple[Columns, NDArray[np.uint64]]:
        units = columns(rows)
        places = np.arange(offset, offset + len(rows))
        return units, unit_hashes(self._seeds(len(rows)), places, units)

    def _seeds(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, queue_seed(self.found.queue), np.uint64)
