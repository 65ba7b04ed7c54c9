"""Resources of a side at another number of queues: a line through measured points."""

from collections.abc import Iterator
from operator import itemgetter

import numpy as np

from cqstore.ab.judging.judgement import Projection
from cqstore.ab.judging.side_figures import SIDE_FIGURES, SideFigure
from cqstore.ab.results.result import Point, Result

_A_SHARE = "disk_a_queue", "disk_a_unit"
_MIN_POINTS = 2
_EXACT = 1e-9
"""Relative value below which a number is a rounding error."""


def project(result: Result) -> Iterator[Projection]:
    """Yield a projection per figure of each side that was measured at two or more sizes.

    A least-squares line: a base cost and a cost per queue. It never falls: a lower cost for more
    queues is noise.
    """
    for side in result.sides:
        points = [point for point in result.points if point.side == side.name]
        if result.project_to is None or len({point.queues for point in points}) < _MIN_POINTS:
            continue
        for figure in SIDE_FIGURES:
            if figure.key not in _A_SHARE:
                yield _projection(result, figure, points, result.project_to)


def _projection(result: Result, figure: SideFigure, points: list[Point], queues: int) -> Projection:
    """Fit a line through a side's figures at several sizes, and extrapolate it to ``queues``."""
    measured = sorted(
        ((point.queues, figure.of(point.footprint, result.store) or 0.0) for point in points),
        key=itemgetter(0),
    )
    counts, values = (np.array(column, dtype=float) for column in zip(*measured, strict=True))
    a_queue, base = (float(each) for each in np.polyfit(counts, values, 1))
    if a_queue * counts.max() < _EXACT * values.max():
        a_queue, base = 0.0, float(values.mean())
    line = base + a_queue * counts
    misses = float(np.max(np.abs(values - line) / np.maximum(line, values).clip(min=1e-9)))
    misses = misses if misses > _EXACT else 0.0
    return Projection(
        side=points[0].side, figure=figure.key, label=figure.label, unit=figure.unit,
        points=measured, base=base, a_queue=a_queue,
        queues=queues, value=max(0.0, base + a_queue * queues),
        misses_by=misses if len(set(counts)) > _MIN_POINTS else None,
        beyond=queues / float(counts.max()),
    )  # fmt: skip
