"""Read the units of one part of the queues of a plan; a task, which any process can run.

The driver writes the names and ends of the queues to a file. The task reads their units once: it
writes the lines of their slices to another file, and returns the faults that preflight looks for.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from cqstore.migration.markers import new_attempt
from cqstore.migration.plan.plan import json_text, slice_line
from cqstore.migration.plan.segment_writer import SegmentWriter
from cqstore.migration.preflight.preflight_report import NameCount
from cqstore.migration.preflight.queue_survey import UnitRange
from cqstore.migration.preflight.unit_totals import UnitTotals
from cqstore.store.concurrency.task_worker import guarded, unwrap
from cqstore.store.errors import StoreError, os_errors
from cqstore.store.files import reading, replacing
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.queue.bulk import ReadsFewUnits, UnitRows, UnitSource, bulk_backend
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey

_RUN_UNITS = 1 << 14
_ANY = (0, LONG_MAX)
"""Span of the log if it is not checked."""


class PartQueue(NamedTuple):
    """A queue of a part: the units from ``begin`` up to, not including, ``end``."""

    topic: str
    queue_id: int
    begin: int
    end: int
    is_moved: bool
    """Its units are moved; otherwise they are only checked."""

    def line(self) -> bytes:
        """Return the queue as its line in the file of the part."""
        is_moved = "true" if self.is_moved else "false"
        row = f"[{json_text(self.topic)},{self.queue_id},{self.begin},{self.end},{is_moved}]\n"
        return row.encode()


@dataclass(frozen=True, slots=True)
class PartChecks:
    """What a task checks in the units that it reads."""

    min_phy_offset: int
    max_phy_offset: int

    def totals(self) -> UnitTotals:
        """Return the counter of faults; nothing writes to the store meanwhile."""
        return UnitTotals(self.min_phy_offset, self.max_phy_offset, is_written=False)


@dataclass(slots=True)
class PartDone:
    """The result of one part."""

    units: list[int] = field(default_factory=list)
    """Number of units of each line."""
    faults: dict[str, Any] | None = None
    """``UnitTotals`` as fields, if units were checked."""
    unreadable: dict[str, Any] | None = None
    """``NameCount`` of queues that cannot be read, as fields."""
    error: tuple[str, str] | None = None
    """The first ``StoreError``, as ``guarded`` returns it; then the lines are incomplete."""


def queues_path(folder: Path, part: int) -> Path:
    """Return the file of the queues of a part."""
    return folder / f"{part:06d}.queues"


def lines_path(folder: Path, part: int) -> Path:
    """Return the file of the lines of a part."""
    return folder / f"{part:06d}.lines"


def plan_part(item: str) -> str:
    """Read the units of the part that ``item`` names; the task of ``make_plan``.

    Raises:
        CorruptionError: without checks: a unit is missing, or cannot be read.
        StoreIOError: a file cannot be read or written.
    """
    given = json.loads(item)
    place, folder = QueuePlace.of(given["source"]), Path(given["folder"])
    checks = PartChecks(*given["checks"]) if given["checks"] else None
    source = place.open()
    try:
        part = _PartReader(source, place, given["target"], given["segment_units"], checks)
        done = part.read(read_queues(queues_path(folder, given["part"])))
        path = lines_path(folder, given["part"])
        # Of two attempts at one task, each has a file of its own until the rename.
        own = path.with_name(f"{path.name}.{new_attempt()}")
        with os_errors("write the lines of a part", path), replacing(path, own) as file:
            file.write(b"".join(part.lines))
    finally:
        source.close()
    return json.dumps([done.units, done.faults, done.unreadable, done.error])


def read_queues(path: Path) -> Iterator[PartQueue]:
    """Yield the queues of a part.

    Raises:
        StoreIOError: the file cannot be read.
    """
    with os_errors("read the queues of a part", path), reading(path) as file:
        lines = file.read().splitlines()
    yield from map(PartQueue._make, json.loads(b"[%s]" % b",".join(lines)))  # faster than by line


class _PartReader:
    """One part: lines of its slices, and faults of its units."""

    def __init__(
        self, source: UnitSource, place: QueuePlace, target: str, segment_units: int,
        checks: PartChecks | None,
    ) -> None:  # fmt: skip
        self._source = source
        self._few = source.few_units if isinstance(source, ReadsFewUnits) else None
        self._span = (checks.min_phy_offset, checks.max_phy_offset) if checks else _ANY
        self._totals = checks.totals() if checks is not None else None
        self._astray = 0
        self._unreadable = NameCount()
        self._writer = SegmentWriter(
            source, bulk_backend(target), place.config, segment_units, place.root, self._check_rows
        )
        self.lines: list[bytes] = []

    def read(self, queues: Iterator[PartQueue]) -> PartDone:
        """Read all queues; return the result. With checks, a fault does not end the part."""
        done = PartDone()
        for queue in queues:
            if self._take_few(queue, done):
                continue
            kind, result = guarded(self._slices, queue)
            if not isinstance(result, str):
                done.units += result
            elif self._totals is None:
                unwrap(kind, result)
            else:
                done.error = done.error or (kind, result)
                self._examine(queue)
        if self._totals is not None:
            done.faults, done.unreadable = self._totals.to_fields(), self._unreadable.to_fields()
        return done

    def _take_few(self, queue: PartQueue, done: PartDone) -> bool:
        """Read a queue of few units that is one slice; return whether that was possible."""
        topic, queue_id, begin, end, is_moved = queue
        if self._few is None or not self._writer.is_one_slice(begin, end):
            return False
        found = self._few(QueueKey(topic, queue_id), begin, end, *self._span)
        if found is None:
            return False
        rows, astray = found
        if astray and self._totals is not None:
            self._totals.note(UnitRange(*queue[:4]), 0, astray)
        if is_moved:
            self.lines.append(slice_line(topic, queue_id, begin, end, end, crc32(rows)).encode())
            done.units.append(end - begin)
        return True

    def _slices(self, queue: PartQueue) -> list[int]:
        """Add the lines of one queue; return the units of each.

        Raises:
            StoreError: a unit is missing, or cannot be read.
        """
        self._astray = 0
        found = [*self._writer.cut(QueueKey(queue.topic, queue.queue_id), queue.begin, queue.end)]
        if self._astray and self._totals is not None:
            self._totals.note(UnitRange(*queue[:4]), 0, self._astray)
        if not queue.is_moved:
            return []
        self.lines += [each.line().encode() for each in found]
        return [each.end - each.begin for each in found]

    def _check_rows(self, rows: UnitRows) -> None:
        if self._totals is not None:
            self._astray += self._totals.outside(rows)

    def _examine(self, queue: PartQueue) -> None:
        """Count the faults of a queue that could not be read in one piece."""
        assert self._totals is not None
        span, astray, held = UnitRange(*queue[:4]), 0, 0
        try:
            for offset, rows in self._source.runs(QueueKey(*queue[:2]), _RUN_UNITS):
                inside = rows[max(span.low - offset, 0) : max(span.high - offset, 0)]
                held += len(inside)
                astray += self._totals.outside(inside)
        except StoreError as exc:
            self._unreadable.add(span.name, reason=str(exc))
            return
        self._totals.note(span, span.units - held, astray)
