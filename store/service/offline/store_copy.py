"""A copy of a store that is not open: sparse files stay sparse, times are kept."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from cqstore.store.errors import DiskFullError, RefusedStoreError, StoreError, is_full, os_errors
from cqstore.store.files import bytes_on_disk, make_folder, open_regular, reading, write_all
from cqstore.store.journals.output_lock import output_lock
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.service.layout.root_folder import refuse_in_store

_CHUNK = 4 << 20
_FICLONE = 0x40049409
"""``FICLONE`` of Linux: creates a file that shares another file's blocks until one is written."""
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}
REFLINKS, HARD_LINKS, COPIES = "reflinks", "hard links", "copies"


def copy_store(
    root: Path, target: Path, progress: Progress = noop, log_folders: Sequence[Path] = ()
) -> None:
    """Copy the store in ``root`` to ``target``, which appears only when it is complete.

    ``log_folders``: those of its log, if that is not only in ``root/commitlog``; the copy has it in
    ``target/commitlog``. ``progress`` is called with the copied part of ``blocks_below``.

    Raises:
        RefusedStoreError: ``target`` exists, is in the store itself, or its parent is not a folder.
        StoreLockedError: the store is open: a copy would be inconsistent; or another process makes
            this copy.
        DiskFullError: there is no space for it; nothing was copied.
        StoreIOError: a file cannot be read or written; the copy is removed.
    """
    check_copy_target(root, target)
    refuse_if_open(StorePaths(root))
    with output_lock(target):
        _copy_store(root, target, progress, log_folders)


def _copy_store(root: Path, target: Path, progress: Progress, log_folders: Sequence[Path]) -> None:
    """Copy a store for which ``target`` is locked; files of a killed copy are removed."""
    partial = target.with_name(target.name + ".partial")
    with os_errors("measure the store", root):
        wanted = sum(map(blocks_below, {root, *_outside(root, log_folders)}))
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
            inside = {os.fspath(folder) for folder in log_folders}

            def left_out(folder: str, names: list[str]) -> set[str]:
                return {name for name in names if str(Path(folder, name)) in inside}

            shutil.copytree(root, partial, copy_function=copy, symlinks=True, ignore=left_out)
            for path in log_file_paths(log_folders):
                make_folder(partial / "commitlog")
                copy(str(path), str(partial / "commitlog" / path.name))
            partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _outside(root: Path, folders: Sequence[Path]) -> list[Path]:
    return [folder for folder in folders if not folder.is_relative_to(root)]


def check_copy_target(root: Path, target: Path) -> None:
    """Refuse a target that ``copy_store`` would refuse, before the store is inspected.

    Raises:
        RefusedStoreError: ``target`` exists, is in the store itself, or its parent is not a folder.
    """
    check_target(root, target, "copy")
    if not is_dir(target.absolute().parent):
        raise RefusedStoreError("the parent folder of the copy does not exist", path=target)


def check_target(root: Path, target: Path, what: str) -> None:
    """Refuse a target where no copy of ``root`` can be made; ``what`` is its name in the error.

    Raises:
        RefusedStoreError: the target exists, or is inside a store.
        StoreIOError: the target cannot be checked.
    """
    with os_errors(f"create the folder of the {what}", target):
        if os.path.lexists(target):
            raise RefusedStoreError(f"the path of the {what} already exists", path=target)
    refuse_in_store(target, what, root, is_store=True)


@contextmanager
def copying(action: str, root: Path, partial: Path, target: Path) -> Iterator[None]:
    """Make an error of the block name the side where it occurred: ``root``, or ``target``.

    The copy is made in ``partial``, which the user does not know and which no longer exists then.

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
    """Copy one file with its holes; return ``target``. Can be used for ``copytree``.

    With ``length`` only as many bytes are copied; the copy is as long as the file all the same.

    Raises:
        CorruptionError: ``source`` is not a regular file.
        OSError: ``source`` cannot be read.
        StoreIOError: ``target``, which the error names, cannot be created or written.
    """
    with reading(source) as old, _made(target) as new:
        size = os.fstat(old.fileno()).st_size
        with _writing(target):
            os.ftruncate(new, size)
        at, last = 0, size if length is None else min(length, size)
        while at < last:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole follows
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
    """Create ``target`` with the bytes of a file that is never written again; return how.

    By reflink, else, if ``link``, by hard link, else by copying: the first that the file system
    supports.

    Raises:
        CorruptionError, OSError, StoreIOError: as for ``copy_file``.
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
    """Make ``target`` share the blocks of ``source``; False: not supported by the file system."""
    old = open_regular(source)
    try:
        with _writing(target):
            new = open_regular(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.ioctl(new, _FICLONE, old)
        except OSError:  # another file system, or one without support
            target.unlink()
            return False
        finally:
            os.close(new)
    finally:
        os.close(old)
    return True


def blocks_below(folder: Path) -> int:
    """Return the disk space that a copy of everything below ``folder`` takes, in bytes."""
    total = 0
    for above, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                total += bytes_on_disk(Path(above, name).lstat())
    return total
