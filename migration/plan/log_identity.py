"""Identity of a store: digests of bytes of its log."""

import hashlib
from pathlib import Path

from cqstore.store.errors import RefusedStoreError, StoreIOError, os_errors, vanished_file
from cqstore.store.files import reading
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.log_files import log_file_paths

_IDENTITY_BYTES = 4096
"""Bytes of the log that distinguish one store from another."""


def log_identity(log_folders: list[Path]) -> str:
    """Return a digest of the oldest log file's name and first bytes, which identifies a store.

    Raises:
        RefusedStoreError: there is no log.
        StoreIOError: it cannot be read.
    """
    while True:
        found = log_file_paths(log_folders)
        if not found:
            raise RefusedStoreError("no commit log found", path=log_folders[0])
        oldest = found[0]
        try:
            with os_errors("read the commit log", oldest), reading(oldest) as file:
                data = oldest.name.encode() + file.read(_IDENTITY_BYTES)
                return hashlib.blake2b(data, digest_size=16).hexdigest()
        except StoreIOError as exc:
            if vanished_file(exc) is None:  # else it has just expired
                raise


def tail_identity(log: CommitLog, phy_offset: int) -> str:
    """Return a digest of the last log bytes before ``phy_offset``; empty if they are expired.

    It is equal for a store and its copy, even after messages were appended to either.

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
