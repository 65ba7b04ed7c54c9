"""LogMap: the map of one log file, and what is done where the file does not bear it any more.

A file that is cut under its map, or a page of it that the disk cannot give, is ``SIGBUS``. The core
makes zeros of such a page and notes it (``MapGuard``). So whatever is read through a map is asked
about behind the read, and what is written is acknowledged after the same question; where the map is
not to be believed the file is read by system calls, which have the error.

The only module that imports ``mmap``.
"""

import mmap
import os
from pathlib import Path

from cqstore.store.core import _faults
from cqstore.store.errors import CorruptionError, StoreIOError, TruncatedRecordError, os_errors
from cqstore.store.files import Descriptor


class LogMap(mmap.mmap):
    """A map that keeps its guard until the last view of it is gone; not to be closed by hand."""

    __slots__ = ("guard",)

    guard: _faults.MapGuard

    def bring_in_singly(self, *, singly: bool) -> None:
        """Have the kernel bring in pages one by one, or again as many as the disk reads ahead.

        It is advice: where the system knows none, nothing is said.
        """
        if hasattr(self, "madvise"):
            self.madvise(mmap.MADV_RANDOM if singly else mmap.MADV_NORMAL)


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
    made.guard = _faults.MapGuard(made, path, file, is_writable=not read_only)
    return made


def read_record(path: Path, file: Descriptor, position: int, size: int) -> bytes:
    """Return ``size`` bytes of a log file at ``position``, without its map.

    Raises:
        TruncatedRecordError: the file has shrunk.
        StoreIOError: the disk refused.
    """
    try:  # `os_errors`, for less
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
        raise _refused("read the size of", path, exc) from exc
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


_faults.bind_faults(read_record)
