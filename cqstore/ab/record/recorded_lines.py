"""RecordedLines: writes puts and derived pulls of a broker as lines of a trace."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from cqstore.ab.record.group_progress import GroupProgress, OffsetTable, PutTimes
from cqstore.ab.record.names import Names
from cqstore.ab.trace.operation_lines import StoreOp, last_line, operation_line
from cqstore.ab.trace.operations import MAX_PUT_BYTES
from cqstore.ab.trace.trace_output import TraceOutput
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import MessageProperty, is_queued

LAST_LINE_BYTES = 4096
"""Bytes that are kept free for the last line."""
_LINES = 10_000
"""Maximum number of lines of pulls that are in memory."""


@dataclass(slots=True)
class Counts:
    """What a recording has, and what it lacks."""

    puts: int = 0
    pulls: int = 0
    large: int = 0
    """Puts that are not in the trace, because their body is too large."""
    unwritten: int = 0
    """Operations that are not in the trace, because the file is full."""
    full_at: float = -1.0
    """Seconds after the start at which the file was full; -1: it is not."""
    ahead: float = 0.0
    """Seconds by which a record was stored later than it was received."""
    behind: float = math.inf
    """Seconds by which each record was at least stored earlier than it was received."""
    newest: float = -math.inf
    """Seconds from the start to the store time of the last record."""


class RecordedLines:
    """Writes the operations that were stored in ``seconds`` from ``began_ms`` on.

    ``began_ms`` is compared with the master's store times: its clock should agree with this one.
    """

    def __init__(
        self, output: TraceOutput, names: Names, began_ms: int, seconds: float,
        offsets: OffsetTable | None,
    ) -> None:  # fmt: skip
        """``offsets``: consumer offsets at the start; ``None``: no pulls are recorded."""
        self._output, self._names = output, names
        self._began_ms, self._end_ms = began_ms, began_ms + int(seconds * 1000)
        self._began = time.monotonic()
        self._times = PutTimes()
        self._progress = None if offsets is None else GroupProgress(self._times, offsets, 0.0)
        self.counts = Counts()
        self.is_past = False
        """Whether a record was received that was stored after the recording's end."""

    @property
    def progress(self) -> GroupProgress | None:
        """Return the progress of the groups, or ``None`` without pulls."""
        return self._progress

    def seconds(self) -> float:
        """Return the seconds since the recording began."""
        return time.monotonic() - self._began

    def put(self, records: Sequence[StoredMessage]) -> None:
        """Write records of the log that were stored while the recording lasts."""
        lines = list(self._put_lines(records, time.time()))
        self.counts.puts += self._write(lines)

    def consumed(self, offsets: OffsetTable) -> None:
        """Write the pulls between the last table of offsets and this one."""
        if self._progress is None:
            return
        lines = (
            operation_line(
                StoreOp.PULL,
                (self._names.topic(pull.topic), pull.queue_id, pull.offset, pull.messages, None),
                pull.at,
            )
            for pull in self._progress.pulls(offsets, self.seconds())
        )
        while part := list(islice(lines, _LINES)):
            self.counts.pulls += self._write(part)

    def end(self, missing: Sequence[str]) -> None:
        """Write the last line with sentences about what is missing."""
        line = last_line(max(self.seconds(), 0.0), missing)
        self._output.end(line)

    def _put_lines(self, records: Sequence[StoredMessage], now: float) -> Iterator[bytes]:
        for record in records:
            stored_ms = record.store_timestamp
            self.counts.newest = stored_ms / 1000 - self._began_ms / 1000
            if stored_ms >= self._end_ms:
                self.is_past = True
            elif stored_ms >= self._began_ms and is_queued(record.sys_flag):
                self._compare_clocks(now - stored_ms / 1000)
                if (line := self._put_line(record, stored_ms)) is not None:
                    yield line

    def _put_line(self, record: StoredMessage, stored_ms: int) -> bytes | None:
        topic, at = record.topic, (stored_ms - self._began_ms) / 1000
        self._times.remember(topic, record.queue_id, record.queue_offset, at)
        size = len(record.stored_body)
        if size > MAX_PUT_BYTES:
            self.counts.large += 1
            return None
        tag = self._names.tag(record.properties.get(MessageProperty.TAGS))
        values = (self._names.topic(topic), record.queue_id, size, tag)
        return operation_line(StoreOp.PUT, values, at)

    def _write(self, lines: Sequence[bytes]) -> int:
        written, counts = self._output.write(lines), self.counts
        if written < len(lines):
            counts.unwritten += len(lines) - written
            if counts.full_at < 0:
                counts.full_at = self.seconds()
        return written

    def _compare_clocks(self, delay: float) -> None:
        counts = self.counts
        counts.ahead = max(counts.ahead, -delay)
        counts.behind = min(counts.behind, delay)
