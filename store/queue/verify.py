"""Verify: two backends compared unit by unit, both ways, over the whole range of every queue.

The first backend is the *reference*, the other the *copy*. Only units whose records are in the log
count. Memory is bounded: queues are streamed, units compared in packed blocks; nothing is written.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import LogView
from store.queue.facts import QueueType
from store.queue.units import QUEUE_UNIT, BlockStop, QueueKey, UnitBlock

_BLOCK = 8192
Locks = tuple[AbstractContextManager[object], AbstractContextManager[object]]
NO_LOCKS: Locks = (nullcontext(), nullcontext())
_Columns = dict[str, NDArray[np.int64]]


class Kind(StrEnum):
    """What a difference is, seen from the reference."""

    MISSING_HEAD = "missing head"
    """The copy begins later."""
    MISSING_TAIL = "missing tail"
    """The copy ends earlier."""
    HOLE = "hole"
    """Units are missing inside; ``Difference.lacking`` says of which."""
    EXTRA = "extra"
    """The copy has units that the reference has not."""
    DIFFERENT = "different"
    """Both have it; ``Difference.field`` is not the same."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One run of differences in one queue."""

    kind: Kind
    queue: QueueKey
    offsets: range
    """Queue offsets; of a next offset that differs: none."""
    lacking: str = ""
    """The backend that has not the units; empty where both have them."""
    field: str = ""
    """``phy_offset``, ``size``, ``tags_code``, ``store_timestamp`` or ``next_offset``."""
    values: dict[str, int] | None = None
    """With ``field``: backend (or ``log``) → what it says, of the first offset."""

    def sentence(self) -> str:
        """Return it as a sentence, without the queue."""
        units = f"units {self.offsets.start} to {self.offsets.stop - 1}"
        if self.values is None:
            return f"{units} are missing in the {self.lacking} queues ({self.kind})"
        sides = ", ".join(f"{side} {value}" for side, value in self.values.items())
        return f"{self.field} is not the same{f' in {units}' if self.offsets else ''}: {sides}"


@dataclass(slots=True)
class VerifyReport:
    """What a comparison found."""

    reference: str
    copy: str
    queues: int = 0
    units: int = 0
    """Units of the reference."""
    counts: Counter[tuple[Kind, str, str]] = field(default_factory=Counter)
    """Units (next offsets: queues) by kind, lacking backend and field."""
    examples: list[Difference] = field(default_factory=list)
    skipped: list[QueueKey] = field(default_factory=list)
    """Queues of kinds that only one backend can hold (BatchCQ); not compared."""

    @property
    def clean(self) -> bool:
        """Return whether the backends are equal, as far as they can be compared."""
        return not self.counts

    def lacks(self, name: str) -> int:
        """Return how many units backend ``name`` has not, or has with another value."""
        return sum(
            count
            for (kind, lacking, _), count in self.counts.items()
            if lacking == name or kind is Kind.DIFFERENT
        )


class Verify:
    """One comparison of two open backends."""

    def __init__(
        self,
        reference: ConsumeQueueStore,
        copy: ConsumeQueueStore,
        log: LogView,
        *,
        takes: Callable[[str], bool] = lambda _: True,
        locks: Locks = NO_LOCKS,
        most_examples: int = 20,
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Compare topics that both ``takes``.

        Who holds ``locks`` keeps batches, deletions and expiries out, so that the ends of a queue
        are of one moment. ``progress`` is told phy offsets. At most ``most_examples`` of each kind
        are kept.
        """
        self._reference, self._copy, self._log = reference, copy, log
        self._takes, self._locks, self._progress = takes, locks, progress
        self._most = most_examples
        self._kept: Counter[tuple[Kind, str, str]] = Counter()
        self.report = VerifyReport(reference.name, copy.name)

    def run(self, topic: str | None = None, queue_id: int | None = None) -> VerifyReport:
        """Compare all queues, those of ``topic``, or one of these.

        Raises:
            StoreError: a backend cannot be read.
        """
        for key in self._reference.queues(topic):
            wanted = queue_id in {None, key.queue_id} and self._takes(key.topic)
            if wanted and self._reference.max_offset(*key):
                self._queue(key)
        for key in self._copy.queues(topic):
            wanted = queue_id in {None, key.queue_id} and self._takes(key.topic)
            if wanted and not self._reference.max_offset(*key):
                self._queue(key)
        return self.report

    def _queue(self, key: QueueKey) -> None:
        reference, copy, report = self._reference, self._copy, self.report
        report.queues += 1
        if QueueType.BATCH in {reference.queue_type(key.topic), copy.queue_type(key.topic)}:
            report.skipped.append(key)
            return
        first, second = self._locks
        with first, second:
            low, high = reference.min_offset(*key), reference.max_offset(*key)
            copy_low, copy_high = copy.min_offset(*key), copy.max_offset(*key)
        report.units += high - low
        if low == high and copy_low == copy_high and high != copy_high:
            values = {reference.name: high, copy.name: copy_high}
            self._note(Difference(Kind.DIFFERENT, key, range(0), "", "next_offset", values), 1)
        if copy_low == copy_high:
            self._note_range(Kind.MISSING_TAIL, key, range(low, high), copy.name)
            return
        if low == high:
            self._note_range(Kind.EXTRA, key, range(copy_low, copy_high), reference.name)
            return
        self._note_range(Kind.MISSING_HEAD, key, range(low, min(copy_low, high)), copy.name)
        self._note_range(Kind.MISSING_TAIL, key, range(max(copy_high, low), high), copy.name)
        self._note_range(Kind.EXTRA, key, range(copy_low, min(low, copy_high)), reference.name)
        self._note_range(Kind.EXTRA, key, range(max(high, copy_low), copy_high), reference.name)
        self._both(key, max(low, copy_low), min(high, copy_high))

    def _both(self, key: QueueKey, at: int, end: int) -> None:
        """Compare the units that both should have."""
        stores = (self._reference, self._copy)
        while at < end:
            most = min(_BLOCK, end - at)
            blocks = [store.read_units(*key, at, most) for store in stores]
            count = min(block.count for block in blocks)
            if count:
                self._blocks(key, at, count, blocks)
                at += count
                continue
            empty = [(store, block) for store, block in zip(stores, blocks, strict=True)
                     if not block.count]  # fmt: skip
            behind = min(_end_of_hole(block, end) for _, block in empty)
            for store, _ in empty:
                self._note_range(Kind.HOLE, key, range(at, behind), store.name)
            at = behind

    def _blocks(self, key: QueueKey, at: int, count: int, blocks: list[UnitBlock]) -> None:
        mine, other = (block.columns(count) for block in blocks)
        same = np.ones(count, bool)
        for name in ("phy_offset", "size"):
            odd = mine[name] != other[name]
            self._note_rows(key, at, odd, name, self._pair(mine[name], other[name]))
            same &= ~odd
        codes = [np.array(rows["tags_code"], np.int64) for rows in (mine, other)]
        for row in np.flatnonzero(codes[0] != codes[1]).tolist():  # an address stands for a code
            for store, column in zip((self._reference, self._copy), codes, strict=True):
                resolved = store.resolve_tags_code(*key, int(column[row]))
                column[row] = resolved if resolved is not None else column[row]
        self._note_rows(key, at, codes[0] != codes[1], "tags_code", self._pair(*codes))
        if any(block.stride == QUEUE_UNIT.size for block in blocks):
            self._timestamps(key, at, same, (mine, other))
        self._progress(int(mine["phy_offset"][count - 1]))

    def _timestamps(
        self,
        key: QueueKey,
        at: int,
        same: NDArray[np.bool_],
        sides: tuple[NDArray[np.void], NDArray[np.void]],
    ) -> None:
        """Compare the store times that a side has with those of the records."""
        log, rows = self._log, sides[0]
        stamps = log.store_timestamps(rows["phy_offset"], rows["size"])
        known = same & ((stamps >= 0) | (rows["phy_offset"] >= log.min_phy_offset()))
        for store, side in zip((self._reference, self._copy), sides, strict=True):
            if "store_timestamp" in (side.dtype.names or ()):
                own = side["store_timestamp"]
                columns = {store.name: own, "log": stamps}
                self._note_rows(key, at, known & (own != stamps), "store_timestamp", columns)

    def _pair(self, mine: NDArray[np.int64], other: NDArray[np.int64]) -> _Columns:
        return {self._reference.name: mine, self._copy.name: other}

    def _note_rows(
        self, key: QueueKey, at: int, odd: NDArray[np.bool_], name: str, columns: _Columns
    ) -> None:
        """Note the rows that are ``odd``, a run at a time."""
        rows = np.flatnonzero(odd)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
            first, last = int(run[0]), int(run[-1])
            values = {side: int(column[first]) for side, column in columns.items()}
            offsets = range(at + first, at + last + 1)
            self._note(Difference(Kind.DIFFERENT, key, offsets, "", name, values), len(run))

    def _note_range(self, kind: Kind, key: QueueKey, offsets: range, lacking: str) -> None:
        if offsets:
            self._note(Difference(kind, key, offsets, lacking), len(offsets))

    def _note(self, found: Difference, count: int) -> None:
        sort = (found.kind, found.lacking, found.field)
        self.report.counts[sort] += count
        if self._kept[sort] < self._most:
            self._kept[sort] += 1
            self.report.examples.append(found)


def _end_of_hole(block: UnitBlock, end: int) -> int:
    """Return where the hole ends that an empty block stands before."""
    hole = block.hole if block.stop is BlockStop.HOLE else None
    return end if hole is None else min(hole.stop, end)
