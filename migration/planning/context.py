"""What distinguishes one store from another: bytes of its log."""

import hashlib
from pathlib import Path

from store.errors import RefusedStoreError, os_errors
from store.files import is_file_name, reading
from store.log.commit_log import CommitLog

_IDENTITY_BYTES = 4096
"""Bytes of the log that distinguish one store from another."""


def log_identity(log_folders: list[Path]) -> str:
    """Return a digest of the oldest log file's name and first bytes: a store's own.

    Raises:
        RefusedStoreError: there is no log.
        StoreIOError: it cannot be read.
    """
    found = []
    for folder in log_folders:
        with os_errors("list the commit log", folder):
            found += [path for path in folder.iterdir() if is_file_name(path.name)]
    if not found:
        raise RefusedStoreError("there is no commit log", path=log_folders[0])
    oldest = min(found, key=lambda path: path.name)
    with os_errors("read the commit log", oldest), reading(oldest) as file:
        head = file.read(_IDENTITY_BYTES)
    return hashlib.blake2b(oldest.name.encode() + head, digest_size=16).hexdigest()


def tail_identity(log: CommitLog, phy_offset: int) -> str:
    """Return a digest of the last bytes of the log before ``phy_offset``; empty if they are gone.

    A copy of a store and the store itself agree in them, however long it went on since.

    Raises:
        StoreIOError: they cannot be read.
    """
    file = log.files.find(phy_offset - 1) if phy_offset > 0 else None
    if file is None:
        return ""
    end = phy_offset - file.file_from_offset
    start = max(end - _IDENTITY_BYTES, 0)
    data = file.read_raw(start, end - start)
    return hashlib.blake2b(b"%d" % phy_offset + data, digest_size=16).hexdigest()
