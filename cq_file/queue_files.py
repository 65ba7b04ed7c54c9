"""QueueFiles: files of one size in a row under one logic offset, the disk side of one queue.

Bytes are moved by ``pread`` and ``pwrite`` on descriptors of a shared cache, never through maps.
One thread writes; any thread reads. Invariant: a writer that changes or removes bytes that a reader
may have been promised raises ``generation`` *before* it touches them, so that a reader that finds
the same generation after its read as before has read what it was promised.
"""

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from cqstore.cq_file import _table
from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.store.errors import StoreError, TruncatedRecordError, os_errors
from cqstore.store.files import PAGE_BYTES, file_name, write_all

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class FileAccess:
    """What the files of all queues of one kind share."""

    mapped_file_size: int
    """Bytes of each file, a whole number of units."""
    cache: DescriptorCache
    """Their open descriptors."""
    unsynced: UnsyncedFiles
    """What of them the disk may not have yet."""


class QueueFiles(_table.FileRow):
    """The files of one queue in ``folder``, by rising start.

    ``starts`` are the files' logic offsets; the list is replaced, never changed, so a reader may
    keep one. Neighbours may have a gap where a file was lost.
    """

    __slots__ = ()

    def __init__(self, access: FileAccess, folder: str, starts: list[int]) -> None:
        self.access = access
        self.folder = folder
        self.starts = starts
        self.generation = 0

    @property
    def end(self) -> int:
        """Return the logic offset after the last file; 0 without files."""
        return self.starts[-1] + self.access.mapped_file_size if self.starts else 0

    def path(self, start: int) -> str:
        """Return the path of the file that starts at ``start``."""
        return f"{self.folder}/{file_name(start)}"

    def file_at(self, logic_offset: int) -> int | None:
        """Return the start of the file that holds ``logic_offset``, ``None`` without one."""
        starts = self.starts
        index = bisect_right(starts, logic_offset) - 1
        if index < 0 or logic_offset >= starts[index] + self.access.mapped_file_size:
            return None
        return starts[index]

    def next_held(self, logic_offset: int) -> int | None:
        """Return the first offset from ``logic_offset`` on that a file holds, ``None`` without."""
        if self.file_at(logic_offset) is not None:
            return logic_offset
        starts = self.starts
        index = bisect_right(starts, logic_offset)
        return starts[index] if index < len(starts) else None

    # ---- reading (any thread)

    def read(self, logic_offset: int, length: int) -> bytes:
        """Return ``length`` bytes, or fewer if the next file is missing.

        Raises:
            FileNotFoundError: a file no longer exists; see ``stable``.
            TruncatedRecordError: a file is shorter than expected.
            StoreIOError: an I/O operation failed.
        """
        size = self.access.mapped_file_size
        start = self.file_at(logic_offset)
        if start is None:
            return b""
        position = logic_offset - start
        if position + length <= size:  # the usual case: one file
            return self._read_file(start, position, length)
        parts = []
        while length > 0 and start is not None:
            count = min(length, size - position)
            parts.append(self._read_file(start, position, count))
            logic_offset += count
            length -= count
            start, position = self.file_at(logic_offset), 0
        return b"".join(parts)

    def _read_file(self, start: int, position: int, length: int) -> bytes:
        """Return bytes of the file that begins at ``start``.

        Raises:
            TruncatedRecordError: it ends before.
            StoreIOError: it cannot be read.
        """
        path = self.path(start)
        # The object is kept in a local while its number is in use, see descriptor_cache.
        descriptor = self.access.cache.get(path)
        try:
            data = os.pread(descriptor.number, length, position)
        except OSError:
            with os_errors("read a queue file", path):
                raise
        if len(data) != length:
            raise TruncatedRecordError(
                "the queue file is truncated",
                path=Path(path),
                position=position,
                expected=length,
                got=len(data),
            )
        return data

    def stable(self, read: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return what ``read`` returns, called again while the writer cut or dropped files.

        What a read met that the writer overtook is no fault of the disk: a file may be missing,
        or be made again and not have its length yet.

        Raises:
            StoreIOError: a file is missing that neither this process nor an expiry removed.
            StoreError: as ``read`` raised it, while the writer changed nothing.
        """
        while True:
            generation = self.generation
            try:
                result = read(*args)
            except (FileNotFoundError, StoreError):
                if generation == self.generation and not self._leave_out_expired():
                    with os_errors("read a queue", self.folder):
                        raise
                continue
            if generation == self.generation:
                return result

    def _leave_out_expired(self) -> bool:
        """Leave out leading files that the writer of a read-only store removed; return whether any.

        Files that are missing after the first one that is there have not expired.
        """
        starts = self.starts
        if not self.access.cache.read_only or not starts:
            return False
        first = next((start for start in starts if os.path.lexists(self.path(start))), starts[0])
        if first == starts[0]:
            return False
        self.begin_with(first)
        self.generation += 1
        self.starts = starts[starts.index(first) :]
        return True

    def begin_with(self, start: int) -> None:
        """Note that the queue's first file is the one at ``start``: those before have expired."""

    def data_behind(self, logic_offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield ``(logic offset, bytes)`` of each chunk from there on that is not all zero."""
        size = self.access.mapped_file_size
        for start in self.starts:
            position = max(logic_offset - start, 0)
            path = self.path(start)
            while position < size:
                position = self._next_data(path, position)
                chunk = PAGE_BYTES - position % PAGE_BYTES if position % PAGE_BYTES else _CHUNK
                count = min(chunk, size - position)
                if count <= 0:
                    break
                data = self._read_file(start, position, count)
                if data.count(0) != count:
                    yield start + position, data
                position += count

    def _next_data(self, path: str, position: int) -> int:
        """Skip holes that the file system reports; the result is a multiple of a page."""
        if position % PAGE_BYTES:
            return position  # inside a page that holds data; only whole pages can be holes
        descriptor = self.access.cache.get(path)
        try:
            return max(position, os.lseek(descriptor.number, position, os.SEEK_DATA))
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return self.access.mapped_file_size
            if exc.errno == errno.EINVAL:
                return position  # the file system knows nothing of holes
            with os_errors("read a queue file", path):
                raise

    # ---- writing (one thread)

    def write(self, logic_offset: int, data: bytes) -> None:
        """Write ``data``, which may cross files; missing files after the last one are created.

        Raises:
            DiskFullError: no space is left; part of ``data`` may have been written.
            StoreIOError: an I/O operation failed.
        """
        size = self.access.mapped_file_size
        done = 0
        while done < len(data):
            start = logic_offset - logic_offset % size
            if self.file_at(logic_offset) is None:
                self._create(start)
            part = data[done : done + size - (logic_offset - start)]
            self.write_file(self.path(start), logic_offset - start, part)
            done += len(part)
            logic_offset += len(part)

    def write_file(self, path: str, position: int, data: bytes) -> None:
        """Write ``data`` into one file that exists."""
        try:
            descriptor = self.access.cache.get(path)  # held while its number is in use
            write_all(descriptor.number, data, position)
        except OSError:
            with os_errors("write a queue file", path):
                raise
        self.access.unsynced.note_file(path, len(data))

    def _create(self, start: int) -> None:
        """Make the file that begins at ``start``, and the queue's folder if it is the first."""
        path, access = self.path(start), self.access
        if not self.starts:
            self._make_folders()
        access.cache.create(path, access.mapped_file_size)
        access.unsynced.note_file(path, 0)
        access.unsynced.note_folder(self.folder)
        self.starts = sorted([*self.starts, start])

    def _make_folders(self) -> None:
        """Make the queue's folder, and what is missing above it, unless it is there."""
        missing = [self.folder]
        while missing:
            parent = missing[-1].rpartition("/")[0]
            try:
                os.mkdir(missing[-1])  # noqa: PTH102 - paths stay text, there are many of them
            except FileExistsError:
                pass  # if it is no folder, the file below it cannot be made
            except FileNotFoundError:
                missing.append(parent)
                continue
            except OSError:
                with os_errors("create a queue folder", missing[-1]):
                    raise
            self.access.unsynced.note_folder(parent)
            missing.pop()

    def cut(self, logic_offset: int) -> None:
        """Leave nothing but zeros from ``logic_offset`` on; callers raise ``generation`` first.

        Files behind it go, from the back, so that an interrupted cut leaves no gap. A first file
        that starts there stays (in zeros) unless its start is 0: it tells the queue's next offset.
        """
        keep = max(bisect_left(self.starts, logic_offset), 1) if logic_offset > 0 else 0
        for start in reversed(self.starts[keep:]):
            self.starts = self.starts[:-1]
            self._remove_file(start)
        for offset, data in self.data_behind(logic_offset):
            held_by = self.file_at(offset)
            if held_by is not None:
                self.write_file(self.path(held_by), offset - held_by, bytes(len(data)))

    def abandon(self) -> list[str]:
        """Make the queue empty for its readers, before its folder is deleted; return its files."""
        paths = [self.path(start) for start in self.starts]
        self.starts = []
        self.generation += 1
        return paths

    def remove_leading(self, count: int) -> None:
        """Remove the first ``count`` files; callers raise ``generation`` first."""
        for start in self.starts[:count]:
            self.starts = self.starts[1:]
            self._remove_file(start)

    def _remove_file(self, start: int) -> None:
        path, access = self.path(start), self.access
        with os_errors("remove a queue file", path):
            Path(path).unlink(missing_ok=True)
        access.cache.forget(path)
        access.unsynced.forget(path)
        access.unsynced.note_folder(self.folder)
