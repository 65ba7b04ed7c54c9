"""A note that a file's content was checked, so that the next start need not read the file again.

The note is a file beside it, ``<name>.checked``, in a folder that only its owner may write. It has
device, inode, size, mode, and the times of the last write and of the last change in nanoseconds.
The system moves the time of change with each write, rename and ``chmod``, and no call sets it back:
as long as all are what they were, the bytes are those that were checked.

Trusted are the clock, the owner of the folder (which may write any note) and the disk: what rots
below the file system changes no time. A file that was changed a moment ago gets no note: its time
of change has the steps of the system's ticks, so a write just after the check could leave it as is.
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
"""Since the last change: a second is the coarsest step that a file system in use has."""


def is_checked(path: Path) -> bool:
    """Return whether ``path`` is unchanged since its content was found to be right.

    Raises:
        OSError: the file does not exist or cannot be accessed.
    """
    stamp = _stamp(path.stat())
    with suppress(OSError, StoreError):  # no note, or something else in its place
        return read_file(_note(path), _MAX_BYTES) == stamp
    return False


def note_checked(path: Path, before: os.stat_result) -> None:
    """Note that the content of ``path`` is right; it was looked at before it was read.

    The note is of no use where the file has changed since, and there is none where it changed not
    long ago or the folder takes no file: then it is checked again.
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
