"""ForeignLogTail: finds the end of a log that another process writes, from its files alone.

Files are allocated whole, so their sizes do not show the end: the record heads are followed from
one record to the next until no record follows. A record's head is written last (invariant I1 of
``CommitLog``), so each record found is complete. Files are opened for reading and closed again;
nothing is locked, mapped or changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import reading
from cqstore.store.log.log_files import LogFiles, list_log_files, log_file_at
from cqstore.store.log.tail_topics import Read, TailTopics
from cqstore.store.record.decoder import record_span
from cqstore.store.record.record_layout import BLANK_SIZE

_BLOCK = 1 << 20


class LogEnds(NamedTuple):
    """Start, end and files of a log at one moment."""

    files: int
    file_size: int
    """Size of the largest file; all files of a sound log have one size."""
    min_phy_offset: int
    max_phy_offset: int
    """Phy offset after the last record with a valid head."""
    records: int
    """Records appended since the first refresh, which counts none."""


class ForeignLogTail:
    """Follows the end of the log in ``folders``. One thread."""

    def __init__(self, folders: Sequence[Path], topics: TailTopics | None = None) -> None:
        """``topics`` counts each record that is found, including those of the first refresh."""
        self._folders, self._topics = folders, topics
        self._last = self._end = -1  # start and end of the last record found
        self._records = 0

    def refresh(self, near: int = 0) -> LogEnds | None:
        """Return the current start and end of the log; ``None`` without files.

        ``near`` is a guess at a record near the end: a wrong one costs a scan of one file.

        Raises:
            StoreIOError: a file cannot be read.
        """
        files = self._list()
        if not files:
            return None
        size = max(length for _, length in files.values())
        first = self._end < 0
        if not self._still_there(files):
            self._last, self._end = self._start(files, near)
        passed = self._walk(files)
        if not first:
            self._records += passed
        return LogEnds(len(files), size, min(files), self._end, self._records)

    def _list(self) -> LogFiles:
        return list_log_files(self._folders)

    def _still_there(self, files: LogFiles) -> bool:
        """Return whether the last record found is still in its place."""
        if self._last < 0:
            return False
        return self._last + self._span(files, self._last) == self._end

    def _start(self, files: LogFiles, near: int) -> tuple[int, int]:
        """Return start and end of a record to scan from; without one, -1 and the log's start."""
        for start in reversed(files):  # the newest may have been created ahead, without a record
            for at in (near, start):
                size = self._span(files, at) if at >= start else 0
                if size:
                    return at, at + size
        return -1, min(files)

    def _walk(self, files: LogFiles) -> int:
        """Advance to the end of the log; return how many records were found."""
        passed = 0
        while (place := log_file_at(files, self._end)) is not None:
            start, path, length = place
            before = self._end
            with os_errors("read a commit log file", path):
                try:
                    with reading(path) as file:
                        passed += self._walk_file(file, start, length)
                except FileNotFoundError:  # it has just expired; the next refresh starts over
                    return passed
            if self._end == before:
                break
        return passed

    def _walk_file(self, file: BinaryIO, start: int, length: int) -> int:
        """Advance over the records of a file to the last one; return how many were found."""
        passed, end = 0, start + length
        while self._end < end:
            base = self._end
            file.seek(base - start)
            data = file.read(_BLOCK)
            while (position := self._end - base) + BLANK_SIZE <= len(data):
                at = self._end
                try:
                    size = record_span(data, position, end - at, at)
                except CorruptionError:  # the normal end of a log
                    return passed
                if not size:
                    self._end = end
                    return passed
                if self._topics is not None:
                    self._topics.passed(size, _reader(data, position, size, file, at - start))
                self._last, self._end = at, at + size
                passed += 1
            if self._end == base:
                break
        return passed

    def _span(self, files: LogFiles, at: int) -> int:
        """Return the size of the record at ``at``; 0 if none, or a blank record, starts there."""
        place = log_file_at(files, at)
        if place is None:
            return 0
        start, path, length = place
        with os_errors("read a commit log file", path):
            try:
                with reading(path) as file:
                    file.seek(at - start)
                    data = file.read(BLANK_SIZE)
            except FileNotFoundError:
                return 0
        try:
            return record_span(data, 0, start + length - at, at) if len(data) == BLANK_SIZE else 0
        except CorruptionError:
            return 0


def _reader(data: bytes, position: int, size: int, file: BinaryIO, at: int) -> Read:
    """Return a function that reads a record at ``position`` of ``data``, or ``at`` of ``file``."""

    def read(begin: int, count: int) -> bytes:
        if position + size <= len(data):
            return data[position + begin : position + begin + count]
        file.seek(at + begin)
        return file.read(count)

    return read
