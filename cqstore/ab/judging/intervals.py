"""Ratios of rounds: their centre, and the interval that it lies in.

The unit of replication is the round, not the operation: operations of one round share the state of
the machine. All is done with logarithms, so that a ratio and its inverse are treated alike.
"""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_ROUNDS, MIN_WITHOUT_FLOOR = 5, 8
"""Fewer carry no interval. So few hold what they promise only together with a noise floor."""
_TRIMMED = 0.2
_RESAMPLES = 4999


class Interval(NamedTuple):
    """A ratio and how sure it is; all three are ratios, none a logarithm."""

    ratio: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Return the upper end by the lower end."""
        return self.high / self.low

    @property
    def turned(self) -> "Interval":
        """Return the ratio the other way round: of the reference by the side."""
        return Interval(1 / self.ratio, 1 / self.high, 1 / self.low)

    @property
    def farthest(self) -> float:
        """Return how far from 1 it reaches, either way, as a ratio above 1."""
        return max(self.high, 1 / self.low, 1.0)


def centre(values: Sequence[float]) -> float:
    """Return the geometric mean of ``values`` without the lowest and the highest fifth.

    A round that went wrong has no say in it, whatever it says.
    """
    return math.exp(float(_trimmed_mean(np.log(np.asarray(values, dtype=float)))))


def interval(ratios: Sequence[float], confidence: float) -> Interval:
    """Return the centre of the ratios of rounds, and its bootstrap interval (BCa).

    Of few rounds the bootstrap makes intervals that are too narrow, so the confidence is raised by
    what Student's t asks for with so few (Hesterberg 2014, "expanded percentiles").

    Needs scipy, see ``need_extras``.
    """
    return _interval([np.log(np.asarray(ratios, dtype=float))], confidence)


def unpaired(mine: Sequence[float], theirs: Sequence[float], confidence: float) -> Interval:
    """Return ``mine`` by ``theirs``, values of rounds that have nothing to do with each other."""
    samples = [np.log(np.asarray(values, dtype=float)) for values in (mine, theirs)]
    return _interval(samples, confidence)


def _interval(samples: "list[NDArray[np.float64]]", confidence: float) -> Interval:
    found = float(_difference(*samples))
    if all(np.ptp(logs) == 0 for logs in samples):
        return Interval(*[math.exp(found)] * 3)
    rounds = min(len(logs) for logs in samples)
    low, high = _bootstrap(samples, _expanded(confidence, rounds))
    # BCa may move an interval so far when nearly all rounds agree that its centre lies outside.
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
    """Return the BCa interval of the difference, of data that this cannot do the percentile's."""
    from scipy import stats  # noqa: PLC0415 - an extra

    def of(method: str) -> tuple[float, float]:
        found = stats.bootstrap(
            samples, _difference, confidence_level=confidence, method=method,
            n_resamples=_RESAMPLES, vectorized=True, rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
        return float(found.low), float(found.high)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of data that BCa cannot do: the answer is not a number
        low, high = of("BCa")
        return of("percentile") if math.isnan(low + high) else (low, high)
