"""Figures: what mirrored reads came to, kept in ``cqstore/ab/figures`` from opening to opening.

Counts by operation and outcome; histograms of seconds by operation, backend and way; and the sums
of each hour, which intervals are computed from. Bounded: hours go after five weeks.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError

from store.errors import CorruptionError, os_errors
from store.files import make_folder
from store.service.journals.journal import Entry, read_lines, rewrite
from store.service.meters import BOUNDS, Histogram, HistogramSnapshot
from store.service.mirroring.verdict import Outcome

FINE_BOUNDS = tuple(sorted({*BOUNDS, *(float(f"{5e-7 * 10 ** (k / 20):.3g}") for k in range(147))}))
"""Upper bounds of buckets, seconds, twenty a power of ten: all of ``BOUNDS`` and more."""
MOST_HOURS = 5 * 7 * 24
HOUR_SECONDS = 3600


class Way(StrEnum):
    """How a backend came to be asked."""

    SERVED = "served"
    """By who wanted to know, in his thread."""
    MIRRORED = "mirrored"
    """Afterwards, by the mirror; of what both were asked so. Only these compare like with like."""


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reads(_Saved):
    """How many reads of an operation had an outcome."""

    op: str
    outcome: Outcome
    reads: NonNegativeInt


class Seconds(_Saved):
    """How long a backend took for an operation, in buckets of ``FINE_BOUNDS``."""

    op: str
    backend: str
    way: Way
    counts: tuple[NonNegativeInt, ...] = Field(
        min_length=len(FINE_BOUNDS) + 1, max_length=len(FINE_BOUNDS) + 1
    )
    total_seconds: NonNegativeFloat

    @property
    def coarse(self) -> HistogramSnapshot:
        """Return it in the buckets of every other histogram."""
        counts = [0] * (len(BOUNDS) + 1)
        at = 0
        for bound, count in zip((*FINE_BOUNDS, float("inf")), self.counts, strict=True):
            while at < len(BOUNDS) and bound > BOUNDS[at]:
                at += 1
            counts[at] += count
        return HistogramSnapshot(tuple(counts), self.total_seconds)


class Hour(_Saved):
    """One hour of a backend and an operation, of reads that both backends were asked alike."""

    hour: NonNegativeInt = Field(description="Since the epoch.")
    op: str
    backend: str
    reads: NonNegativeInt
    items: NonNegativeInt = Field(description="Units that pulls read; 1 for any other read.")
    seconds: NonNegativeFloat


class FiguresSnapshot(_Saved):
    """The figures at one moment."""

    began: NonNegativeFloat = Field(description="First read, seconds since the epoch; 0: none.")
    saved: NonNegativeFloat = Field(description="When this was taken.")
    dropped: NonNegativeInt = Field(description="Reads that came faster than they were mirrored.")
    reads: tuple[Reads, ...] = ()
    seconds: tuple[Seconds, ...] = ()
    hours: tuple[Hour, ...] = ()

    def count(self, *outcomes: Outcome, op: str | None = None) -> int:
        """Return how many reads (of ``op``) had one of the outcomes."""
        return sum(
            each.reads for each in self.reads if each.outcome in outcomes and op in {None, each.op}
        )


class _HourKey(NamedTuple):
    hour: int
    op: str
    backend: str


class Figures:
    """The figures of one store. One thread adds, any may look."""

    def __init__(self, path: Path) -> None:
        """Describe the file; touches none."""
        self._path = path
        self._lock = threading.Lock()  # guards all that follows
        self._began = 0.0
        self._reads: Counter[tuple[str, Outcome]] = Counter()
        self._seconds: defaultdict[tuple[str, str, Way], Histogram] = defaultdict(_histogram)
        self._hours: dict[_HourKey, list[float]] = {}  # reads, items, seconds
        self._dropped_before = 0

    def load(self) -> None:
        """Go on from what was saved.

        Raises:
            CorruptionError: it is damaged.
            StoreIOError: it cannot be read.
        """
        before = read_figures(self._path)
        if before is None:
            return
        with self._lock:
            self._began, self._dropped_before = before.began, before.dropped
            self._reads.update({(each.op, each.outcome): each.reads for each in before.reads})
            for each in before.seconds:
                snapshot = HistogramSnapshot(each.counts, each.total_seconds)
                self._seconds[each.op, each.backend, each.way].restore(snapshot)
            for hour in before.hours:
                key = _HourKey(hour.hour, hour.op, hour.backend)
                self._hours[key] = [hour.reads, hour.items, hour.seconds]

    def count(self, op: str, outcome: Outcome) -> None:
        """Count one read that was compared, or could not be."""
        with self._lock:
            self._began = self._began or time.time()
            self._reads[op, outcome] += 1

    def observe(self, op: str, backend: str, way: Way, seconds: float) -> None:
        """Count how long one answer took."""
        with self._lock:
            histogram = self._seconds[op, backend, way]
        histogram.observe(seconds)

    def add_pair(self, op: str, taken: Mapping[str, float], items: int) -> None:
        """Count a read that the mirror asked both backends: ``taken`` is seconds by backend."""
        hour = int(time.time()) // HOUR_SECONDS
        with self._lock:
            for backend, seconds in taken.items():
                key = _HourKey(hour, op, backend)
                if key not in self._hours:
                    self._forget_hours(hour)
                sums = self._hours.setdefault(key, [0, 0, 0.0])
                for at, more in enumerate((1, items, seconds)):
                    sums[at] += more
        for backend, seconds in taken.items():
            self.observe(op, backend, Way.MIRRORED, seconds)

    def _forget_hours(self, now: int) -> None:
        for key in [key for key in self._hours if key.hour <= now - MOST_HOURS]:
            del self._hours[key]

    def snapshot(self, dropped: int = 0) -> FiguresSnapshot:
        """Return the figures of now; ``dropped``: since the store was opened."""
        with self._lock:
            return FiguresSnapshot(
                began=self._began,
                saved=time.time(),
                dropped=self._dropped_before + dropped,
                reads=tuple(
                    Reads(op=op, outcome=outcome, reads=count)
                    for (op, outcome), count in self._reads.items()
                ),
                seconds=tuple(
                    Seconds(op=op, backend=backend, way=way, counts=snapshot.counts,
                            total_seconds=snapshot.total_seconds)
                    for (op, backend, way), histogram in self._seconds.items()
                    for snapshot in [histogram.snapshot()]
                ),
                hours=tuple(
                    Hour(**key._asdict(), reads=int(reads), items=int(items), seconds=seconds)
                    for key, (reads, items, seconds) in self._hours.items()
                ),
            )  # fmt: skip

    def save(self, dropped: int) -> None:
        """Write them, whole.

        Raises:
            StoreIOError: the disk refused; the file is as it was.
        """
        with os_errors("make the folder of the figures", self._path):
            make_folder(self._path.parent)
        rewrite(self._path, [self.snapshot(dropped).model_dump(mode="json")])


def read_figures(path: Path) -> FiguresSnapshot | None:
    """Return the figures that were saved, ``None`` if there are none. Changes nothing.

    Raises:
        CorruptionError: the file is damaged.
        StoreIOError: it cannot be read.
    """
    entries = list(read_lines(path, _is_entry))
    if not entries and not path.exists():
        return None
    if len(entries) != 1 or entries[0] is None:
        raise CorruptionError("the figures of the mirror are damaged", path=path)
    return FiguresSnapshot.model_validate(entries[0])


def _is_entry(entry: Entry) -> bool:
    try:
        FiguresSnapshot.model_validate(entry)
    except ValidationError:
        return False
    return True


def _histogram() -> Histogram:
    return Histogram(FINE_BOUNDS)
