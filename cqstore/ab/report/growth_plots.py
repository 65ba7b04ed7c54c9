"""Plots of memory and disk over time, on linear axes that begin at 0."""

import math
from collections.abc import Callable, Iterator

from cqstore.ab.judging.words import Measure, value_text
from cqstore.ab.report.axes import AxisTick, tick_at
from cqstore.ab.report.plots import Line, LinePlot
from cqstore.ab.results.result import Result, Sample
from cqstore.cli.progress import span_of_time

_POINTS = 120
"""Maximum number of points of a line; each is the maximum of its time."""
_TICKS = 4
_TIMES = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200)
_DAY = 86_400
_HEADROOM = 1.08
_MIN_SAMPLES = 2
_FIGURES: dict[str, Callable[[Sample], int]] = {
    "memory": lambda sample: sample.pss_bytes,
    "disk, queues": lambda sample: sample.disk_bytes,
}


def growth_plots(result: Result) -> Iterator[LinePlot]:
    """Yield a plot per figure with a line per side; none with fewer than two samples per side."""
    twins = {side.name for side in result.sides if side.twin_of}
    lines = {
        side.name: found
        for side in result.sides
        if len(found := [each for each in result.samples if each.side == side.name]) >= _MIN_SAMPLES
    }
    end = max((found[-1].at for found in lines.values()), default=0.0)
    if not end:
        return
    for label, value in _FIGURES.items():
        points = {name: _thinned(found, value, end) for name, found in lines.items()}
        top = max(size for line in points.values() for _, size in line) * _HEADROOM or 1.0
        drawn = [
            Line(name, "twin series" if name in twins else "series", [
                (_percent(at / end), _percent(1 - size / top)) for at, size in line
            ])
            for name, line in points.items()
        ]  # fmt: skip
        yield LinePlot(label, _x_ticks(end), _y_ticks(top), drawn)


def _x_ticks(end: float) -> list[tuple[AxisTick, str]]:
    return [
        (tick_at(_percent(at / end), at), span_of_time(at)) for at in _steps(end, _time_step(end))
    ]


def _y_ticks(top: float) -> list[tuple[AxisTick, str]]:
    return [
        (tick_at(_percent(1 - size / top), size), value_text(size, Measure.BYTES) if size else "0")
        for size in _steps(top, _size_step(top))
    ]


def _thinned(
    found: list[Sample], value: Callable[[Sample], int], end: float
) -> list[tuple[float, int]]:
    """Return at most ``_POINTS`` points, each the largest value of its part of the time."""
    most: dict[int, tuple[float, int]] = {}
    for sample in found:
        part = min(int(sample.at / end * _POINTS), _POINTS - 1)
        if part not in most or value(sample) > most[part][1]:
            most[part] = sample.at, value(sample)
    return [most[part] for part in sorted(most)]


def _steps(end: float, step: float) -> list[float]:
    return [number * step for number in range(int(end / step) + 1)]


def _time_step(end: float) -> float:
    """Return a round number of seconds of which at most ``_TICKS`` fit into ``end``."""
    least = end / _TICKS
    return next((float(step) for step in _TIMES if step >= least), _DAY * math.ceil(least / _DAY))


def _size_step(top: float) -> float:
    """Return a power of two bytes of which at most ``_TICKS`` fit into ``top``."""
    return float(2 ** math.ceil(math.log2(max(top / _TICKS, 1.0))))


def _percent(share: float) -> float:
    return round(100 * share, 2)
