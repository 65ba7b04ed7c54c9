"""VerifiedQueues: what a comparison has read, with digests that show later changes.

A digest takes 16 bytes and covers names, sizes, inodes and times of files: those of one queue, one
file of the log, or all that the queues depend on. An equal digest means equal bytes. No queue is
read, so checking a million queue files takes as long as comparing a thousand.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from cqstore.store.comparing.file_facts import add_facts, file_facts
from cqstore.store.errors import os_errors
from cqstore.store.files import is_file_name, read_file, replace_file
from cqstore.store.journals.store_lock import lock_stamp, locked_by
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey

FACTS_BYTES = 16
_MAX_BYTES = 1 << 32
_HEAD = 2
"""Bytes of a digest that are used to find digests with the same beginning."""


class QueueFacts:
    """Reads the file facts of queues of one place. The store must not be open meanwhile."""

    def __init__(self, place: QueuePlace) -> None:
        folders = backend(place.backend).folders_by_queue(StorePaths(place.root))
        self._folders = [str(folder) for folder in folders]
        # What follows the facts of the first folder, if there is no other one.
        self._rest = None if any(map(is_dir, folders[1:])) else b"//" * (len(folders) - 1)
        config = place.config
        # With other sizes the same files have other units.
        sizes = config.units_per_file, config.mapped_file_size_consume_queue_ext
        self._sizes = b"%d %d" % sizes

    def digest(self, queue: QueueKey, known: bytes | None = None) -> bytes | None:
        """Return the digest of a queue's files; ``None`` if there is none.

        There is none if one of them is a link, or if the backend has no files per queue. ``known``:
        the facts of the files with its units, if they were listed before.

        Raises:
            StoreIOError: the files cannot be listed.
        """
        topic, queue_id = queue
        head = b"%b\0%b" % (self._sizes, os.fsencode(f"{queue_id}/{topic}"))
        if known is not None and self._rest is not None:  # the usual case: one call
            whole = b"%b//%b%b" % (head, known, self._rest)
            return blake2b(whole, digest_size=FACTS_BYTES).digest()
        digest = blake2b(head, digest_size=FACTS_BYTES)
        for above in self._folders:
            digest.update(b"//")
            if known is not None:
                digest.update(known)
                known = None  # of the first folder only
                continue
            folder = f"{above}/{topic}/{queue_id}"
            with os_errors("read the folder of a queue", folder):
                if os.path.isdir(folder) and not add_facts(digest, folder, below=True):  # noqa: PTH112
                    return None
        return digest.digest() if self._folders else None


class KnownFile(NamedTuple):
    """A file with the digests of an earlier comparison."""

    path: Path
    complete_to: int
    """Phy offset: since then the other side has got only units of records after it."""


class VerifiedQueues:
    """The sorted digests of a comparison, one after the other."""

    def __init__(self, data: bytes, complete_to: int = 0) -> None:
        self._data = data
        self.complete_to = complete_to

    @cached_property
    def _starts(self) -> list[int]:
        """Return, per value of the first ``_HEAD`` bytes, where the digests with it begin."""
        heads = np.frombuffer(self._data, f">u{_HEAD}")[:: FACTS_BYTES // _HEAD]
        starts = np.searchsorted(heads, np.arange((1 << 8 * _HEAD) + 1)) * FACTS_BYTES
        found: list[int] = starts.tolist()
        return found

    @classmethod
    def of(cls, file: KnownFile) -> Self:
        """Return the digests in ``file``.

        Raises:
            StoreIOError: the digests cannot be read.
        """
        with os_errors("read the digests of verified queues", file.path):
            return cls(read_file(file.path, _MAX_BYTES), file.complete_to)

    @classmethod
    def write(cls, path: Path, digests: Iterable[bytes]) -> str:
        """Write ``digests`` to ``path``, sorted, durably; return the digest of them all.

        Raises:
            StoreIOError: the file cannot be written.
        """
        known = cls(b"".join(sorted(digests)))
        with os_errors("write the digests of verified queues", path):
            replace_file(path, known._data)
        return known.digest

    @property
    def digest(self) -> str:
        """Return the digest of all digests, which identifies a file of them."""
        return blake2b(self._data, digest_size=FACTS_BYTES).hexdigest()

    def __contains__(self, digest: bytes | None) -> bool:
        if digest is None:
            return False
        first = int.from_bytes(digest[:_HEAD])
        start, end = self._starts[first : first + 2]
        while (at := self._data.find(digest, start, end)) >= 0:
            if at % FACTS_BYTES == 0:
                return True
            start = at + 1  # across two digests
        return False


def file_digests(folder: Path, end: int) -> Iterator[bytes]:
    """Yield a digest of each file of a log that ends at or before phy offset ``end``.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    with os_errors("read the folder of the log", folder):
        for path in sorted(folder.iterdir()):
            name, status = path.name, path.lstat()
            if is_file_name(name) and int(name) + status.st_size <= end:
                facts = file_facts(name, status)
                yield blake2b(b"log\0" + facts, digest_size=FACTS_BYTES).digest()


def store_digests(
    paths: StorePaths, source: str, log_folders: Iterable[Path]
) -> Iterator[bytes | None]:
    """Yield two digests of all files that the queues of ``source`` depend on; ``None``: of a link.

    First the log, our journals, and ``lock``, which RocketMQ writes whenever it starts; then the
    files of the queues.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    stamp = b"%d" % lock_stamp(paths)
    for folders in ((*log_folders, paths.own), backend(source).folders(paths)):
        digest, whole = blake2b(stamp, digest_size=FACTS_BYTES), True
        with os_errors("list the files of the store", paths.root):
            for folder in folders:
                digest.update(b"//" + os.fsencode(folder) + b"\0")
                if is_dir(folder):
                    whole &= add_facts(digest, folder, below=folder != paths.own)
        yield digest.digest() if whole else None


def is_at_rest(paths: StorePaths) -> bool:
    """Return whether the store is closed, and was closed cleanly.

    Otherwise a process that has mapped a file may write to it without a change of its times.

    Raises:
        StoreIOError: a file cannot be read.
    """
    return not (exists(paths.abort) or locked_by(paths))


def digests_at_rest(
    paths: StorePaths, source: str, log_folders: Sequence[Path], end: int
) -> list[bytes]:
    """Return ``store_digests`` and the ``file_digests`` of the log.

    Empty if the store is not at rest, or a symbolic link is found.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    found = [*store_digests(paths, source, log_folders)]
    found += [each for folder in log_folders for each in file_digests(folder, end)]
    # Checked last: a process that has closed the store before has written everything.
    if None in found or not is_at_rest(paths):
        return []
    return [each for each in found if each is not None]
