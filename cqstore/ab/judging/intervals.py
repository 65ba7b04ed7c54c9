"""Ratios of rounds: their centre and its confidence interval.

The sample is the round, not the operation: operations of one round share the state of the machine.
Logarithms are used throughout, so that a ratio and its inverse are treated alike.
"""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_ROUNDS, MIN_WITHOUT_FLOOR = 5, 8
"""Minimum number of rounds for an interval, with and without a noise floor."""
_TRIMMED = 0.2
_RESAMPLES = 4999


class Interval(NamedTuple):
    """A ratio and its confidence interval; all three are ratios, not logarithms."""

    ratio: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Return the upper end divided by the lower end."""
        return self.high / self.low

    @property
    def turned(self) -> "Interval":
        """Return the inverse ratio: reference divided by side."""
        return Interval(1 / self.ratio, 1 / self.high, 1 / self.low)

    @property
    def farthest(self) -> float:
        """Return the end that is farther from 1, as a ratio above 1."""
        return max(self.high, 1 / self.low, 1.0)


def centre(values: Sequence[float]) -> float:
    """Return the geometric mean of ``values`` without the lowest and the highest fifth.

    So one bad round has no effect.
    """
    return math.exp(float(_trimmed_mean(np.log(np.asarray(values, dtype=float)))))


def interval(ratios: Sequence[float], confidence: float) -> Interval:
    """Return the centre of the ratios of rounds, and its bootstrap interval (BCa).

    With few rounds bootstrap intervals are too narrow, so the confidence is raised as Student's t
    requires for so few (Hesterberg 2014, "expanded percentiles").

    Needs scipy, see ``need_extras``.
    """
    return _interval([np.log(np.asarray(ratios, dtype=float))], confidence)


def unpaired(mine: Sequence[float], theirs: Sequence[float], confidence: float) -> Interval:
    """Return ``mine`` divided by ``theirs``, values of independent rounds."""
    samples = [np.log(np.asarray(values, dtype=float)) for values in (mine, theirs)]
    return _interval(samples, confidence)


def _interval(samples: "list[NDArray[np.float64]]", confidence: float) -> Interval:
    found = float(_difference(*samples))
    if all(np.ptp(logs) == 0 for logs in samples):
        return Interval(*[math.exp(found)] * 3)
    rounds = min(len(logs) for logs in samples)
    low, high = _bootstrap(samples, _expanded(confidence, rounds))
    # If nearly all rounds agree, BCa may move the interval so far that the centre is outside.
    low, high = min(low, found), max(high, found)
    return Interval(math.exp(found), math.exp(low), math.exp(high))


def _difference(*samples: "NDArray[np.float64]", axis: int = -1) -> "NDArray[np.float64]":
    """Return the trimmed mean of the first sample, less that of the second if there is one."""
    first, *others = (_trimmed_mean(logs, axis) for logs in samples)
    return first - others[0] if others else first


def _trimmed_mean(logs: "NDArray[np.float64]", axis: int = -1) -> "NDArray[np.float64]":
    length = logs.shape[axis]
    cut = int(length * _TRIMMED)
    kept = np.take(np.sort(logs, axis=axis), range(cut, length - cut), axis=axis)
    mean: NDArray[np.float64] = kept.mean(axis=axis)
    return mean


def _expanded(confidence: float, rounds: int) -> float:
    from scipy import stats  # noqa: PLC0415 - an extra

    reach = stats.t.ppf(0.5 + confidence / 2, rounds - 1) * math.sqrt(rounds / (rounds - 1))
    return float(2 * stats.norm.cdf(reach) - 1)


def _bootstrap(samples: "list[NDArray[np.float64]]", confidence: float) -> tuple[float, float]:
    """Return the BCa interval of the difference, or the percentile interval if BCa fails."""
    from scipy import stats  # noqa: PLC0415 - an extra

    def of(method: str) -> tuple[float, float]:
        found = stats.bootstrap(
            samples, _difference, confidence_level=confidence, method=method,
            n_resamples=_RESAMPLES, vectorized=True, rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
        return float(found.low), float(found.high)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # if BCa fails, the interval is not a number
        low, high = of("BCa")
        return of("percentile") if math.isnan(low + high) else (low, high)
