"""Durations in buckets, in Python: what the core's are compared with."""

import threading
from bisect import bisect_left
from collections.abc import Sequence

from cqstore.store.service.runtime.histogram_snapshot import BOUNDS, HistogramSnapshot


class Histogram:
    """Durations in buckets. Any thread may call any method."""

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        self._bounds = tuple(bounds)
        self._lock = threading.RLock()  # guards both
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        bucket = bisect_left(self._bounds, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._total += seconds

    def restore(self, before: HistogramSnapshot) -> None:
        """Add what another histogram of the same bounds held."""
        with self._lock:
            self._counts = [
                mine + other for mine, other in zip(self._counts, before.counts, strict=True)
            ]
            self._total += before.total_seconds

    def snapshot(self) -> HistogramSnapshot:
        """Return what was observed until now."""
        with self._lock:
            return HistogramSnapshot(tuple(self._counts), self._total, self._bounds)
