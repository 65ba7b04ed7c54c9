"""Latencies of whole workloads, from merged histograms, and when they are withheld."""

import zlib
from typing import TYPE_CHECKING

from cqstore.ab.results.result import PERCENTILES, WorkloadFigures
from cqstore.store.errors import StoreConfigError

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

REACHED = 0.98
"""Share of the offered rate below which latencies from the due time are withheld."""
_CURVE = (10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999)
_NANOSECONDS = 1e9


def histogram(
    workload: WorkloadFigures, side: str, *, intended: bool = False
) -> "HdrHistogram | None":
    """Return a side's histogram of nanoseconds, if it has one.

    Needs hdrhistogram, see ``need_extras``.

    Raises:
        StoreConfigError: it cannot be read.
    """
    from hdrh import codec  # noqa: PLC0415 - an extra
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415

    text = (workload.intended if intended else workload.service).get(side)
    if not text:
        return None
    try:
        found = HdrHistogram.decode(text)
    except (
        codec.HdrCookieException, codec.HdrHistogramSettingsException, codec.HdrLengthException,
        ValueError, TypeError, IndexError, OverflowError, zlib.error,
    ) as exc:  # fmt: skip
        raise StoreConfigError(
            f"the histogram of {side} at {workload.name} is not valid HdrHistogram V2 data"
        ) from exc
    return found if found.total_count else None


def merged(workload: WorkloadFigures, side: str, key: str) -> float | None:
    """Return a percentile over all rounds in seconds; ``key`` is a figure such as service_p99.

    ``None`` if no operation is above it.
    """
    kind, _, name = key.partition("_")
    found = histogram(workload, side, intended=kind == "intended")
    if found is None:
        return None
    if name == "max":
        return float(found.get_max_value()) / _NANOSECONDS
    percentile = PERCENTILES[name]
    if found.total_count * (1 - percentile / 100) < 1 - 1e-9:
        return None
    return float(found.get_value_at_percentile(percentile)) / _NANOSECONDS


def curve(
    workload: WorkloadFigures, side: str, *, intended: bool = False
) -> list[tuple[float, float]]:
    """Return percentiles with seconds, up to the last one with an operation above it."""
    found = histogram(workload, side, intended=intended)
    if found is None:
        return []
    shown = [each for each in _CURVE if found.total_count * (1 - each / 100) >= 1 - 1e-9]
    return [(each, float(found.get_value_at_percentile(each)) / _NANOSECONDS) for each in shown]


def withheld(workload: WorkloadFigures, side: str) -> str:
    """Return why a side's latencies from the due time are withheld; empty if they are shown.

    A side that cannot reach the offered rate is delayed more and more: its percentile depends on
    the length of the run, not on the side.
    """
    turns = [turn for turn in workload.rounds if turn.side == side and not turn.warm_up]
    seconds = sum(turn.seconds for turn in turns)
    if workload.mode != "open" or not workload.offered or not seconds:
        return ""
    reached = sum(turn.operations for turn in turns) / seconds
    if reached >= REACHED * workload.offered:
        return ""
    return (
        f"{side} reached {reached:,.0f} of {workload.offered:,.0f} operations per second: its"
        " latencies from the due time would only depend on the length of the run"
    )
