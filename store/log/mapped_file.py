"""MappedFile: one fixed-size file of the commit log.

Invariants:
  M1  No byte is written through a map whose block is not reserved. On a full disk a write through a
      sparse map raises SIGBUS, while the reservation raises ``DiskFullError``.
  M2  Writes through a map are valid only after ``check_written``, and reads through a map only
      after a check of its guard, see ``LogMap``.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from cqstore.store.errors import StoreClosedError, StoreIOError, TruncatedRecordError, os_errors
from cqstore.store.files import (
    PAGE_BYTES,
    Descriptor,
    file_name,
    open_regular,
    sync_folder,
    write_all,
)
from cqstore.store.log import _tail
from cqstore.store.log.log_map import LogMap, check_length, map_log_file, read_record


class MappedFile(_tail.FilePositions):
    """A file of ``file_size`` bytes that starts at ``file_from_offset`` of the log.

    Only the owner writes (one thread under the append lock); any thread may read. A view from
    ``select`` stays valid while it is held, also after ``close``, and keeps the map alive until
    then: hold it for one request only, and copy data that must live longer.
    """

    def __init__(
        self,
        path: Path,
        file_size: int,
        *,
        read_only: bool,
        on_missing: Callable[[int], None] | None = None,
    ) -> None:
        """Create the object for an existing file, without opening the file.

        ``on_missing`` is called with the file's start if the file is missing when it is opened. It
        may raise its own error.
        """
        self.path = path
        self.file_size = file_size
        self.file_from_offset = int(path.name)
        self.wrote_position = file_size  # the whole file, until recovery has found the end
        self.flushed_position = file_size
        self._read_only = read_only
        self._on_missing = on_missing
        self.mapped = None
        self.heap = None
        self._pages_singly = False
        self._committed = 0  # bytes of the heap that are in the file
        self._commit_lock = threading.RLock()  # guards the heap and _committed
        self._open: Descriptor | None = None
        self._closed = False
        self._lock = threading.RLock()  # guards the creation of _open and mapped

    @classmethod
    def create(
        cls, folder: Path, file_from_offset: int, file_size: int, warm_pages: int = 0
    ) -> "MappedFile":
        """Create a new file with all blocks reserved and its name on disk.

        ``warm_pages``: also write zeros, with a sync after this many pages of 4 KiB; 0: write none.

        Raises:
            DiskFullError: the blocks cannot be reserved; the file is removed.
            StoreIOError: any other error, also that the file already exists.
        """
        path = folder / file_name(file_from_offset)
        with os_errors("create a commit log file", path):
            fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                os.posix_fallocate(fd, 0, file_size)
                _warm(fd, file_size, warm_pages)
                os.fsync(fd)
                sync_folder(folder)
            except BaseException:
                path.unlink()
                raise
            finally:
                os.close(fd)
        made = cls(path, file_size, read_only=False)
        made.wrote_position = made.flushed_position = 0
        return made

    def reserve(self) -> None:
        """Reserve the blocks from ``wrote_position`` on, before the first write to an old file.

        Raises:
            DiskFullError: there is no space for the blocks.
        """
        with os_errors("reserve the blocks of a commit log file", self.path):
            left = self.file_size - self.wrote_position
            if left:
                file = self._descriptor()  # keeps it open
                os.posix_fallocate(file.number, self.wrote_position, left)

    def use_heap(self) -> None:
        """Buffer all further writes in memory until ``commit`` (transient store pool).

        Readers see committed bytes only; a killed process loses the rest.
        """
        self._committed = self.wrote_position
        self.heap = bytearray(self.file_size)  # pages that are never written take no memory

    def bring_in_singly(self, *, singly: bool) -> None:
        """Load pages of the map one by one while small writes are synced, or with read-ahead.

        Pages that the kernel loads together are also written together: with 8 MiB of read-ahead, up
        to 2 MiB per sync, however small the record (decision 71).
        """
        with self._lock:
            self._pages_singly = singly
            if self.mapped is not None:
                self.mapped.bring_in_singly(singly=singly)

    def target(self) -> "LogMap | bytearray":
        """Return the buffer for the next record, at ``wrote_position``: the map, or the heap."""
        return self.map() if self.heap is None else self.heap

    def check_written(self, target: "LogMap | bytearray | None") -> None:
        """Check that the file contains what was written to ``target``, before it is acknowledged.

        Raises:
            CorruptionError: the file was truncated.
            StoreIOError: a page could not be loaded.
        """
        if isinstance(target, bytearray) or target is None or not target.guard.has_faults:
            return
        check_length(self.path, self._descriptor(), self.file_size)
        raise StoreIOError(
            "a page of the commit log file could not be read or written", path=self.path
        )

    @property
    def readable_position(self) -> int:
        """Return the end of the readable bytes."""
        return self.wrote_position if self.heap is None else self._committed

    def commit(self) -> None:
        """Write the bytes that wait in memory into the file; they are not durable yet. Any thread.

        Raises:
            StoreIOError: writing failed; a part may have been written.
            CorruptionError: the file was truncated; nothing was written.
        """
        with self._commit_lock, os_errors("commit to a commit log file", self.path):
            heap, wrote = self.heap, self.wrote_position
            if heap is None:
                return
            view = memoryview(heap)
            file = self._descriptor()  # keeps it open
            check_length(self.path, file, self.file_size)  # else the write extends it
            while self._committed < wrote:
                at = self._committed
                at += os.pwrite(file.number, view[at:wrote], at)
                # A nested call in this thread may have written more.
                self._committed = max(self._committed, at)
            if wrote == self.file_size:
                self.heap = None

    def map(self) -> LogMap:
        """Return the map, created on first use.

        Raises:
            StoreClosedError: after ``close``.
            CorruptionError: the file is shorter than it was when the store was opened.
        """
        found = self.mapped
        if found is not None:
            return found
        file = self._descriptor()
        with self._lock:
            if self.mapped is None:
                made = map_log_file(self.path, file, self.file_size, read_only=self._read_only)
                if self._pages_singly:
                    made.bring_in_singly(singly=True)
                self.mapped = made
            return self.mapped

    def unmap(self) -> None:
        """Release the map; views that are held keep it alive."""
        self.mapped = None

    @property
    def is_mapped(self) -> bool:
        """Return whether the file is mapped."""
        return self.mapped is not None

    def select(self, position: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``position`` as a read-only view of the map, without a copy.

        A copy if the map is not valid. If the file is truncated later, the view reads as zeros;
        ``StoredMessage`` detects that.

        Raises:
            TruncatedRecordError: the range exceeds what was written, or the file was truncated.
            StoreIOError: a read from disk failed.
            StoreClosedError: after ``close``.

        Source: RocketMQ ``MappedFile.selectMappedBuffer``.
        """
        self._check_span(position, size)
        mapped = self.map()
        if mapped.guard.can_read(position, size):
            return memoryview(mapped)[position : position + size].toreadonly()
        return memoryview(self.read_raw(position, size))

    def read(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes from ``position`` as a copy, read without the map.

        A page that is not in memory is read without the GIL, unlike through a map.

        Raises:
            TruncatedRecordError: the range exceeds what was written, or the file was truncated.
        """
        self._check_span(position, size)
        return self.read_raw(position, size)

    def read_raw(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes from ``position``, also after the written bytes (for recovery).

        Raises:
            TruncatedRecordError: the file was truncated.
        """
        return read_record(self.path, self._descriptor(), position, size)

    def data_spans(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges after ``position`` that may hold bytes other than zero.

        Holes of a sparse file are skipped without reading them.
        """
        file, spans, at = self._descriptor(), [], position
        with os_errors("find data in a commit log file", self.path):
            while at < self.file_size:
                try:
                    start = os.lseek(file.number, at, os.SEEK_DATA)
                except OSError:  # ENXIO: only a hole follows
                    break
                end = min(os.lseek(file.number, start, os.SEEK_HOLE), self.file_size)
                spans.append((start, end))
                at = end
        return spans

    def zero(self, position: int) -> None:
        """Overwrite everything from ``position`` on with zeros, durably.

        Raises:
            StoreIOError: the file could not be written.
        """
        with os_errors("zero the tail of a commit log file", self.path):
            file = self._descriptor()
            for start, end in self.data_spans(position):
                for at in range(start, end, _CHUNK):
                    write_all(file.number, bytes(min(_CHUNK, end - at)), at)
            os.fdatasync(file.number)

    def write_again(self, start: int, end: int) -> None:
        """Write the bytes from ``start`` to ``end`` once more, durably.

        Raises:
            StoreIOError: the file could not be written; the bytes are unchanged.
        """
        with os_errors("rewrite the tail of a commit log file", self.path):
            file = self._descriptor()
            for at in range(start, end, _CHUNK):
                write_all(file.number, self.read_raw(at, min(_CHUNK, end - at)), at)
            os.fdatasync(file.number)

    def rewrite(self, position: int, data: bytes) -> None:
        """Overwrite bytes that were written before, durably (for recovery).

        Raises:
            StoreIOError: the file could not be written; a part may have been written.
        """
        with os_errors("rewrite a record of a commit log file", self.path):
            file = self._descriptor()
            write_all(file.number, data, position)
            os.fdatasync(file.number)

    def flush(self) -> int:
        """Make all written bytes durable; return the flushed position. Releases the GIL.

        Raises:
            StoreIOError: the sync failed; it is unknown which bytes are durable.
            CorruptionError: the file was truncated, so a part of the written bytes may be lost.
        """
        self.commit()
        wrote = self.readable_position
        if wrote > self.flushed_position:
            with os_errors("flush a commit log file", self.path):
                file = self._descriptor()  # keeps it open
                os.fdatasync(file.number)
            check_length(self.path, file, self.file_size)  # after the sync, which ignores it
            self.check_written(self.mapped)
            self.flushed_position = wrote
        return self.flushed_position

    def close(self) -> None:
        """Release all resources. Views that are held stay valid."""
        with self._lock:
            self._closed = True
            self.mapped = None
            self._open = None

    def hold_open(self) -> None:
        """Open the file if it is not open yet: readers then do not need its name.

        Raises:
            StoreIOError: the file cannot be opened.
        """
        self._descriptor()

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the file; readers that have it open can continue to read.

        Raises:
            StoreIOError: the file cannot be deleted.
        """
        with os_errors("delete a commit log file", self.path):
            self.path.unlink(missing_ok=missing_ok)

    def destroy(self, *, missing_ok: bool = False) -> None:
        """Close and delete the file.

        Raises:
            StoreIOError: the file cannot be deleted.
        """
        self.close()
        self.unlink(missing_ok=missing_ok)

    def _check_span(self, position: int, size: int) -> None:
        if position < 0 or size < 0 or position + size > self.readable_position:
            raise TruncatedRecordError(
                "the read runs past the end of the written data", path=self.path, position=position,
                expected=f"at most {self.readable_position} bytes", got=f"{position + size} bytes",
            )  # fmt: skip

    def _descriptor(self) -> Descriptor:
        """Return the open descriptor; the first call opens it.

        Raises:
            StoreClosedError: the file is closed.
        """
        found = self._open
        if found is not None:
            return found
        with self._lock:
            if self._closed:
                raise StoreClosedError("the commit log file is closed", path=self.path)
            if self._open is None:
                self._open = self._opened()
            return self._open

    def _opened(self) -> Descriptor:
        """Open the file.

        Raises:
            StoreIOError: the file cannot be opened.
        """
        mode = os.O_RDONLY if self._read_only else os.O_RDWR
        with os_errors("open a commit log file", self.path):
            try:
                return Descriptor(self.path, mode)
            except FileNotFoundError:
                if self._on_missing is not None:
                    self._on_missing(self.file_from_offset)
                raise


_CHUNK = 1 << 20


def _warm(fd: int, file_size: int, pages: int) -> None:
    """Fill a new file with zeros, so that its first records need not allocate blocks."""
    step = pages * PAGE_BYTES
    for start in range(0, file_size, step) if pages else ():
        for at in range(start, min(start + step, file_size), _CHUNK):
            write_all(fd, bytes(min(_CHUNK, min(start + step, file_size) - at)), at)
        os.fdatasync(fd)
