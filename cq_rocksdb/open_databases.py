"""The databases that this process has open for writing.

RocksDB's own lock does not keep the same process out once two RocksDB libraries live in it: each
has its own table of locks, and a file lock of the system belongs to the process.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import StoreLockedError, os_errors

_lock = threading.Lock()  # guards _open
_open: set[tuple[int, int]] = set()


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the database in ``folder``, known by device and inode, while the block runs.

    Raises:
        StoreLockedError: this process has it open for writing already.
    """
    with os_errors("look at", folder):
        status = folder.stat()
    key = (status.st_dev, status.st_ino)
    with _lock:
        if key in _open:
            raise StoreLockedError(
                "the RocksDB queues are open elsewhere: in this process", path=folder
            )
        _open.add(key)
    try:
        yield
    finally:
        with _lock:
            _open.discard(key)
