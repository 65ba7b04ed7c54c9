"""ForeignLogTail: where a log ends that another process writes, from its files alone.

Files are reserved whole, so their sizes do not show the end: the heads of the records are followed,
from one to the next, until there is none. A record's head is written last (invariant I1 of
``CommitLog``), so what is seen is whole. Files are opened to be read and closed again; nothing is
locked, mapped or changed.
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
    """What a look at the files of a log found."""

    files: int
    file_size: int
    """Bytes of the largest; all are alike in a sound log."""
    min_phy_offset: int
    max_phy_offset: int
    """Behind the last record whose head makes sense."""
    records: int
    """Records passed since the first look, which counts none."""


class ForeignLogTail:
    """Follows the end of the log in ``folders``. One thread."""

    def __init__(self, folders: Sequence[Path], topics: TailTopics | None = None) -> None:
        """``topics`` is told each record that is passed, those of the first look too."""
        self._folders, self._topics = folders, topics
        self._last = self._end = -1  # start and end of the last record seen
        self._records = 0

    def refresh(self, near: int = 0) -> LogEnds | None:
        """Return where the log begins and ends now; ``None`` without files.

        ``near`` is a guess at a record near the end: a wrong one costs the walk through one file.

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
        """Return whether the last record seen is still where it was."""
        if self._last < 0:
            return False
        return self._last + self._span(files, self._last) == self._end

    def _start(self, files: LogFiles, near: int) -> tuple[int, int]:
        """Return start and end of a record to walk from; -1 and the log's start without any."""
        for start in reversed(files):  # the newest may have been made ahead, without a record
            for at in (near, start):
                size = self._span(files, at) if at >= start else 0
                if size:
                    return at, at + size
        return -1, min(files)

    def _walk(self, files: LogFiles) -> int:
        """Move to the end of the log; return how many records were passed."""
        passed = 0
        while (place := log_file_at(files, self._end)) is not None:
            start, path, length = place
            before = self._end
            with os_errors("read a commit log file", path):
                try:
                    with reading(path) as file:
                        passed += self._walk_file(file, start, length)
                except FileNotFoundError:  # it has just expired; the next look starts over
                    return passed
            if self._end == before:
                break
        return passed

    def _walk_file(self, file: BinaryIO, start: int, length: int) -> int:
        """Step over the records of a file up to where they end; return how many were passed."""
        passed, end = 0, start + length
        while self._end < end:
            base = self._end
            file.seek(base - start)
            data = file.read(_BLOCK)
            while (position := self._end - base) + BLANK_SIZE <= len(data):
                at = self._end
                try:
                    size = record_span(data, position, end - at, at)
                except CorruptionError:  # how a log ends
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
        """Return the size of the record at ``at``; 0 if none starts there, or a blank one."""
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
    """Return what reads a record at ``position`` of ``data``, and ``at`` of ``file``."""

    def read(begin: int, count: int) -> bytes:
        if position + size <= len(data):
            return data[position + begin : position + begin + count]
        file.seek(at + begin)
        return file.read(count)

    return read
