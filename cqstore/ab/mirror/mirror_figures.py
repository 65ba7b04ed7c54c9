"""Figures: what mirrored reads came to, kept in ``cqstore/ab/figures`` from opening to opening.

Counts by operation and outcome; histograms of seconds by operation, side and way; and the figures
of each hour, which intervals are computed from. Bounded: hours go after five weeks.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError

from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.service.runtime.meters import BOUNDS, Histogram, HistogramSnapshot

FINE_BOUNDS = tuple(sorted({*BOUNDS, *(float(f"{5e-7 * 10 ** (k / 20):.3g}") for k in range(147))}))
"""Upper bounds of buckets, seconds, twenty a power of ten: all of ``BOUNDS`` and more."""
MAX_HOURS = 5 * 7 * 24
AGAIN = " again"
"""Behind the name of the reference: asked twice, it shows what is noise."""
HOUR_SECONDS = 3600


class ReadOrigin(StrEnum):
    """How a side came to be asked."""

    SERVED = "served"
    """By the reader, in its thread."""
    MIRRORED = "mirrored"
    """Afterwards, by the mirror, which asks all sides alike: only these compare like with like."""


class _Saved(BaseModel):
    """A part of the file of figures: unchangeable, with the declared fields and no other."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,  # most stores mirror nothing
    )


class ReadCounts(_Saved):
    """How many reads of an operation had an outcome."""

    op: str
    outcome: ReadOutcome
    reads: NonNegativeInt


class Seconds(_Saved):
    """How long a side took for an operation, in buckets of ``FINE_BOUNDS``."""

    op: str
    side: str
    way: ReadOrigin
    counts: tuple[NonNegativeInt, ...] = Field(
        min_length=len(FINE_BOUNDS) + 1, max_length=len(FINE_BOUNDS) + 1
    )
    total_seconds: NonNegativeFloat

    @property
    def coarse(self) -> HistogramSnapshot:
        """Return the counts in the buckets that every other histogram has."""
        counts = [0] * (len(BOUNDS) + 1)
        at = 0
        for bound, count in zip((*FINE_BOUNDS, float("inf")), self.counts, strict=True):
            while at < len(BOUNDS) and bound > BOUNDS[at]:
                at += 1
            counts[at] += count
        return HistogramSnapshot(tuple(counts), self.total_seconds)


class Hour(_Saved):
    """One hour of a side and an operation, of reads that all sides were asked alike."""

    began: NonNegativeInt = Field(
        description="Start of the hour, or time of opening in it, in seconds since the epoch."
    )
    op: str
    side: str = Field(description="A backend, or the reference repeated, see AGAIN.")
    reads: NonNegativeInt
    items: NonNegativeInt = Field(description="Units that pulls read; 1 for any other read.")
    seconds: NonNegativeFloat
    cpu_seconds: NonNegativeFloat = Field(description="CPU time of the thread, without waits.")
    p50: NonNegativeFloat = Field(description="In seconds, with the precision of FINE_BOUNDS.")
    p99: NonNegativeFloat


class MirrorFiguresSnapshot(_Saved):
    """The figures at one moment."""

    began: NonNegativeFloat = Field(
        description="Time of the first read in seconds since the epoch; 0: none."
    )
    saved: NonNegativeFloat = Field(description="Time of the snapshot in seconds since the epoch.")
    dropped: NonNegativeInt = Field(description="Reads not mirrored because the queue was full.")
    reads: tuple[ReadCounts, ...] = ()
    seconds: tuple[Seconds, ...] = ()
    hours: tuple[Hour, ...] = ()

    def count(self, *outcomes: ReadOutcome, op: str | None = None) -> int:
        """Return how many reads (of ``op``) had one of the outcomes."""
        return sum(
            each.reads for each in self.reads if each.outcome in outcomes and op in {None, each.op}
        )


class AnswerCost(NamedTuple):
    """What one answer took, in the mirror's thread."""

    seconds: float
    cpu_seconds: float


class _Sums:
    """One side and operation in the hour that runs."""

    def __init__(self) -> None:
        self.items = 0
        self.cpu_seconds = 0.0
        self.histogram = Histogram(FINE_BOUNDS)

    def hour(self, began: int, op: str, side: str) -> Hour:
        """Return the sums as those of an hour that ``began`` so many seconds after the epoch."""
        held = self.histogram.snapshot()
        return Hour(
            began=began, op=op, side=side, reads=held.count, items=self.items,
            seconds=held.total_seconds, cpu_seconds=self.cpu_seconds,
            p50=percentile(held, 0.5), p99=percentile(held, 0.99),
        )  # fmt: skip


def percentile(held: HistogramSnapshot, share: float) -> float:
    """Return the seconds that ``share`` of what a histogram held came up to.

    Within a bucket evenly spread; 0 of nothing.
    """
    wanted, passed = share * held.count, 0
    for at, count in enumerate(held.counts):
        if count and passed + count >= wanted:
            low = held.bounds[at - 1] if at else 0.0
            high = held.bounds[min(at, len(held.bounds) - 1)]
            return low + (high - low) * (wanted - passed) / count
        passed += count
    return 0.0


class MirrorFigures:
    """The figures of one store. One thread adds, any may look."""

    def __init__(self, path: Path) -> None:
        """Begin without figures; ``load`` reads those that were saved in ``path``."""
        self._path = path
        self._lock = CheckedLock("an update of the mirror's figures")  # guards all that follows
        self._began = 0.0
        self._reads: Counter[tuple[str, ReadOutcome]] = Counter()
        self._seconds: defaultdict[tuple[str, str, ReadOrigin], Histogram] = defaultdict(_histogram)
        self._hours: list[Hour] = []  # those that are over
        self._hour = 0  # the one that runs, since the epoch
        self._hour_began = 0
        self._sums: defaultdict[tuple[str, str], _Sums] = defaultdict(_Sums)
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
        with self._lock.entry():
            self._began, self._dropped_before = before.began, before.dropped
            self._reads.update({(each.op, each.outcome): each.reads for each in before.reads})
            for each in before.seconds:
                snapshot = HistogramSnapshot(each.counts, each.total_seconds, FINE_BOUNDS)
                self._seconds[each.op, each.side, each.way].restore(snapshot)
            self._hours = list(before.hours)

    def count(self, op: str, outcome: ReadOutcome) -> None:
        """Count one read that was compared, or could not be."""
        with self._lock.entry():
            self._began = self._began or time.time()
            self._reads[op, outcome] += 1

    def observe(self, op: str, side: str, way: ReadOrigin, seconds: float) -> None:
        """Count how long one answer took."""
        with self._lock.entry():
            histogram = self._seconds[op, side, way]
        histogram.observe(seconds)

    def add_alike(self, op: str, taken: Mapping[str, AnswerCost], items: int) -> None:
        """Count a read that the mirror asked of every side: ``taken`` is by side."""
        now = int(time.time())
        with self._lock.entry():
            if now // HOUR_SECONDS != self._hour:
                self._begin_hour(now)
            for side, (seconds, cpu_seconds) in taken.items():
                sums = self._sums[op, side]
                sums.items += items
                sums.cpu_seconds += cpu_seconds
                sums.histogram.observe(seconds)
        for side, (seconds, _) in taken.items():
            self.observe(op, side, ReadOrigin.MIRRORED, seconds)

    def _begin_hour(self, now: int) -> None:
        self._hours = [
            hour for hour in self._all_hours() if hour.began > now - MAX_HOURS * HOUR_SECONDS
        ]
        self._sums.clear()
        self._hour, self._hour_began = now // HOUR_SECONDS, now

    def _all_hours(self) -> list[Hour]:
        running = (sums.hour(self._hour_began, op, side) for (op, side), sums in self._sums.items())
        return [*self._hours, *running]

    def snapshot(self, dropped: int = 0) -> MirrorFiguresSnapshot:
        """Return the figures of now; ``dropped``: since the store was opened."""
        with self._lock.entry():
            return MirrorFiguresSnapshot(
                began=self._began,
                saved=time.time(),
                dropped=self._dropped_before + dropped,
                reads=tuple(
                    ReadCounts(op=op, outcome=outcome, reads=count)
                    for (op, outcome), count in self._reads.items()
                ),
                seconds=tuple(
                    Seconds(op=op, side=side, way=way, counts=snapshot.counts,
                            total_seconds=snapshot.total_seconds)
                    for (op, side, way), histogram in self._seconds.items()
                    for snapshot in [histogram.snapshot()]
                ),
                hours=tuple(self._all_hours()),
            )  # fmt: skip

    def save(self, dropped: int) -> None:
        """Replace the file by the figures of now; ``dropped``: since the store was opened.

        Raises:
            StoreIOError: the disk refused; the file is unchanged.
        """
        write_note(self._path, self.snapshot(dropped).model_dump(mode="json"))


def read_figures(path: Path) -> MirrorFiguresSnapshot | None:
    """Return the figures that were saved, ``None`` if there are none. Changes nothing.

    Raises:
        CorruptionError: the file is damaged.
        StoreIOError: it cannot be read.
    """
    entry = read_note(path, _is_entry, "the mirror's figures are damaged")
    return None if entry is None else MirrorFiguresSnapshot.model_validate(entry)


def _is_entry(entry: Entry) -> bool:
    try:
        MirrorFiguresSnapshot.model_validate(entry)
    except ValidationError:
        return False
    return True


def _histogram() -> Histogram:
    return Histogram(FINE_BOUNDS)
