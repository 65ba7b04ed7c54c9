"""Folders whose files are never read at once: in memory, and with pages dropped as they are read.

``preadv2`` with ``RWF_NOWAIT`` is refused by tmpfs, and finds nothing of a page that was dropped: a
read then gives up the interpreter's lock, and other threads run in its midst.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_MEMORY = Path("/dev/shm")


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """Give a folder in memory, gone behind the block; ``otherwise`` where there is none."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield otherwise
        return
    folder = Path(tempfile.mkdtemp(prefix="cqstore-", dir=IN_MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def pages_dropped(root: Path) -> Iterator[None]:
    """Drop the pages of the files below ``root``, again and again, until the block ends."""
    over = threading.Event()

    def drop() -> None:
        while not over.is_set():
            for path in (f"{at}/{name}" for at, _, names in os.walk(root) for name in names):
                try:
                    fd = os.open(path, os.O_RDONLY)
                except OSError:  # gone meanwhile
                    continue
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(fd)

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        yield
    finally:
        over.set()
        dropping.join()
