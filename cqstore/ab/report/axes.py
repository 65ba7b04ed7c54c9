"""Logarithmic axes of plots. Positions are percent of an axis, so that plots fit any width."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_RATIOS: Sequence[Sequence[float]] = (
    (10, 100, 1000),
    (2, 5, 20, 50),
    (1.5, 3),
    (1.2,),
    (1.1,),
    (1.05,),
)
"""Marks of a ratio's axis, those that matter most first; their inverses come with them."""
_EDGE = 8
_FEW = 2
_TEN = 10


class AxisTick(NamedTuple):
    """A mark of an axis, with its label."""

    at: float
    value: float
    anchor: str
    """Where its label hangs, so that none leaves the plot: start, middle, end."""


def tick_at(at: float, value: float) -> AxisTick:
    """Return a mark at a position of an axis, in percent."""
    return AxisTick(at, value, "start" if at < _EDGE else "end" if at > 100 - _EDGE else "middle")


class Axis(NamedTuple):
    """A logarithmic axis from ``low`` to ``high``, both positive."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the position of a value, 0 to 100; values outside are put at the edge."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)

    def holds(self, value: float) -> bool:
        """Return whether a value is on the axis."""
        return self.low <= value <= self.high

    def tick(self, value: float) -> AxisTick:
        """Return the mark of a value on the axis."""
        return tick_at(self.at(value), value)


def axis_of(values: Iterable[float], minimum: float, room: float = 1.08) -> Axis:
    """Return an axis for the positive ``values``; its ends have at least the ratio ``minimum``."""
    found = [value for value in values if value > 0] or [1.0]
    low, high = min(found) / room, max(found) * room
    if high / low < minimum:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(minimum), middle * math.sqrt(minimum)
    return Axis(low, high)


def ratio_axis(values: Iterable[float], farthest: float = 100.0) -> Axis:
    """Return an axis of ratios that includes 1, limited to ``farthest`` in both directions."""
    kept = [min(farthest, max(1 / farthest, value)) for value in values]
    return axis_of([*kept, 1 / 1.15, 1.15], 1.0)


def ratio_ticks(axis: Axis, minimum: float = 13) -> list[AxisTick]:
    """Return marks of an axis of ratios, at least ``minimum`` percent apart."""
    made = [axis.tick(1.0)]
    for row in _RATIOS:
        for value in (each for times in row for each in (times, 1 / times)):
            tick = axis.tick(value)
            if axis.holds(value) and all(abs(tick.at - other.at) >= minimum for other in made):
                made.append(tick)
    return sorted(made)


def apart(marks: Iterable[tuple[AxisTick, str]], letter: float) -> list[tuple[AxisTick, str]]:
    """Return the marks whose labels do not overlap; ``letter`` is the width of a letter."""
    kept: list[tuple[AxisTick, str]] = []
    for tick, text in marks:
        room = letter * (len(text) + len(kept[-1][1]) + 1) / 2 if kept else 0.0
        if not kept or tick.at - kept[-1][0].at >= room:
            kept.append((tick, text))
    return kept


def decade_ticks(axis: Axis, limit: int = 6, base: int = 10) -> list[AxisTick]:
    """Return marks at powers of ``base``, and between them if there are few."""
    first, last = math.floor(math.log(axis.low, base)), math.ceil(math.log(axis.high, base))
    steps = range(first, last + 1)
    powers = [float(base) ** step for step in steps if axis.holds(float(base) ** step)]
    if len(powers) > _FEW:
        return [axis.tick(value) for value in powers[:: math.ceil(len(powers) / limit)]]
    leads = (1, 2, 5) if base == _TEN else (1, 4)
    finer = [lead * float(base) ** step for step in steps for lead in leads]
    return [axis.tick(value) for value in finer if axis.holds(value)]
