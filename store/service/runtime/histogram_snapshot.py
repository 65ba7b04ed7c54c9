"""HistogramSnapshot: the counts of a ``Histogram``, and the usual bounds of its buckets."""

from dataclasses import dataclass

BOUNDS = (
    5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
    1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of most histograms' buckets, seconds; one more bucket takes longer durations."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Snapshot of a histogram."""

    counts: tuple[int, ...]
    """Observations per bucket: greater than the previous bound, at most bound *i*; last: longer."""
    total_seconds: float
    bounds: tuple[float, ...] = BOUNDS
    """Upper bounds of the buckets but the last, seconds."""

    @property
    def count(self) -> int:
        """Return the number of observations."""
        return sum(self.counts)
