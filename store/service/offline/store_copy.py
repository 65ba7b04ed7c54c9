"""A copy of a store that is not open: sparse files stay sparse, times are kept."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from cqstore.store.errors import DiskFullError, RefusedStoreError, StoreError, is_full, os_errors
from cqstore.store.files import bytes_on_disk, open_regular, reading, write_all
from cqstore.store.journals.output_lock import output_lock
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.service.layout.root_folder import refuse_in_store

_CHUNK = 4 << 20
_FICLONE = 0x40049409
"""``FICLONE`` of Linux: a file whose blocks are another's until one of them is written."""
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}
REFLINKS, HARD_LINKS, COPIES = "reflinks", "hard links", "copies"


def copy_store(root: Path, target: Path, progress: Progress = noop) -> None:
    """Copy the store in ``root`` to ``target``, which appears only when it is whole.

    ``progress`` is told how many of ``blocks_below`` are copied.

    Raises:
        RefusedStoreError: ``target`` exists, lies in the store itself, or in no folder.
        StoreLockedError: the store is open: a copy would not be of one moment; or another process
            makes this copy.
        DiskFullError: there is no room for it; nothing was copied.
        StoreIOError: something cannot be read or written; nothing is left of the copy.
    """
    check_copy_target(root, target)
    refuse_if_open(StorePaths(root))
    with output_lock(target):
        _copy_store(root, target, progress)


def _copy_store(root: Path, target: Path, progress: Progress) -> None:
    """Copy a store for which ``target`` is locked; what a killed copy has left there goes."""
    partial = target.with_name(target.name + ".partial")
    with os_errors("measure the store", root):
        wanted = blocks_below(root)
    with os_errors("read the free space for the copy", target):
        free = shutil.disk_usage(target.absolute().parent).free
    if wanted > free:
        raise DiskFullError(
            f"not enough disk space: the copy needs {wanted} bytes, {free} bytes are free",
            path=target,
        )
    try:
        with copying("copy the store", root, partial, target):
            shutil.rmtree(partial, ignore_errors=True)
            copied = 0

            def copy(source: str, there: str) -> str:
                nonlocal copied
                made = copy_file(source, there)
                copied += bytes_on_disk(Path(source).stat())
                progress(copied)
                return made

            progress(0)
            shutil.copytree(root, partial, copy_function=copy, symlinks=True)
            partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def check_copy_target(root: Path, target: Path) -> None:
    """Refuse a place where ``copy_store`` would make none, before the store is looked at.

    Raises:
        RefusedStoreError: ``target`` exists, lies in the store itself, or in no folder.
    """
    check_target(root, target, "copy")
    if not is_dir(target.absolute().parent):
        raise RefusedStoreError("the parent folder of the copy does not exist", path=target)


def check_target(root: Path, target: Path, what: str) -> None:
    """Refuse a place where no copy of ``root`` can be made; ``what`` it is called.

    Raises:
        RefusedStoreError: it is taken, or inside a store.
        StoreIOError: it cannot be looked at.
    """
    with os_errors(f"create the folder of the {what}", target):
        if os.path.lexists(target):
            raise RefusedStoreError(f"the path of the {what} already exists", path=target)
    refuse_in_store(target, what, root, is_store=True)


@contextmanager
def copying(action: str, root: Path, partial: Path, target: Path) -> Iterator[None]:
    """Have what ends the block name the side that it met: ``root``, or ``target``.

    The copy is made in ``partial``, which its user has never named and which is gone by then.

    Raises:
        StoreIOError: the block raised an ``OSError``.
    """
    try:
        yield
    except OSError as exc:
        met = [Path(os.fsdecode(name)) for name in (exc.filename, exc.filename2) if name]
        if is_full(exc) or any(path.is_relative_to(partial) for path in met):
            action, root = "write the copy", target
        with os_errors(action, root):
            raise
    except StoreError as exc:
        if exc.path is not None and exc.path.is_relative_to(partial):
            exc.path = target / exc.path.relative_to(partial)
        raise


def copy_file(source: str, target: str, length: int | None = None) -> str:
    """Copy one file, its holes as holes; return ``target``. Fits ``copytree``.

    With ``length`` only as many bytes are copied; the copy is as long as the file all the same.

    Raises:
        CorruptionError: ``source`` is no regular file.
        OSError: it cannot be read.
        StoreIOError: ``target``, which it names, cannot be made or written.
    """
    with reading(source) as old, _made(target) as new:
        size = os.fstat(old.fileno()).st_size
        with _writing(target):
            os.ftruncate(new, size)
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
                with _writing(target):
                    write_all(new, data, at)
                at += len(data)
    shutil.copystat(source, target)
    return target


@contextmanager
def _made(target: str) -> Iterator[int]:
    with _writing(target):
        new = open_regular(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        yield new
    finally:
        os.close(new)


def _writing(target: str | Path) -> AbstractContextManager[None]:
    return os_errors("write the copy", target)


def share_file(source: Path, target: Path, *, link: bool = True) -> str:
    """Give ``target`` the bytes of a file that is never written again; return how.

    By reflink, else, if ``link``, by hard link, else copied: the first that the file system can.

    Raises:
        CorruptionError, OSError, StoreIOError: as ``copy_file``.
    """
    if _reflink(source, target):
        return REFLINKS
    if link:
        try:
            target.hardlink_to(source)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
        else:
            return HARD_LINKS
    copy_file(str(source), str(target))
    return COPIES


def _reflink(source: Path, target: Path) -> bool:
    """Have ``target`` share the blocks of ``source``; False: the file system cannot."""
    old = open_regular(source)
    try:
        with _writing(target):
            new = open_regular(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.ioctl(new, _FICLONE, old)
        except OSError:  # another file system, or one without
            target.unlink()
            return False
        finally:
            os.close(new)
    finally:
        os.close(old)
    return True


def blocks_below(folder: Path) -> int:
    """Return the bytes of the disk that a copy of all below ``folder`` takes."""
    total = 0
    for above, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):  # it has gone since
                total += bytes_on_disk(Path(above, name).lstat())
    return total
