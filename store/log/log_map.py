"""LogMap: the map of one log file, and what is done where the file does not bear it any more.

A file that is cut under its map, or a page of it that the disk cannot give, is ``SIGBUS``. The core
makes zeros of such a page and notes it (``MapGuard``). So whatever is read through a map is asked
about behind the read, and what is written is acknowledged after the same question; where the map is
not to be believed the file is read by system calls, which have the error. Without the core nothing
is mapped: ``MappedFile`` reads and writes by system calls.

The only module that imports ``mmap``.
"""

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from store.core import READS
from store.errors import CorruptionError, StoreIOError, TruncatedRecordError, os_errors
from store.files import Descriptor, write_all

if TYPE_CHECKING:
    from store.core import _reads


class LogMap(mmap.mmap):
    """A map that keeps its guard until the last view of it is gone; not to be closed by hand."""

    __slots__ = ("guard",)

    guard: "_reads.MapGuard | None"


class LogWriter:
    """Takes bytes as a map does, at a slice of the file, and writes them by system calls."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path, file: Descriptor) -> None:
        self._path = path
        self._file = file

    def __setitem__(self, span: slice, data: bytes | memoryview) -> None:
        """Write ``data`` at ``span.start``.

        Raises:
            StoreIOError: the disk refused; a part may have been written, so never
                ``DiskFullError``, behind which nothing was.
        """
        try:
            write_all(self._file.number, data, span.start)
        except OSError as exc:
            raise _refused("write to", self._path, exc) from exc


def map_log_file(path: Path, file: Descriptor, size: int, *, read_only: bool) -> LogMap:
    """Map the first ``size`` bytes of an open log file.

    Raises:
        CorruptionError: it is shorter.
        StoreIOError: the system refused.
    """
    access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
    with os_errors("map a commit log file", path):
        try:
            made = LogMap(file.number, size, access=access)
        except ValueError as exc:  # mmap's word for a map longer than the file
            raise shrunk(path, file, size) from exc
    made.guard = None if READS is None else READS.MapGuard(
        made, path, file, is_writable=not read_only
    )  # fmt: skip
    return made


def read_record(path: Path, file: Descriptor, position: int, size: int) -> bytes:
    """Return ``size`` bytes of a log file at ``position``, without its map.

    Raises:
        TruncatedRecordError: the file has shrunk.
        StoreIOError: the disk refused.
    """
    try:  # `os_errors`, for less: without the core every record is read so
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
    """Check that a log file is as long as when it was made.

    Raises:
        CorruptionError: the file has shrunk.
    """
    try:
        length = os.fstat(file.number).st_size
    except OSError as exc:
        raise _refused("look at", path, exc) from exc
    if length < size:
        raise shrunk(path, file, size)


def _refused(what: str, path: Path, exc: OSError) -> StoreIOError:
    return StoreIOError(f"cannot {what} a commit log file: {exc.strerror or exc}", path=path)


def shrunk(path: Path, file: Descriptor, size: int) -> CorruptionError:
    """Return the error of a file that is shorter than its map."""
    return CorruptionError(
        "the file has shrunk", path=path, expected=f"{size} bytes",
        got=f"{os.fstat(file.number).st_size} bytes",
    )  # fmt: skip


if READS is not None:
    READS.bind_faults(read_record)
