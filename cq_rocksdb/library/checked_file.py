"""Records that a file's content was checked, so that the next start need not read the file again.

The record is a file next to it, ``<name>.checked``, in a folder that only its owner may write. It
contains device, inode, size, mode, and the times of the last write and the last change in
nanoseconds. The system updates the time of change with each write, rename and ``chmod``, and no
call can set it back: as long as all values are equal, the bytes are those that were checked.

This trusts the clock, the owner of the folder (who may write any record) and the disk: bit rot
changes no time. A file that was changed a moment ago gets no record: the time of change has the
resolution of the system's ticks, so a write just after the check might not change it.
"""

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from cqstore.store.errors import StoreError
from cqstore.store.files import read_file, replacing

_MAX_BYTES = 512
SETTLED_NS = 2_000_000_000
"""Minimum age of the last change: one second is the coarsest resolution of common file systems."""


def is_checked(path: Path) -> bool:
    """Return whether ``path`` is unchanged since its content was checked.

    Raises:
        OSError: the file does not exist or cannot be accessed.
    """
    stamp = _stamp(path.stat())
    with suppress(OSError, StoreError):  # no record, or an invalid one
        return read_file(_note(path), _MAX_BYTES) == stamp
    return False


def note_checked(path: Path, before: os.stat_result) -> None:
    """Record that the content of ``path`` is valid; ``before`` is its state before it was read.

    The record does not apply if the file has changed since. None is written if the file changed
    recently or the folder is not writable; then the file is checked again next time.
    """
    with suppress(OSError, StoreError):
        if time.time_ns() - before.st_ctime_ns > SETTLED_NS:
            unfinished = path.with_name(f"checking-{uuid.uuid4().hex}")
            with replacing(_note(path), unfinished) as file:
                file.write(_stamp(before))


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked")


def _stamp(of: os.stat_result) -> bytes:
    parts = (of.st_dev, of.st_ino, of.st_size, of.st_mode, of.st_mtime_ns, of.st_ctime_ns)
    return b"%d %d %d %o %d %d\n" % parts
