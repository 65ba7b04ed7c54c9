"""LogMap: the map of one log file, and the handling of a file that no longer backs its map.

Access to a map raises ``SIGBUS`` if the file was truncated, or if a page cannot be read from disk.
The compiled code replaces such a page with zeros and records it (``MapGuard``). So the guard is
checked after each read through a map, and before a write is acknowledged; if the map is not valid,
the file is read by system calls, which report the error.

The only module that imports ``mmap``.
"""

import mmap
import os
from pathlib import Path

from cqstore.store.core import _faults
from cqstore.store.errors import CorruptionError, StoreIOError, TruncatedRecordError, os_errors
from cqstore.store.files import Descriptor


class LogMap(mmap.mmap):
    """A map that keeps its guard until its last view is released; must not be closed explicitly."""

    __slots__ = ("guard",)

    guard: _faults.MapGuard

    def bring_in_singly(self, *, singly: bool) -> None:
        """Make the kernel load pages one by one, or again with the disk's read-ahead.

        This is advice: a system that does not support it ignores it.
        """
        if hasattr(self, "madvise"):
            self.madvise(mmap.MADV_RANDOM if singly else mmap.MADV_NORMAL)


def map_log_file(path: Path, file: Descriptor, size: int, *, read_only: bool) -> LogMap:
    """Map the first ``size`` bytes of an open log file.

    Raises:
        CorruptionError: the file is shorter than ``size``.
        StoreIOError: mapping the file failed.
    """
    access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
    with os_errors("map a commit log file", path):
        try:
            made = LogMap(file.number, size, access=access)
        except ValueError as exc:  # mmap's error for a map longer than the file
            raise shrunk(path, file, size) from exc
    made.guard = _faults.MapGuard(made, path, file, is_writable=not read_only)
    return made


def read_record(path: Path, file: Descriptor, position: int, size: int) -> bytes:
    """Return ``size`` bytes of a log file at ``position``, without its map.

    Raises:
        TruncatedRecordError: the file was truncated.
        StoreIOError: a read from disk failed.
    """
    try:  # like `os_errors`, but cheaper
        data = os.pread(file.number, size, position)
    except OSError as exc:
        raise _refused("read", path, exc) from exc
    if len(data) != size:
        raise TruncatedRecordError(
            "the file has shrunk", path=path, position=position,
            expected=f"{size} bytes", got=f"{len(data)} bytes",
        )  # fmt: skip
    return data


def check_length(path: Path, file: Descriptor, size: int) -> None:
    """Check that a log file is as long as when it was created.

    Raises:
        CorruptionError: the file was truncated.
    """
    try:
        length = os.fstat(file.number).st_size
    except OSError as exc:
        raise _refused("read the size of", path, exc) from exc
    if length < size:
        raise shrunk(path, file, size)


def _refused(what: str, path: Path, exc: OSError) -> StoreIOError:
    return StoreIOError(f"cannot {what} a commit log file: {exc.strerror or exc}", path=path)


def shrunk(path: Path, file: Descriptor, size: int) -> CorruptionError:
    """Return the error for a file that is shorter than its map."""
    return CorruptionError(
        "the file has shrunk", path=path, expected=f"{size} bytes",
        got=f"{os.fstat(file.number).st_size} bytes",
    )  # fmt: skip


_faults.bind_faults(read_record)
