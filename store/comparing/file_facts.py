"""Names, sizes, inodes and times of files: they show a modification without a read."""

import os
import struct
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path

from cqstore.store.core._regular_files import regular_files

_NOT_QUEUES = ("LOCK", "LOG", "rocksdict-config.json")
_NAME = attrgetter("name")
_FACTS = struct.Struct("<4q")
"""Size, inode, time of the last change of the bytes, and of the last change of the inode, ns."""


def is_queue_file(name: str) -> bool:
    """Return whether a file with that name holds queues: RocksDB has files that do not."""
    return not name.startswith(_NOT_QUEUES)


def file_facts(name: str, now: os.stat_result) -> bytes:
    """Return the facts of one file."""
    return _facts(name, now.st_size, now.st_ino, now.st_mtime_ns, now.st_ctime_ns)


def _facts(name: str, *numbers: int) -> bytes:
    return os.fsencode(name) + b"\0" + _FACTS.pack(*numbers)


def add_facts(digest: blake2b, folder: Path | str, *, below: bool) -> bool:
    """Add the files of a folder, by name, and ``below`` it; return whether all were covered.

    The time of the last change of an inode cannot be set: so a changed file is detected even if its
    old size and times were restored.

    Raises:
        OSError: the folder cannot be listed.
    """
    files = regular_files(os.fspath(folder))
    if files is not None:
        for name, *numbers in files:
            if is_queue_file(name):
                digest.update(_facts(name, *numbers))
        return True
    with os.scandir(folder) as found:
        entries = sorted(found, key=_NAME)
    for entry in entries:
        if entry.is_symlink():
            return False
        if not entry.is_dir():
            if is_queue_file(entry.name):
                digest.update(file_facts(entry.name, entry.stat()))
        elif below:
            digest.update(b"/" + os.fsencode(entry.name) + b"\0")
            if not add_facts(digest, entry.path, below=True):
                return False
            digest.update(b"..\0")
    return True
