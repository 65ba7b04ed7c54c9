"""Positions in the plots of the HTML report; the templates draw them."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from cqstore.ab.judging.intervals import Interval
from cqstore.ab.judging.judgement import ComparedFigure, Judgement, Outcome, Projection
from cqstore.ab.judging.latencies import curve
from cqstore.ab.judging.words import Measure, ratio_text, short_text, span_text, value_text
from cqstore.ab.report.axes import (
    Axis,
    AxisTick,
    apart,
    axis_of,
    decade_ticks,
    ratio_axis,
    ratio_ticks,
)
from cqstore.ab.results.result import Result, WorkloadFigures

_PERCENTILES = (50, 90, 99, 99.9, 99.99, 99.999)
_PROJECTED = 24
_LETTER = 3.2
"""Percent of a small plot's width."""


class Mark(NamedTuple):
    """A row of the plot of ratios: further right is better."""

    workload: str
    side: str
    outcome: Outcome
    text: str
    at: float
    low: float
    high: float
    floor_low: float
    floor_high: float
    """Both ends of the noise floor; equal if none was measured."""


class RatioPlot(NamedTuple):
    """Plot of ratios, with one row per workload and side."""

    reference: str
    ticks: list[AxisTick]
    rows: list[Mark]


class Line(NamedTuple):
    """A line of a plot, with the positions of its points."""

    side: str
    kind: str
    points: list[tuple[float, float]]

    @property
    def segments(self) -> list[tuple[float, float, float, float]]:
        """Return its segments, because SVG takes percentages only for them."""
        return [(*one, *following) for one, following in pairwise(self.points)]


class LinePlot(NamedTuple):
    """Lines on two logarithmic axes; y grows downwards, as in SVG."""

    title: str
    x_ticks: list[tuple[AxisTick, str]]
    y_ticks: list[tuple[AxisTick, str]]
    lines: list[Line]


def ratio_plot(judgement: Judgement) -> RatioPlot | None:
    """Return the plot of the figures of the sentences that have an interval.

    ``None`` if answers differ, or if there is no such figure.
    """
    if judgement.answers.status != "same":
        return None
    found = [
        (
            workload.name
            + ("" if compared.figure == workload.headline else f" by {compared.label}"),
            compared,
        )
        for workload in judgement.workloads
        for compared in workload.deciding()
        if compared.low
    ]
    if not found:
        return None
    values = [
        value for _, compared in found for value in (*(compared.as_good or ()), compared.floor or 1)
    ]
    axis = ratio_axis(values)
    return RatioPlot(judgement.reference, ratio_ticks(axis), [_mark(axis, *each) for each in found])


def _mark(axis: Axis, workload: str, compared: ComparedFigure) -> Mark:
    ratio, low, high = compared.as_good or Interval(1.0, 1.0, 1.0)
    floor = compared.floor or 1.0
    return Mark(
        workload, compared.side, compared.outcome, f"{ratio_text(ratio)} ({span_text(low, high)})",
        axis.at(ratio), axis.at(low), axis.at(high), axis.at(1 / floor), axis.at(floor),
    )  # fmt: skip


def latency_plot(
    result: Result,
    workload: WorkloadFigures,
    *,
    intended: bool = False,
    without: Collection[str] = (),
) -> LinePlot | None:
    """Return the plot of a workload's latency percentiles, one line per side."""
    names = [side.name for side in result.sides if side.name not in without]
    curves = {name: curve(workload, name, intended=intended) for name in names}
    curves = {side: points for side, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    seconds = [value for points in curves.values() for _, value in points]
    rarest = max(points[-1][0] for points in curves.values())
    across, up = Axis(_rarity(10), _rarity(rarest) * 1.02), axis_of(seconds, 3.0)
    shown = [each for each in _PERCENTILES if each <= rarest]
    twins = {side.name for side in result.sides if side.twin_of}
    return LinePlot(
        workload.name + (", from the due time" if intended else ""),
        apart(((across.tick(_rarity(each)), f"p{each:g}") for each in shown), _LETTER),
        _y_ticks(up, Measure.SECONDS, 6),
        [
            Line(side, "twin" if side in twins else "side", [
                (across.at(_rarity(percentile)), 100 - up.at(value)) for percentile, value in points
            ])
            for side, points in curves.items()
        ],
    )  # fmt: skip


def _rarity(percentile: float) -> float:
    """Return n such that one of n operations is above a percentile."""
    return 100 / (100 - percentile)


def _y_ticks(axis: Axis, unit: Measure, limit: int) -> list[tuple[AxisTick, str]]:
    ticks = decade_ticks(axis, limit, 16 if unit is Measure.BYTES else 10)
    return [(_down(axis, tick.value), value_text(tick.value, unit)) for tick in ticks]


def _down(axis: Axis, value: float) -> AxisTick:
    tick = axis.tick(value)
    return tick._replace(at=round(100 - tick.at, 2))


def projection_plots(projections: Sequence[Projection]) -> Iterator[LinePlot]:
    """Yield a plot per figure: measured points, and the line up to the requested size."""
    for label in dict.fromkeys(each.label for each in projections):
        found = [each for each in projections if each.label == label]
        limit = max(each.queues for each in found)
        queues = [count for each in found for count, _ in each.points]
        across = axis_of([*queues, limit], 10.0)
        values = [value for each in found for value in (each.value, *(v for _, v in each.points))]
        up = axis_of(values, 10.0, 1.2)
        lines = [line for each in found for line in _projected(each, across, up)]
        yield LinePlot(
            label,
            [(tick, short_text(tick.value)) for tick in decade_ticks(across, 5)],
            _y_ticks(up, found[0].unit, 5),
            lines,
        )


def _projected(each: Projection, across: Axis, up: Axis) -> Iterator[Line]:
    def place(count: float, value: float) -> tuple[float, float]:
        return across.at(count), round(100 - up.at(max(value, up.low)), 2)

    first, last = each.points[0][0], max(each.queues, each.points[-1][0])
    counts = [first * (last / first) ** (step / _PROJECTED) for step in range(_PROJECTED + 1)]
    yield Line(each.side, "projected", [place(n, each.base + each.a_queue * n) for n in counts])
    yield Line(each.side, "measured", [place(count, value) for count, value in each.points])
