"""A digest of a folder: to show that a command changed no byte."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    top = os.fspath(root)
    paths = _below(top, None if but is None else os.fspath(but)) if root.is_dir() else ()
    for path in sorted(paths):
        status = os.lstat(path)  # by the paths' texts: stores have thousands of files
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFLNK and Path(path).exists():
            kind = stat.S_IFMT(Path(path).stat().st_mode)
        # What a folder's own size says, a file system has for itself; its names are here anyway.
        size, changed = (0, 0) if kind == stat.S_IFDIR else (status.st_size, status.st_mtime_ns)
        facts = (path[len(top) :], status.st_mode, size, changed)
        digest.update(repr(facts).encode("utf-8", "surrogatepass"))
        if kind == stat.S_IFREG:
            _add_bytes(digest, path)
    return digest.hexdigest()


@contextmanager
def unchanged(root: Path, but: Path | None = None) -> Iterator[None]:
    """Fail if the block changes what ``tree_digest`` covers."""
    before = tree_digest(root, but)
    yield
    assert tree_digest(root, but) == before


def _below(folder: str, but: str | None) -> Iterator[str]:
    """Yield the paths below a folder, but for those below ``but``; no link is followed."""
    if folder == but:
        return
    with suppress(PermissionError):
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, but)


def _add_bytes(digest: "_Hash", path: str) -> None:
    """Add a file's size, and each block that is not all zeros, with its position.

    Most of a store's files is holes, which are not read: they are zeros.
    """
    zeros = bytes(_BLOCK)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
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
