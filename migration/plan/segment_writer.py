"""SegmentWriter: divide queues into slices and segments, and write ``queues.jsonl``."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from cqstore.migration.plan.plan import Segment, Slice
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import replacing
from cqstore.store.progress import noop
from cqstore.store.queue.bulk import UNIT_ROWS, BulkBackend, UnitRows, UnitSource, row_table
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig

SEGMENT_UNITS = 1_000_000
"""Default number of units per segment: one or two seconds of work, little to repeat."""
_MAX_SLICES = 100_000
_CHUNK_UNITS = 1 << 18


class SegmentWriter:
    """Writer of the slices of one source's queues, as segments of a plan."""

    def __init__(
        self,
        source: UnitSource,
        target: BulkBackend,
        config: StoreConfig,
        segment_units: int,
        root: Path,
        on_rows: Callable[[UnitRows], object] = noop,
    ) -> None:
        """``root`` is the root of the store, for errors; ``on_rows`` gets the units read."""
        self._source = source
        self._max_units = max(segment_units, 1)
        self._step = target.slice_units(config)
        self._limit = max(self._max_units // self._step, 1) * self._step
        self._root = root
        self._on_rows = on_rows
        self._rows = np.empty(_CHUNK_UNITS, UNIT_ROWS)
        self.units = 0
        """Units read so far."""

    def write(self, space: Workspace, slices: Iterator[Slice]) -> list[Segment]:
        """Write ``queues.jsonl``, by rename; return the segments.

        Raises:
            StoreIOError: it cannot be written.
        """
        lines = ((each.line().encode(), each.end - each.begin) for each in slices)
        return write_lines(space, lines, self._max_units)

    def cut(self, queue: QueueKey, begin: int, end: int) -> Iterator[Slice]:
        """Cut one queue into slices that the target allows.

        Raises:
            CorruptionError: a unit is missing inside [begin, end).
        """
        while True:
            stop = self._stop(begin, end)
            checksum = self._checksum(queue, begin, stop)
            yield Slice(queue, begin, stop, end if stop == end else None, checksum)
            if stop == end:
                return
            begin = stop

    def is_one_slice(self, begin: int, end: int) -> bool:
        """Return whether the units [``begin``, ``end``) of a queue are not cut."""
        return self._stop(begin, end) == end

    def _stop(self, begin: int, end: int) -> int:
        """Return the end of the slice that begins at ``begin``."""
        return min(begin // self._step * self._step + self._limit, end)

    def _checksum(self, queue: QueueKey, begin: int, end: int) -> int:
        """Return the checksum of the units [``begin``, ``end``) of a queue.

        Raises:
            CorruptionError: one of them is missing.
        """
        checksum = 0
        while begin < end:
            rows = self._rows[: min(end - begin, _CHUNK_UNITS)]
            count = self._source.fill(queue, begin, rows)
            if count < len(rows):
                raise missing_unit(queue, begin + count, self._root)
            checksum = zlib.crc32(row_table(rows).data, checksum)
            begin += count
            self.units += count
            self._on_rows(rows)
        return checksum


def write_lines(
    space: Workspace, lines: Iterable[tuple[bytes, int]], max_units: int
) -> list[Segment]:
    """Write the lines of slices to ``queues.jsonl``, by rename; return the segments.

    Each line is followed by the number of its units. A segment has at most ``max_units``, or one
    slice.

    Raises:
        StoreIOError: it cannot be written.
    """
    with os_errors("write the plan's queues", space.slices), replacing(space.slices) as file:
        return list(_segments(lines, file, max_units))


def _segments(
    lines: Iterable[tuple[bytes, int]], file: IO[bytes], max_units: int
) -> Iterator[Segment]:
    """Write the lines, and yield each segment when it is full."""
    now = _Open(0, 0)
    for line, units in lines:
        full = now.units + units > max_units or now.slices >= _MAX_SLICES
        if now.slices and full:
            yield now.close()
            now = _Open(now.number + 1, now.position + now.size_bytes)
        file.write(line)
        now.digest.update(line)
        now.first = now.first or line
        now.last = line
        now.slices += 1
        now.units += units
        now.size_bytes += len(line)
    if now.slices:
        yield now.close()


def _queue_of(line: bytes) -> str:
    """Return topic and queue id of a line, as people read them."""
    topic, queue_id, *_ = json.loads(line)
    return f"{topic}/{queue_id}"


@dataclass(slots=True)
class _Open:
    """The segment that is being filled."""

    number: int
    position: int
    slices: int = 0
    units: int = 0
    size_bytes: int = 0
    first: bytes = b""
    """Its first line."""
    last: bytes = b""
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def close(self) -> Segment:
        return Segment(
            number=self.number, slices=self.slices, units=self.units,
            first=_queue_of(self.first), last=_queue_of(self.last), position=self.position,
            size_bytes=self.size_bytes, digest=self.digest.hexdigest(),
        )  # fmt: skip


def missing_unit(queue: QueueKey, queue_offset: int, root: Path) -> CorruptionError:
    """Return the error for a unit that is missing inside a queue."""
    return CorruptionError(
        f"a unit is missing inside queue {queue.queue_id} of topic {queue.topic!r}: run cqstore"
        " check, then cqstore rebuild to rebuild the queue from the log",
        path=root, expected=f"a unit at queue offset {queue_offset}", got="none",
    )  # fmt: skip
