"""Latencies as percentiles and histograms, computed after the measurement.

Values are rounded to three digits and added with their counts: recording each value takes 7 µs.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cqstore.ab.results.result import PERCENTILES

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

LONGEST_NS = 3_600_000_000_000
DIGITS = 3


def percentiles(nanoseconds: Sequence[int]) -> dict[str, int]:
    """Return the percentiles of a turn in nanoseconds, rounded up to a measured value."""
    if not nanoseconds:
        return {}
    values = np.array(nanoseconds, np.int64)
    found = np.percentile(values, list(PERCENTILES.values()), method="higher")
    return dict(zip(PERCENTILES, (int(each) for each in found), strict=True))


def histogram(nanoseconds: Sequence[int] = ()) -> "HdrHistogram":
    """Return a histogram of latencies with three digits.

    Needs hdrhistogram, see ``need_extras``.
    """
    values = np.clip(np.array(nanoseconds, np.int64), 1, LONGEST_NS)
    step = 10 ** np.maximum(np.log10(np.maximum(values, 1)).astype(np.int64) - DIGITS, 0)
    rounded, counts = np.unique(values // step * step, return_counts=True)
    return histogram_of(dict(zip(rounded.tolist(), counts.tolist(), strict=True)))


def histogram_of(counts: Mapping[int, int]) -> "HdrHistogram":
    """Return a histogram of nanoseconds with their counts; see ``histogram``."""
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - an extra

    made = HdrHistogram(1, LONGEST_NS, DIGITS)
    for value, count in counts.items():
        made.record_value(value, count)
    return made
