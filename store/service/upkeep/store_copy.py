"""A copy of a store that nobody has open: sparse files stay sparse, times are kept."""

import os
import shutil
from pathlib import Path

from store.errors import DiskFullError, RefusedStoreError, os_errors
from store.files import reading, write_all
from store.journals.store_lock import refuse_if_open
from store.paths import StorePaths

_CHUNK = 4 << 20
_BLOCK = 512
"""Unit of ``st_blocks``."""


def copy_store(root: Path, target: Path) -> None:
    """Copy the store in ``root`` to ``target``, which appears only when it is whole.

    Raises:
        RefusedStoreError: ``target`` exists.
        StoreLockedError: somebody has the store open: a copy would not be of one moment.
        DiskFullError: there is no room for it; nothing was copied.
        StoreIOError: something cannot be read or written; nothing is left of the copy.
    """
    if target.exists():
        raise RefusedStoreError("the place of the copy is taken", path=target)
    refuse_if_open(StorePaths(root))
    partial = target.with_name(target.name + ".partial")
    with os_errors("measure the store", root):
        wanted = sum(path.lstat().st_blocks * _BLOCK for path in root.rglob("*"))
        free = shutil.disk_usage(target.absolute().parent).free
    if wanted > free:
        raise DiskFullError(f"a copy takes {wanted} bytes, {free} are free", path=target)
    try:
        with os_errors("copy the store", root):
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(root, partial, copy_function=copy_file, symlinks=True)
            partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def copy_file(source: str, target: str, length: int | None = None) -> str:
    """Copy one file, its holes as holes; return ``target``. Fits ``copytree``.

    With ``length`` only as many bytes are copied; the copy is as long as the file all the same.
    """
    with reading(source) as old, Path(target).open("xb") as new:
        size = os.fstat(old.fileno()).st_size
        os.ftruncate(new.fileno(), size)
        at, last = 0, size if length is None else min(length, size)
        while at < last:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                break
            end = min(os.lseek(old.fileno(), at, os.SEEK_HOLE), last)
            while at < end:
                data = os.pread(old.fileno(), min(_CHUNK, end - at), at)
                if not data:
                    break
                write_all(new.fileno(), data, at)
                at += len(data)
    shutil.copystat(source, target)
    return target
