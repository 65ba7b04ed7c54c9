"""Files: the only module that opens, writes, replaces and syncs whole files.

It has all operations of the operating system that the store needs, except for maps and RocksDB. The
functions raise ``OSError`` unchanged: the caller's ``os_errors`` names the operation.
"""

import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from cqstore.store.errors import CorruptionError
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.path_kind import is_dir

PAGE_BYTES = 4096
"""The page size in RocketMQ's settings."""
NAME_DIGITS = 20
LAST_OFFSET = LONG_MAX
"""Maximum of a long, and of any offset in consecutive files."""
_LAST_NAME = f"{LAST_OFFSET:0{NAME_DIGITS}d}"
_NO_FILE = {errno.EISDIR, errno.ENXIO}
"""Errors of opening a folder for writing, a socket, or a FIFO without a reader."""
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}


def file_name(file_from_offset: int) -> str:
    """Return the name of a log file: its start offset as 20 decimal digits."""
    return f"{file_from_offset:0{NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Return whether ``file_name`` gives ``name`` for an offset that a long can hold."""
    is_number = len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()
    return is_number and name <= _LAST_NAME


# ---- opening


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open a regular file and return its descriptor; never waits, whatever the path is.

    A link is followed, but not to a FIFO, a device or a folder.

    Raises:
        CorruptionError: it is not a regular file.
        OSError: the file cannot be opened.
    """
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as exc:
        if exc.errno in _NO_FILE and not stat.S_ISREG(found := Path(path).stat().st_mode):
            raise _no_regular_file(path, found) from exc
        raise
    found = os.fstat(fd).st_mode
    if not stat.S_ISREG(found):
        os.close(fd)
        raise _no_regular_file(path, found)
    return fd


def _no_regular_file(path: Path | str, mode: int) -> CorruptionError:
    return CorruptionError(
        "not a regular file", path=Path(path),
        expected="a regular file", got=_KINDS.get(stat.S_IFMT(mode), "another type of file"),
    )  # fmt: skip


@contextmanager
def reading(path: Path | str) -> Iterator[BinaryIO]:
    """Open a regular file for reading, buffered.

    Raises:
        CorruptionError, OSError: as for ``open_regular``.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        yield file


def read_file(path: Path | str, limit: int) -> bytes:
    """Return the content of a regular file, which its format limits to ``limit`` bytes.

    Raises:
        CorruptionError: the file is longer, or not a regular file.
        OSError: the file cannot be read.
    """
    with reading(path) as file:
        # Memory for the number of bytes in a read is taken at once: not for all of the limit.
        size = min(os.fstat(file.fileno()).st_size, limit)
        data = file.read(size + 1)
        if size < len(data) <= limit:  # it has grown, or its system gives no size
            data += file.read(limit + 1 - len(data))
        if len(data) > limit:
            raise CorruptionError(
                "the file is too long", path=Path(path),
                expected=f"at most {limit} bytes", got=f"{os.fstat(file.fileno()).st_size} bytes",
            )  # fmt: skip
    return data


def check_regular(path: Path | str) -> None:
    """Check a file for code that opens it by its name, which could wait.

    Raises:
        CorruptionError, OSError: as for ``open_regular``.
    """
    os.close(open_regular(path))


def check_folder(folder: Path | str) -> None:
    """Check that ``folder`` contains only folders and regular files, see ``check_regular``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.is_file() or entry.is_dir()):
                check_regular(entry.path)


class Descriptor:
    """An open file, closed when the last holder releases it.

    So a file can be closed while another thread reads it: that read completes, and the number is
    not given to another file while a reader uses it.
    """

    __slots__ = ("number",)

    def __init__(self, path: Path | str, flags: int) -> None:
        self.number = open_regular(path, flags)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "number"):  # otherwise it could not be opened
            _close(self.number)


_STAT_BLOCK = 512
"""Unit of ``st_blocks`` in bytes, whatever the block size of the file system is."""


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when a file is replaced or written; ``None``: no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def bytes_on_disk(status: os.stat_result) -> int:
    """Return the disk use of a file or folder: less than its size for a file with holes."""
    return status.st_blocks * _STAT_BLOCK


# ---- writing


def write_all(fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``, in as many calls as the system needs.

    Raises:
        OSError: writing failed; a part may have been written.
    """
    done = os.pwrite(fd, data, position)
    if done == len(data):
        return
    view = memoryview(data).cast("B")
    while done < len(view):
        done += os.pwrite(fd, view[done:], position + done)


@contextmanager
def replacing(path: Path, unfinished: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file that replaces ``path`` when the block ends without an error.

    On success it is durable under its name. Otherwise the old file is unchanged, or, if only the
    sync of the folder failed, either of the two may exist after a power failure.

    ``unfinished`` is the name of the file until then, by default that of ``path`` and ``.new``. An
    existing file with that name, left by a killed process, is removed, never written to: it may be
    a link.

    Raises:
        OSError: the file could not be written.
    """
    unfinished = unfinished or path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    fd = open_regular(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Set the content of ``path`` to ``data``, durably, see ``replacing``."""
    with replacing(path) as file:
        file.write(data)


def remove_file(path: Path) -> None:
    """Remove ``path``, if it exists, durably."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


# ---- folders


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents, each name durably, unless it exists."""
    if is_dir(folder):
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path | str) -> None:
    """Make the names in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- whole file systems

_SYNCFS_REPORTS = (5, 8)
"""Linux versions since which ``syncfs`` reports pages that could not be written."""


def find_syncfs() -> Callable[[int], int] | None:
    """Return the system's ``syncfs``, ``None`` if it does not report failed writes."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if os.uname().sysname != "Linux" or release is None:
        return None
    if (int(release[1]), int(release[2])) < _SYNCFS_REPORTS:
        return None
    found: Callable[[int], int] | None = getattr(_c_library(), "syncfs", None)
    return found


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def sync_file_system(syncfs: Callable[[int], int], fd: int) -> None:
    """Make everything durable on the file system of ``fd``.

    Raises:
        OSError: the sync failed.
    """
    if syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_below(folders: Iterable[Path]) -> None:
    """Make durable all files and names below ``folders``, also those of other processes.

    One call per file system, or file by file if the system has no such call.
    """
    syncfs, done = find_syncfs(), set()
    for folder in filter(is_dir, folders):
        if syncfs is None:
            _sync_tree(folder)
        elif (device := folder.stat().st_dev) not in done:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync_file_system(syncfs, fd)
            finally:
                os.close(fd)
            done.add(device)


def _sync_tree(top: Path) -> None:
    """Sync all files and folders below ``top``, one by one."""
    for folder, _, names in os.walk(top):
        for name in names:
            with suppress(CorruptionError, FileNotFoundError):  # not a regular file: not ours
                fd = open_regular(f"{folder}/{name}")
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        sync_folder(folder)
