"""LogFollower: reads the records that another process appends to a log, as they arrive.

It reads the files from outside, as ``ForeignLogTail`` does: nothing is locked, mapped or changed.
The head of a record is written last (invariant I1 of ``CommitLog``), and its checksum is compared:
a record that is not complete yet is read again by the next poll.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from cqstore.store.errors import CorruptionError, RefusedStoreError, os_errors
from cqstore.store.files import reading
from cqstore.store.log.log_files import LogFiles, list_log_files, log_file_at
from cqstore.store.record.decoder import StoredMessage, check_record, record_span
from cqstore.store.record.record_layout import BLANK_SIZE, HEAD, MAGIC_BLANK, MAGIC_V1, MAGIC_V2

_BLOCK = 1 << 20
_MAGICS = {MAGIC_V1, MAGIC_V2, MAGIC_BLANK}


class LogFollower:
    """Reads the log in ``folders`` from a phy offset on. One thread.

    ``phy_offset`` is the position of the next record to read. ``passed_over`` has the errors of
    damaged records that other records follow, ``expired`` the bytes that expired before they were
    read; the caller reports and clears both.
    """

    def __init__(self, folders: Sequence[Path], phy_offset: int) -> None:
        """Start at ``phy_offset``; if no record starts there, at the start of its file."""
        self._folders = folders
        self.phy_offset = phy_offset
        self.passed_over: list[CorruptionError] = []
        self.expired = 0
        self._last: tuple[int, bytes] | None = None  # phy offset and head of the last record read
        self._files: LogFiles = {}  # listed again if a file is missing
        self._seen: dict[Path, tuple[int, int]] = {}  # folders, by device and inode
        self._check_not_moved()
        place = self._place(phy_offset)
        if place is not None and not self._starts_at(place, phy_offset):
            self.phy_offset = place[0]

    def poll(self) -> Iterator[StoredMessage]:
        """Yield the records that are in the log now, in log order, each with a copy of its bytes.

        Raises:
            RefusedStoreError: the log was truncated before records that were read, or was moved or
                removed.
            StoreIOError: a file cannot be read.
        """
        self._check_not_moved()
        self._check_not_cut()
        while (place := self._next_place()) is not None:
            before = self.phy_offset
            with os_errors("read a commit log file", place[1]):
                try:
                    with reading(place[1]) as file:
                        yield from self._read(file, place[0])
                except FileNotFoundError:  # it has just expired
                    self._files = {}
                    continue
            if self.phy_offset == before:
                return

    def _next_place(self) -> tuple[int, Path, int] | None:
        """Return the file to read next; bytes that expired before they were read are counted."""
        place = self._place(self.phy_offset)
        if place is None and self._files and self.phy_offset < min(self._files):
            self.expired += min(self._files) - self.phy_offset
            self.phy_offset = min(self._files)
            place = self._place(self.phy_offset)
        return place

    def _read(self, file: BinaryIO, start: int) -> Iterator[StoredMessage]:
        """Yield the records of one file, which begins at ``start``, from ``phy_offset`` on."""
        end, base, data = start + os.fstat(file.fileno()).st_size, 0, b""
        while (at := self.phy_offset) < end:
            size = _span(data, at - base, end - at, at) if base <= at < base + len(data) else None
            if size is None or at - base + size > len(data):  # incomplete when read: read again
                base, data = at, _bytes_at(file, at - start, _BLOCK)
                size = _span(data, 0, end - at, at)
                if size is None:  # the normal end of a log
                    return
                if size > len(data):
                    data = _bytes_at(file, at - start, size)
            if not size:
                self.phy_offset = end
                return
            message = self._checked(file, at - start, data[at - base : at - base + size], at)
            if message is not None:
                self._last = at, bytes(message.record[: HEAD.size])
                self.phy_offset = at + size
                yield message
            elif self.phy_offset == at:
                return

    def _checked(
        self, file: BinaryIO, position: int, record: bytes, at: int
    ) -> StoredMessage | None:
        """Return the record at ``at``; ``None``: it is incomplete, or was skipped as damaged."""
        try:
            return _check(record, at)
        except CorruptionError:
            behind = _bytes_at(file, position + len(record), BLANK_SIZE)
            if int.from_bytes(behind[4:], "big", signed=True) not in _MAGICS:
                return None  # the last record, which may be being written
        try:  # heads are written in order: the record may be complete by now
            return _check(_bytes_at(file, position, len(record)), at)
        except CorruptionError as exc:
            self.passed_over.append(exc)
            self.phy_offset = at + len(record)
            return None

    def _check_not_moved(self) -> None:
        """Refuse to wait for records of a log whose folder was removed or replaced.

        Raises:
            RefusedStoreError: a folder no longer exists, or was replaced.
            StoreIOError: a folder cannot be checked.
        """
        for folder in self._folders:
            with os_errors("open the folder of the commit log", folder):
                try:
                    status = folder.stat()
                except (FileNotFoundError, NotADirectoryError):
                    found = None
                else:
                    found = status.st_dev, status.st_ino
            if found is not None:
                self._seen.setdefault(folder, found)
            if self._seen.get(folder) != found:
                how = "moved or removed" if found is None else "replaced by another folder"
                raise RefusedStoreError(f"the commit log was {how}", path=folder)

    def _check_not_cut(self) -> None:
        """Refuse to continue if the last record is not in its place.

        Raises:
            RefusedStoreError: the log was truncated there.
        """
        if self._last is None:
            return
        at, head = self._last
        place = self._place(at)
        if place is None:
            return
        with os_errors("read a commit log file", place[1]):
            try:
                with reading(place[1]) as file:
                    found = _bytes_at(file, at - place[0], HEAD.size)
            except FileNotFoundError:
                self._files = {}
                return
        if found != head:
            raise RefusedStoreError(
                f"the log was truncated: the record that was read at {at} no longer exists",
                path=place[1], phy_offset=at,
            )  # fmt: skip

    def _starts_at(self, place: "tuple[int, Path, int]", at: int) -> bool:
        start, path, length = place
        with os_errors("read a commit log file", path):
            try:
                with reading(path) as file:
                    data = _bytes_at(file, at - start, BLANK_SIZE)
            except FileNotFoundError:  # it has just expired: the next poll lists again
                self._files = {}
                return True
        if len(data) < BLANK_SIZE or not any(data):
            return True  # the end of the log
        return _span(data, 0, start + length - at, at) is not None

    def _place(self, at: int) -> tuple[int, Path, int] | None:
        """Return start, path and length of the file that contains ``at``."""
        found = log_file_at(self._files, at)
        if found is None:
            self._files = list_log_files(self._folders)
            found = log_file_at(self._files, at)
        return found


def _span(data: bytes, position: int, left: int, at: int) -> int | None:
    """Return the size of the record at ``position``, 0 for a blank one; ``None``: no record."""
    if position + BLANK_SIZE > len(data):
        return None
    try:
        return record_span(data, position, left, at)
    except CorruptionError:
        return None


def _check(record: bytes, at: int) -> StoredMessage:
    return check_record(record, at, check_crc=True, property_crc=False)


def _bytes_at(file: BinaryIO, position: int, size: int) -> bytes:
    """Return the current bytes; a buffered file would return those of the first read."""
    return os.pread(file.fileno(), size, position)
