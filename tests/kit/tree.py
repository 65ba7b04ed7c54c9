"""A digest of a folder: to show that a command changed no byte."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK = 1 << 16


def tree_digest(root: Path, but: Path | None = None) -> str:
    """Return a digest over names, kinds, modes, sizes, times of change and bytes below ``root``.

    What lies in ``but`` does not count.
    """
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if but in path.parents:
            continue
        status = path.lstat()
        # What a folder's own size says, a file system has for itself; its names are here anyway.
        size, changed = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
        facts = (path.relative_to(root), status.st_mode, size, changed)
        digest.update(repr(facts).encode("utf-8", "surrogatepass"))
        if path.is_file():
            _add_bytes(digest, path)
    return digest.hexdigest()


def _add_bytes(digest: "_Hash", path: Path) -> None:
    """Add a file's size, and each block that is not all zeros, with its position.

    Most of a store's files is holes, which are not read: they are zeros.
    """
    zeros = bytes(_BLOCK)
    with path.open("rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        digest.update(b"%d" % end)
        at = _first_data(file.fileno(), 0)
        while at < end:
            block = os.pread(file.fileno(), _BLOCK, at)
            if not block:  # it was cut meanwhile
                break
            if block != zeros[: len(block)]:
                digest.update(b" %d %d " % (at, len(block)) + block)
            at = _first_data(file.fileno(), at + _BLOCK)


def _first_data(fd: int, at: int) -> int:
    """Return where the block begins that the file's next data are in, behind its end if none."""
    try:
        data = os.lseek(fd, at, os.SEEK_DATA)
    except OSError:  # ENXIO: behind it there is no more
        return 1 << 63
    return data - data % _BLOCK
