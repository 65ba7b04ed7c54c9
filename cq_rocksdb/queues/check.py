"""Audit: checks a database without the log, in one pass per family and bounded memory.

Units are not compared with the log's records. Only the start and end of the log are used, because
expired units may or may not exist (RocketMQ drops them in its compactions).
"""

from collections.abc import Iterator
from pathlib import Path

from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    CHECKPOINT_KEY,
    KIND_MIN,
    OFFSET_ENTRY,
    UNIT_PLACE,
    OffsetEntry,
    max_key,
    min_key,
    parse_offset_key,
    parse_unit_key,
    queue_prefix,
    unit_key,
)
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable
from cqstore.cq_rocksdb.queues.orphans import Orphan, Orphans
from cqstore.cq_rocksdb.queues.unit_table import FoundUnit, UnitTable
from cqstore.store.errors import CorruptionError
from cqstore.store.files import LAST_OFFSET
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.context import LogView
from cqstore.store.queue.facts import QueueFinding
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit

SCAN_ROWS = 4_096
END_OF_KEYS = b"\xff" * 8


class Audit:
    """One check of one database, and its counters."""

    def __init__(
        self,
        engine: RocksEngine,
        offsets: OffsetTable,
        units: UnitTable,
        log: LogView,
        folder: Path,
        orphans: Orphans | None = None,
        progress: Progress = noop,
    ) -> None:
        """``orphans`` are collected during the check; ``progress`` is called with unit counts."""
        self._folder = folder
        self._entries = _Entries(offsets, units, log, str(folder), orphans)
        self._units = _Units(engine, log.min_phy_offset(), str(folder), orphans, progress)

    def findings(self) -> Iterator[QueueFinding]:
        """Yield the findings; run once. An unreadable block is a finding that ends its family."""
        reported: set[QueueFinding] = set()
        for family in (self._entries, self._units):
            try:
                yield from family.findings()
            except CorruptionError as exc:
                found = QueueFinding(
                    exc.reason, str(exc.path or self._folder), position=exc.position,
                    expected=exc.expected, found=exc.got, all_queues=True,
                )  # fmt: skip
                if found not in reported:  # comparing entries reads units, too
                    reported.add(found)
                    yield found

    @property
    def queues(self) -> int:
        """Return the number of ``max`` entries."""
        return self._entries.queues

    @property
    def units(self) -> int:
        """Return the number of units."""
        return self._units.units

    @property
    def expired_units(self) -> int:
        """Return the number of units below the log's start, which compactions will drop."""
        return self._units.expired_units


class _Entries:
    """Compares the ``offset`` family with the units that its entries refer to."""

    def __init__(
        self,
        offsets: OffsetTable,
        units: UnitTable,
        log: LogView,
        path: str,
        orphans: Orphans | None,
    ) -> None:
        self._orphans = orphans
        self._offsets = offsets
        self._units = units
        self._log = log
        self._path = path
        self.queues = 0

    def findings(self) -> Iterator[QueueFinding]:
        """Yield the findings of the ``offset`` family, in key order."""
        min_phy_offset = self._log.min_phy_offset()
        for key, value in self._offsets.raw_entries():
            if key == CHECKPOINT_KEY:
                yield from self._checkpoint(value)
                continue
            try:
                name = parse_offset_key(key)
            except CorruptionError as exc:
                yield _of_key(exc, self._path, key)
                continue
            if len(value) != OFFSET_ENTRY.size:
                problem = f"the {name.kind.decode()} entry has {len(value)} bytes instead of 16"
                yield QueueFinding(
                    problem, self._path, name.queue, key=key, expected=16, found=len(value)
                )
                continue
            self.queues += name.kind != KIND_MIN
            if self._orphans is not None:
                self._orphans.of(name.topic, name.queue_id)
            entry = OFFSET_ENTRY.unpack_from(value)
            if entry.phy_offset < min_phy_offset or entry.queue_offset < 0:
                continue  # the record has expired, or the entry is artificial
            check = self._min if name.kind == KIND_MIN else self._max
            yield from check(name.queue, entry, min_phy_offset)

    def _checkpoint(self, value: bytes) -> Iterator[QueueFinding]:
        """Yield the findings of the checkpoint entry."""
        if len(value) != CHECKPOINT_ENTRY.size:
            problem = f"the checkpoint entry has {len(value)} bytes instead of 8"
            yield QueueFinding(
                problem, self._path, key=CHECKPOINT_KEY, expected=8, found=len(value)
            )
            return
        checkpoint, end = CHECKPOINT_ENTRY.unpack_from(value).phy_offset, self._log.max_phy_offset()
        if checkpoint > end:
            problem = f"the checkpoint entry {checkpoint} is after the log's end {end}"
            yield QueueFinding(
                problem, self._path, key=CHECKPOINT_KEY, expected=f"at most {end}", found=checkpoint
            )

    def _max(
        self, queue: QueueKey, entry: OffsetEntry, min_phy_offset: int
    ) -> Iterator[QueueFinding]:
        """Yield how a ``max`` entry differs from the queue's last unit."""
        prefix = queue_prefix(*queue)
        unit = self._units.get(prefix, entry.queue_offset)
        if unit is None:
            before = self._units.at_or_before(prefix, entry.queue_offset)
            first = before.queue_offset + 1 if before is not None else 0
            made_up = before is None and entry.phy_offset in {0, min_phy_offset}
            if not made_up:  # else RocketMQ initialised the queue at an offset
                problem = f"units {first} to {entry.queue_offset} are missing before the max entry"
                yield self._at_unit(problem, queue, first, f"unit {first}", "none")
        elif unit.phy_offset != entry.phy_offset:
            problem = (
                f"the max entry has phy_offset {entry.phy_offset}, its unit has {unit.phy_offset}"
            )
            yield self._at_unit(
                problem, queue, entry.queue_offset, entry.phy_offset, unit.phy_offset
            )

    def _at_unit(
        self, problem: str, queue: QueueKey, queue_offset: int, expected: object, found: object
    ) -> QueueFinding:
        key = unit_key(queue_prefix(*queue), queue_offset)
        return QueueFinding(
            problem, self._path, queue, queue_offset, key=key, expected=expected, found=found
        )

    def _min(
        self, queue: QueueKey, entry: OffsetEntry, min_phy_offset: int
    ) -> Iterator[QueueFinding]:
        """Yield how a ``min`` entry differs from the first unit in the log."""
        prefix = queue_prefix(*queue)
        last = self._offsets.last_offset(prefix)
        found = self._units.first_in_log(prefix, 0, last, min_phy_offset)
        if found is not None and found.queue_offset < entry.queue_offset:
            problem = (
                f"the min entry hides units: it is {entry.queue_offset}, "
                f"the first unit in the log is {found.queue_offset}"
            )
            yield QueueFinding(
                problem, self._path, queue, entry.queue_offset, key=min_key(prefix),
                expected=found.queue_offset, found=entry.queue_offset,
            )  # fmt: skip
        elif found is not None and found.queue_offset > entry.queue_offset:
            first = entry.queue_offset
            problem = f"units {first} to {found.queue_offset - 1} are missing"
            yield self._at_unit(
                problem, queue, first, f"unit {first}", f"unit {found.queue_offset}"
            )


class _Units:
    """Checks the ``default`` family: keys, sizes, holes, order, units without a ``max`` entry."""

    def __init__(
        self, engine: RocksEngine, min_phy_offset: int, path: str, orphans: Orphans | None,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._progress = progress
        self._orphans = orphans
        self._orphan: Orphan | None = None  # of the current queue
        self._engine = engine
        self._min_phy_offset = min_phy_offset
        self._path = path
        self._prefix = b""
        self._queue: QueueKey
        self._last_offset: int
        self._before: FoundUnit | None
        self._behind: bool
        self.units = self.expired_units = 0

    def findings(self) -> Iterator[QueueFinding]:
        """Yield the findings of the units, in key order."""
        start = b""
        while True:
            self._progress(self.units)
            rows = self._engine.scan(Family.DEFAULT, start, END_OF_KEYS, SCAN_ROWS)
            for key, value in rows:
                yield from self._row(key, value)
            if len(rows) < SCAN_ROWS:
                return
            start = rows[-1][0] + b"\0"

    def _row(self, key: bytes, value: bytes) -> Iterator[QueueFinding]:
        """Yield the findings of a unit's key, value and place in the queue."""
        try:
            queue, queue_offset = parse_unit_key(key)
        except CorruptionError as exc:
            yield _of_key(exc, self._path, key)
            return
        if (prefix := key[: -UNIT_PLACE.size]) != self._prefix:
            yield from self._begin(prefix, queue)
        if len(value) != QUEUE_UNIT.size:
            problem = f"the unit has {len(value)} bytes instead of {QUEUE_UNIT.size}"
            yield QueueFinding(
                problem, self._path, queue, queue_offset, key=key, expected=QUEUE_UNIT.size,
                found=len(value),
            )  # fmt: skip
        if len(value) >= QUEUE_UNIT.size:
            yield from self._unit(queue_offset, QUEUE_UNIT.unpack_from(value))

    def _begin(self, prefix: bytes, queue: QueueKey) -> Iterator[QueueFinding]:
        """Begin the units of another queue; yield the findings of its ``max`` entry."""
        self._prefix, self._queue = prefix, queue
        self._before, self._behind = None, False
        self._orphan = self._orphans.of(*queue) if self._orphans is not None else None
        value = self._engine.get(Family.OFFSET, max_key(prefix))
        if value is None or len(value) != OFFSET_ENTRY.size:
            self._last_offset = -1
            self._behind = True
            problem = "the queue has units but no max entry"
            got = "none" if value is None else f"{len(value)} bytes"
            yield QueueFinding(
                problem, self._path, queue, key=max_key(prefix), expected="a max entry", found=got
            )
        else:
            self._last_offset = OFFSET_ENTRY.unpack_from(value).queue_offset

    def _unit(self, queue_offset: int, unit: QueueUnit) -> Iterator[QueueFinding]:
        """Yield the findings of a unit compared with the previous unit and the ``max`` entry."""
        is_expired = unit.phy_offset < self._min_phy_offset
        self.units += 1
        self.expired_units += is_expired
        if self._orphan is not None:
            self._orphan.units += 1
            self._orphan.expired_units += is_expired
        if queue_offset > self._last_offset:
            if not self._behind:
                self._behind = True
                problem = (
                    f"units after the max entry {self._last_offset} are not visible to readers"
                )
                yield self._at(problem, queue_offset, f"at most {self._last_offset}", queue_offset)
            return
        before, self._before = self._before, FoundUnit(queue_offset, unit)
        if before is None or before.unit.phy_offset < self._min_phy_offset:
            return
        wanted, phy_offset = before.queue_offset + 1, before.unit.phy_offset
        if queue_offset != wanted:
            problem = f"units {wanted} to {queue_offset - 1} are missing"
            yield self._at(problem, wanted, f"unit {wanted}", f"unit {queue_offset}")
        if unit.phy_offset <= phy_offset:
            problem = (
                f"phy_offset {unit.phy_offset} is not after the previous phy_offset {phy_offset}"
            )
            yield self._at(problem, queue_offset, f"more than {phy_offset}", unit.phy_offset)

    def _at(self, problem: str, queue_offset: int, expected: object, found: object) -> QueueFinding:
        key = unit_key(self._prefix, min(queue_offset, LAST_OFFSET))
        return QueueFinding(
            problem, self._path, self._queue, queue_offset, key=key, expected=expected, found=found
        )


def _of_key(exc: CorruptionError, path: str, key: bytes) -> QueueFinding:
    """Return the finding for a key that is invalid in its family."""
    return QueueFinding(exc.reason, path, key=key, expected=exc.expected, found=exc.got)
