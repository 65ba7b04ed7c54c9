"""Figures of mirrored reads, saved in ``cqstore/ab/figures`` and continued at the next opening.

Counts by operation and outcome; histograms of seconds by operation, side and way; and the figures
of each hour, from which intervals are computed. Hours are removed after five weeks.
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
from cqstore.store.service.runtime.histogram_snapshot import BOUNDS, HistogramSnapshot
from cqstore.store.service.runtime.meters import Histogram

FINE_BOUNDS = tuple(sorted({*BOUNDS, *(float(f"{5e-7 * 10 ** (k / 20):.3g}") for k in range(147))}))
"""Upper bounds of buckets, seconds, twenty a power of ten: all of ``BOUNDS`` and more."""
MAX_HOURS = 5 * 7 * 24
AGAIN = " again"
"""Suffix of the reference's name for its repeated reads, which show the noise."""
HOUR_SECONDS = 3600


class ReadOrigin(StrEnum):
    """Where a read on a side came from."""

    SERVED = "served"
    """Served to a reader, in the reader's thread."""
    MIRRORED = "mirrored"
    """Repeated by the mirror on all sides: only these latencies are comparable."""


class _Saved(BaseModel):
    """Part of the figures file: immutable, without extra fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,  # most stores mirror nothing
    )


class ReadCounts(_Saved):
    """Number of reads of an operation with an outcome."""

    op: str
    outcome: ReadOutcome
    reads: NonNegativeInt


class Seconds(_Saved):
    """Latencies of a side for an operation, in buckets of ``FINE_BOUNDS``."""

    op: str
    side: str
    way: ReadOrigin
    counts: tuple[NonNegativeInt, ...] = Field(
        min_length=len(FINE_BOUNDS) + 1, max_length=len(FINE_BOUNDS) + 1
    )
    total_seconds: NonNegativeFloat

    @property
    def coarse(self) -> HistogramSnapshot:
        """Return the counts in the standard buckets, ``BOUNDS``."""
        counts = [0] * (len(BOUNDS) + 1)
        at = 0
        for bound, count in zip((*FINE_BOUNDS, float("inf")), self.counts, strict=True):
            while at < len(BOUNDS) and bound > BOUNDS[at]:
                at += 1
            counts[at] += count
        return HistogramSnapshot(tuple(counts), self.total_seconds)


class Hour(_Saved):
    """One hour of a side and an operation, for reads that were repeated on all sides."""

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
    """Time of one answer in the mirror's thread."""

    seconds: float
    cpu_seconds: float


class _Sums:
    """Sums of one side and operation in the current hour."""

    def __init__(self) -> None:
        self.items = 0
        self.cpu_seconds = 0.0
        self.histogram = Histogram(FINE_BOUNDS)

    def hour(self, began: int, op: str, side: str) -> Hour:
        """Return the sums as an ``Hour`` that began at ``began``, in seconds since the epoch."""
        held = self.histogram.snapshot()
        return Hour(
            began=began, op=op, side=side, reads=held.count, items=self.items,
            seconds=held.total_seconds, cpu_seconds=self.cpu_seconds,
            p50=percentile(held, 0.5), p99=percentile(held, 0.99),
        )  # fmt: skip


def percentile(held: HistogramSnapshot, share: float) -> float:
    """Return the percentile of a histogram in seconds; ``share`` is 0 to 1.

    Values are assumed to be evenly spread within a bucket; 0 if the histogram is empty.
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
    """The figures of one store. One thread adds to them, any thread may read them."""

    def __init__(self, path: Path) -> None:
        """Begin without figures; ``load`` reads the saved figures in ``path``."""
        self._path = path
        self._lock = CheckedLock("an update of the mirror's figures")  # guards all that follows
        self._began = 0.0
        self._reads: Counter[tuple[str, ReadOutcome]] = Counter()
        self._seconds: defaultdict[tuple[str, str, ReadOrigin], Histogram] = defaultdict(_histogram)
        self._hours: list[Hour] = []  # completed hours
        self._hour = 0  # the current hour, counted since the epoch
        self._hour_began = 0
        self._sums: defaultdict[tuple[str, str], _Sums] = defaultdict(_Sums)
        self._dropped_before = 0

    def load(self) -> None:
        """Load the saved figures and continue them.

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
        """Count one read with its outcome."""
        with self._lock.entry():
            self._began = self._began or time.time()
            self._reads[op, outcome] += 1

    def observe(self, op: str, side: str, way: ReadOrigin, seconds: float) -> None:
        """Record the latency of one answer."""
        with self._lock.entry():
            histogram = self._seconds[op, side, way]
        histogram.observe(seconds)

    def add_alike(self, op: str, taken: Mapping[str, AnswerCost], items: int) -> None:
        """Record a read that the mirror repeated on every side; ``taken`` is by side."""
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
        """Return the current figures; ``dropped`` counts since the store was opened."""
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
        """Save the current figures; ``dropped`` counts since the store was opened.

        Raises:
            StoreIOError: the disk refused; the file is unchanged.
        """
        write_note(self._path, self.snapshot(dropped).model_dump(mode="json"))


def read_figures(path: Path) -> MirrorFiguresSnapshot | None:
    """Return the saved figures, or ``None`` if there are none. Changes nothing.

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
