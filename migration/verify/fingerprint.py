"""Digest of the new queues: names, sizes and bytes of their files."""

import errno
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.file_facts import is_queue_file
from cqstore.store.errors import os_errors
from cqstore.store.files import reading

_BLOCK = 4096
_CHUNK = 1 << 20
_THREADS = 4
_DIGEST_BYTES = 16
_NUMBERED = np.dtype([("number", np.int64), ("block", np.int64, _BLOCK // 8)])


def made_digest(space: Workspace) -> str:
    """Return a digest of names, sizes and bytes of the files of the new queues.

    Holes of sparse files are not read: most of a queue file is its empty tail. Holes and zeros give
    the same digest, because a copy or the file system may turn one into the other.

    Raises:
        StoreIOError: they cannot be listed or read.
    """
    root = space.made.root
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with os_errors("read the new queues", root), ThreadPoolExecutor(_THREADS) as pool:
        for folder, folders, names in os.walk(root):
            folders.sort()
            paths = [Path(folder, each) for each in sorted(names) if is_queue_file(each)]
            for path, line in zip(paths, pool.map(_file_digest, paths), strict=True):
                name = str(path.relative_to(root)).encode("utf-8", "surrogateescape")
                digest.update(name + b"\0" + line)
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    """Return a digest of the size and of each block that is not all zeros, with its number."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(b"%d" % size)
        for start, end in _written(file.fileno()):
            for position in range(start, end, _CHUNK):
                data = os.pread(file.fileno(), min(_CHUNK, end - position), position)
                whole = data + bytes(-len(data) % _BLOCK)
                blocks = np.frombuffer(whole, np.int64).reshape(-1, _BLOCK // 8)
                held = np.flatnonzero(blocks.any(axis=1))
                # By number, they are the same however the file is cut into pieces.
                rows = np.empty(len(held), _NUMBERED)
                rows["number"], rows["block"] = held + position // _BLOCK, blocks[held]
                digest.update(rows.tobytes())
    return digest.digest()


def _written(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of whole blocks that the file does not have as holes, rising."""
    end = 0
    while True:
        try:
            found = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # nothing but a hole, up to the end
                return
            raise
        start = found - found % _BLOCK
        end = os.lseek(descriptor, found, os.SEEK_HOLE)
        end += -end % _BLOCK
        yield start, end
