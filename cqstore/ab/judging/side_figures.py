"""The figures of a comparison: label, unit, and how each is computed from turns."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cqstore.ab.judging.intervals import Interval
from cqstore.ab.judging.words import Measure
from cqstore.ab.results.result import PERCENTILES, Footprint, Round, Shape

THROUGHPUT = "throughput"


class Figure(NamedTuple):
    """A figure of a workload; ``of`` computes it from a side's turns of one round."""

    key: str
    label: str
    unit: Measure
    of: Callable[[Sequence[Round]], float | None]
    more_is_better: bool = False
    lacks: str = "too few operations in a round"
    """Why a side may lack the figure."""


class SideFigure(NamedTuple):
    """A figure of a side's queues while no workload runs, measured once."""

    key: str
    label: str
    unit: Measure
    of: Callable[[Footprint, Shape], float | None]


def _throughput(turns: Sequence[Round]) -> float | None:
    return _by(sum(turn.operations for turn in turns), sum(turn.seconds for turn in turns))


def _cpu(turns: Sequence[Round]) -> float | None:
    return _by(sum(turn.cpu_seconds for turn in turns), sum(turn.operations for turn in turns))


def _written(turns: Sequence[Round]) -> float | None:
    return _by(sum(turn.written_bytes for turn in turns), sum(turn.items for turn in turns))


def _counted(turns: Sequence[Round]) -> float | None:
    if not all(turn.backend_written for turn in turns):
        return None
    total = sum(sum(turn.backend_written.values()) for turn in turns)
    return _by(total, sum(turn.items for turn in turns))


def _disk(turns: Sequence[Round]) -> float | None:
    return _by(sum(turn.disk_bytes for turn in turns), sum(turn.items for turn in turns)) or None


def _memory(turns: Sequence[Round]) -> float | None:
    return float(max(turn.pss_bytes for turn in turns)) or None


def _by(amount: float, count: float) -> float | None:
    return amount / count if count else None


def _latency(field: str, key: str) -> Callable[[Sequence[Round]], float | None]:
    fewest = _fewest(PERCENTILES[key])

    def of(turns: Sequence[Round]) -> float | None:
        found = [getattr(turn, field).get(key) for turn in turns]
        if None in found or 0 in found or min(turn.operations for turn in turns) < fewest:
            return None
        logs = [math.log(nanoseconds) for nanoseconds in found]
        return math.exp(sum(logs) / len(logs)) / 1e9

    return of


def _fewest(percentile: float) -> int:
    """Return the smallest number of operations for which this percentile is meaningful."""
    above = 1 - percentile / 100
    return round(1 / above) if above else 1


def _latencies(field: str, label: str) -> list[Figure]:
    return [
        Figure(f"{field}_{key}", f"{key}{label}", Measure.SECONDS, _latency(f"{field}_ns", key))
        for key in PERCENTILES
    ]


FIGURES: dict[str, Figure] = {
    figure.key: figure
    for figure in (
        Figure(THROUGHPUT, "throughput", Measure.A_SECOND, _throughput, more_is_better=True),
        *_latencies("service", ""),
        *_latencies("intended", " from the due time"),
        Figure("cpu", "CPU time per operation", Measure.SECONDS, _cpu),
        Figure("written", "written per item", Measure.BYTES, _written),
        Figure(
            "counted",
            "written per item, counted by the backend",
            Measure.BYTES,
            _counted,
            lacks="a backend does not count its writes",
        ),
        Figure("disk", "disk space of the queues per item", Measure.BYTES, _disk),
        Figure("memory", "memory", Measure.BYTES, _memory),
    )
}
"""Figures by key, in the order in which they are shown."""
NEVER_JUDGED = {
    "service_max": "determined by a single operation",
    "intended_max": "determined by a single operation",
}
"""Figures that are shown but not judged, and why."""
OF_THE_SIDE = frozenset({"memory"})
"""Figures that hardly depend on the workload: sentences do not repeat them."""

SIDE_FIGURES: tuple[SideFigure, ...] = (
    SideFigure("disk", "on disk", Measure.BYTES, lambda foot, _: foot.disk_bytes),
    SideFigure(
        "disk_a_unit",
        "on disk per unit",
        Measure.BYTES,
        lambda foot, shape: _by(foot.disk_bytes, shape.units),
    ),
    SideFigure(
        "disk_a_queue",
        "on disk per queue",
        Measure.BYTES,
        lambda foot, shape: _by(foot.disk_bytes, shape.queues),
    ),
    SideFigure("files", "files", Measure.COUNT, lambda foot, _: foot.files),
    SideFigure("maps", "memory maps", Measure.COUNT, lambda foot, _: foot.maps),
    SideFigure("descriptors", "descriptors", Measure.COUNT, lambda foot, _: foot.descriptors),
    SideFigure("pss", "memory after opening", Measure.BYTES, lambda foot, _: foot.pss_bytes),
    SideFigure("open", "time to open", Measure.SECONDS, lambda foot, _: foot.open_seconds),
)


def as_good(
    figure: str, ratio: float | None, low: float | None, high: float | None
) -> Interval | None:
    """Return how many times as good the first figure is as the second, given their ratio.

    Above 1 the first is better: the ratio itself if more is better, its inverse if less is better.
    Without an interval both ends are the ratio; ``None`` without a ratio.
    """
    if ratio is None:
        return None
    found, of = Interval(ratio, low or ratio, high or ratio), FIGURES.get(figure)
    return found if of is not None and of.more_is_better else found.turned
