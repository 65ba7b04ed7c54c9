"""Move one segment, in any process, with plain Python and numpy.

The task reads its lines of the plan, checks that the source is unchanged, translates the units and
writes them through a sink into the folder of its own attempt. A marker, created last and only once,
shows that the segment is done; a second attempt that finds it discards its own work.
"""

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cqstore.migration.markers import PROGRESS, Attempts, new_attempt
from cqstore.migration.plan.plan import PLAN_AGAIN, Plan, Slice, read_plan, read_slices
from cqstore.migration.run.log_records import LogRecords
from cqstore.migration.run.plan_source import open_source
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, RefusedStoreError, os_errors
from cqstore.store.queue.bulk import (
    UNIT_ROWS,
    UnitRows,
    UnitSink,
    UnitSource,
    bulk_backend,
    row_table,
)
from cqstore.store.queue.units import QUEUE_UNIT
from cqstore.store.record.message import LMQ_PREFIX

CHUNK_UNITS = 1 << 17
"""Units that are read, gathered and written at once: 3.5 MB."""
_EXAMPLES = 10


@dataclass(slots=True)
class SegmentDone:
    """Result of one task; the content of its marker."""

    plan: str
    """Digest of the plan."""
    segment: int
    attempt: str
    units: int = 0
    queues: int = 0
    bytes: int = 0
    seconds: float = 0.0
    shifted: int = 0
    """Units with another queue offset than their record; the queue offset of the unit is kept."""
    shifted_queues: list[str] = field(default_factory=list)
    """Some of the queues with such units."""
    files: dict[str, int] = field(default_factory=dict)
    """Names and sizes of the files in the attempt's folder, without subfolders."""


def segments_of(workspace: Workspace, plan: Plan) -> Attempts[SegmentDone]:
    """Return the attempts at the segments of a plan; markers of another plan do not count."""
    return Attempts(workspace.segments, SegmentDone, lambda done: done.plan == plan.digest)


def write_segment(
    workspace: Workspace,
    plan: Plan,
    number: int,
    *,
    bytes_per_second: float | None = None,
    timestamps: bool = True,
) -> SegmentDone:
    """Move one segment, unless it is done; return the result. Runs in any process on any host.

    ``bytes_per_second`` limits the write rate. Without ``timestamps``, units get no store
    timestamps: for measurements only.

    Raises:
        RefusedStoreError: the source differs from the plan, or the plan was replaced meanwhile;
            markers of the new plan stay.
        CorruptionError: a unit does not point to a record.
        DiskFullError, StoreIOError: a file cannot be written; the attempt's folder is removed.
    """
    segments = segments_of(workspace, plan)
    if (before := segments.read_done(number)) is not None:
        return before
    done = SegmentDone(plan.digest, number, new_attempt())

    def move(folder: Path) -> None:
        _Mover(workspace, plan, number, done, bytes_per_second, timestamps=timestamps).run(folder)
        if read_plan(workspace).digest != plan.digest:
            raise RefusedStoreError("a new plan was made while this task ran", path=workspace.plan)

    return segments.make(number, done, move)


class _Mover:
    """One attempt at a segment: reads its slices from the source and writes them to a sink."""

    def __init__(
        self,
        workspace: Workspace,
        plan: Plan,
        number: int,
        done: SegmentDone,
        bytes_per_second: float | None,
        *,
        timestamps: bool,
    ) -> None:
        self._workspace = workspace
        self._plan = plan
        self._segment = plan.segments[number]
        self._done = done
        self._rate = bytes_per_second
        self._timestamps = timestamps
        self._rows = np.empty(CHUNK_UNITS, UNIT_ROWS)
        self._places = np.empty(CHUNK_UNITS, np.int64)
        self._waiting: list[tuple[Slice, int, int, int]] = []  # slice, offset, first row, rows
        self._filled = 0
        self._checksum = 0
        self._started = time.monotonic()

    def run(self, folder: Path) -> None:
        """Write the segment into ``folder``."""
        plan, config = self._plan, self._plan.config
        source = open_source(self._workspace, plan)
        folders = [Path(each) for each in plan.log_folders]
        log = None if source.has_timestamps or not self._timestamps else LogRecords(folders)
        try:
            sink = bulk_backend(plan.target).sink(folder, config)
            try:
                for _ in self._chunks(source):
                    self._write(sink, log)
                    self._report_progress(folder)
                self._done.bytes = sink.finish()
            except BaseException:
                sink.abandon()
                raise
        finally:
            source.close()

    def _chunks(self, source: UnitSource) -> Iterator[None]:
        """Fill the buffer; yield whenever it is full, and at the end."""
        for each in read_slices(self._workspace.slices, self._segment):
            offset, self._checksum = each.begin, 0
            while True:
                room = min(each.end - offset, CHUNK_UNITS - self._filled)
                self._fill(source, each, offset, room)
                offset += room
                if offset == each.end:
                    break
                yield
            if self._checksum != each.checksum:
                raise _changed(each, "its units differ from the plan")
            if self._filled == CHUNK_UNITS:
                yield
        if self._waiting:
            yield

    def _fill(self, source: UnitSource, each: Slice, offset: int, count: int) -> None:
        """Read ``count`` units of a slice into the buffer, after the waiting ones.

        Raises:
            RefusedStoreError: a planned unit no longer exists.
        """
        first = self._filled
        rows = self._rows[first : first + count]
        if count:
            found = source.fill(each.queue, offset, rows)
            if found < count:
                raise _changed(each, f"the unit at queue offset {offset + found} no longer exists")
            self._checksum = zlib.crc32(row_table(rows).data, self._checksum)
            light = each.queue.topic.startswith(LMQ_PREFIX)
            places = self._places[first : first + count]
            places[:] = -1 if light else np.arange(offset, offset + count)
        self._waiting.append((each, offset, first, count))
        self._filled += count

    def _write(self, sink: UnitSink, log: LogRecords | None) -> None:
        """Write the waiting units, with their store timestamps."""
        rows = self._rows[: self._filled]
        if log is not None:
            self._gather(log, rows)
        for each, offset, first, count in self._waiting:
            sink.add(each.queue, offset, rows[first : first + count])
            if offset + count == each.end and each.next_offset is not None:
                sink.end(each.queue, each.next_offset)
                self._done.queues += 1
        self._done.units += self._filled
        self._waiting.clear()
        self._filled = 0

    def _gather(self, log: LogRecords, rows: UnitRows) -> None:
        try:
            shifted = log.gather(rows, self._places[: len(rows)])
        except CorruptionError as exc:
            raise self._name_queue(exc, rows) from exc
        if shifted:
            self._note_shifted(log, rows, shifted)

    def _note_shifted(self, log: LogRecords, rows: UnitRows, shifted: int) -> None:
        """Count units with another queue offset than their records; keep example queues."""
        self._done.shifted += shifted
        for each, _, first, count in self._waiting:
            if len(self._done.shifted_queues) >= _EXAMPLES:
                return
            span = slice(first, first + count)
            name = f"{each.queue.topic}/{each.queue.queue_id}"
            known = name in self._done.shifted_queues
            if not known and log.gather(rows[span], self._places[span]):
                self._done.shifted_queues.append(name)

    def _name_queue(self, exc: CorruptionError, rows: UnitRows) -> CorruptionError:
        """Return the error with its queue and unit."""
        at = int(np.flatnonzero(rows["phy_offset"] == exc.phy_offset)[0])
        for each, offset, first, count in self._waiting:
            if first <= at < first + count:
                where = f"unit {offset + at - first} of queue {each.queue.queue_id}"
                topic = each.queue.topic
                reason = f"{where} of topic {topic!r} does not point to a record of the commit log"
                return CorruptionError(
                    reason, phy_offset=exc.phy_offset, expected=exc.expected, got=exc.got
                )
        return exc

    def _report_progress(self, folder: Path) -> None:
        """Write the progress of this attempt, and wait to keep the rate."""
        with os_errors("write progress", folder):
            (folder / PROGRESS).write_text(str(self._done.units))
        if self._rate:
            due = self._started + self._done.units * QUEUE_UNIT.size / self._rate
            time.sleep(max(due - time.monotonic(), 0))


def _changed(each: Slice, what: str) -> RefusedStoreError:
    topic, queue_id = each.queue
    return RefusedStoreError(
        f"the source was changed after the plan was made: queue {queue_id} of topic {topic!r}:"
        f" {what}; {PLAN_AGAIN}"
    )
