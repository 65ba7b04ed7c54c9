"""QueueFiles: the files of one queue, all of one size, addressed by logic offset.

Bytes are read and written by ``pread`` and ``pwrite`` on descriptors of a shared cache, never
through maps. One thread writes; any thread reads. Invariant: a writer that changes or removes bytes
that readers may use raises ``generation`` *before* it touches them. So a read is valid if the
generation is the same before and after it.
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
from cqstore.store.queue.units import QueueKey

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CHUNK = 1 << 16


@dataclass(slots=True)
class FileAccess:
    """Shared by the files of all queues of one kind."""

    parent: str
    """Folder that contains the folders of the topics."""
    mapped_file_size: int
    """Size of each file in bytes, a whole number of units; not changed once files are read."""
    cache: DescriptorCache
    """Cache of open descriptors."""
    unsynced: UnsyncedFiles
    """Files and folders that may not be on disk yet."""


class QueueFiles(_table.FileRow):
    """The files of one queue, by increasing start.

    ``starts`` are the files' logic offsets; the list is replaced, never changed, so a reader may
    keep one. There may be a gap where a file was lost. The path of the folder is not kept, since a
    store may have a million queues.
    """

    __slots__ = ()

    def __init__(self, access: FileAccess, topic: str, queue_id: int, starts: list[int]) -> None:
        self.access = access
        self.topic, self.queue_id = topic, queue_id
        self.starts = starts
        self.generation = 0

    @property
    def key(self) -> QueueKey:
        """Return topic and queue id."""
        return QueueKey(self.topic, self.queue_id)

    @property
    def folder(self) -> str:
        """Return the path of the queue's folder."""
        return f"{self.access.parent}/{self.topic}/{self.queue_id}"

    @property
    def end(self) -> int:
        """Return the logic offset after the last file; 0 without files."""
        return self.starts[-1] + self.access.mapped_file_size if self.starts else 0

    def path(self, start: int) -> str:
        """Return the path of the file that starts at ``start``."""
        return f"{self.folder}/{file_name(start)}"

    def file_at(self, logic_offset: int) -> int | None:
        """Return the start of the file that contains ``logic_offset``, or ``None``."""
        starts = self.starts
        index = bisect_right(starts, logic_offset) - 1
        if index < 0 or logic_offset >= starts[index] + self.access.mapped_file_size:
            return None
        return starts[index]

    def next_held(self, logic_offset: int) -> int | None:
        """Return the first offset from ``logic_offset`` on that is in a file, or ``None``."""
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
            TruncatedRecordError: the file is shorter.
            StoreIOError: the file cannot be read.
        """
        path = self.path(start)
        # Keep a reference to the object while its number is in use, see descriptor_cache.
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
        """Return the result of ``read``, called again if the writer cut or removed files meanwhile.

        An error during such a change is not an error of the disk: a file may be missing, or may be
        created again and have no length yet.

        Raises:
            StoreIOError: a file is missing that neither this process nor an expiry removed.
            StoreError: raised by ``read`` while the writer changed nothing.
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
        """Forget leading files that another process has removed; return whether there were any.

        Files that are missing after the first existing one have not expired.
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
        """Record that the file at ``start`` is the first one: those before have expired."""

    def data_behind(self, logic_offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield ``(logic offset, bytes)`` of each chunk from there on that is not all zeros."""
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
            return position  # inside a page with data; only whole pages can be holes
        descriptor = self.access.cache.get(path)
        try:
            return max(position, os.lseek(descriptor.number, position, os.SEEK_DATA))
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return self.access.mapped_file_size
            if exc.errno == errno.EINVAL:
                return position  # the file system does not report holes
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
        """Create the file that begins at ``start``, and for the first file the queue's folder."""
        path, access = self.path(start), self.access
        if not self.starts:
            self._make_folders()
        access.cache.create(path, access.mapped_file_size)
        access.unsynced.note_file(path, 0)
        access.unsynced.note_folder(self.folder)
        self.starts = sorted([*self.starts, start])

    def _make_folders(self) -> None:
        """Create the queue's folder and missing parent folders, unless it exists."""
        missing = [self.folder]
        while missing:
            parent = missing[-1].rpartition("/")[0]
            try:
                os.mkdir(missing[-1])  # noqa: PTH102 - paths stay text, there are many of them
            except FileExistsError:
                pass  # if it is not a folder, creating the file fails
            except FileNotFoundError:
                missing.append(parent)
                continue
            except OSError:
                with os_errors("create a queue folder", missing[-1]):
                    raise
            self.access.unsynced.note_folder(parent)
            missing.pop()

    def cut(self, logic_offset: int) -> None:
        """Leave only zeros from ``logic_offset`` on; callers raise ``generation`` first.

        Later files are removed from last to first, so that an interrupted cut leaves no gap. A
        first file that starts at ``logic_offset`` remains (zeroed) unless its start is 0, because
        it records the queue's next offset.
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
