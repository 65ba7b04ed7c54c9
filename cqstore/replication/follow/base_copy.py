"""A base: the closed log files of a copy of the master's log, from which a follower starts.

Only the files before the last written one are copied: nothing writes to them any more. (A broker
creates its next file ahead of time; that file is empty.) The folder gets the name of a commit log
when all files are in it and durable. The next open then checks every record and builds the queues,
and the first connection verifies that the last bytes equal the master's (``LogReceiver``).
"""

import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from cqstore.store.errors import CorruptionError, DiskFullError, RefusedStoreError, os_errors
from cqstore.store.files import make_folder, reading, sync_below, sync_folder
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.service.offline.store_copy import copy_file
from cqstore.store.service.opening.unopened import mark_unopened

_HEAD_BYTES = 8
"""Size of the first two fields of a record, size and magic, neither of which is 0."""


def copy_base(
    source: Path, root: Path, progress: Progress = noop, folders: Sequence[Path] = ()
) -> int:
    """Copy the closed log files in ``source`` into the new store ``root``; return their bytes.

    ``source`` and ``folders``: see ``closed_files``. An interrupted copy is started again.
    ``progress`` is called with the phy offset copied up to.

    Raises:
        RefusedStoreError: ``root`` is not empty, or ``source`` has no closed log file.
        StoreLockedError: the store is open, or another process copies a base into it.
        CorruptionError: a log file is missing in the sequence, or has a different size.
        DiskFullError: there is not enough disk space; nothing was copied.
        StoreIOError: a file cannot be read or written.
    """
    paths = StorePaths(root)
    _refuse_unless_empty(paths)
    files = closed_files(source, folders)
    with StoreLock(paths):
        _refuse_unless_empty(paths)  # another process may have been first
        return _take(files, paths, progress)


def _take(files: list[Path], paths: StorePaths, progress: Progress) -> int:
    """Copy the log files of the base into the folder; return their bytes.

    Raises:
        DiskFullError: there is not enough disk space; nothing was copied.
    """
    partial = _partial(paths)
    with os_errors("read the size of the base", files[0].parent):
        size = sum(path.stat().st_size for path in files)
        make_folder(paths.own)
        shutil.rmtree(partial, ignore_errors=True)
        free = shutil.disk_usage(paths.root).free
    if size > free:
        raise DiskFullError(
            f"not enough disk space for the base: {size} bytes needed, {free} free", path=paths.root
        )
    with os_errors("copy the base", files[0].parent):
        make_folder(partial)
        for path in files:
            progress(int(path.name))
            copy_file(str(path), str(partial / path.name))
        sync_below([partial])
        mark_unopened(paths)
        partial.rename(paths.commit_log)
        sync_folder(paths.root)
    return size


def _partial(paths: StorePaths) -> Path:
    return paths.own / "base"


def _refuse_unless_empty(paths: StorePaths) -> None:
    root, own = paths.root, paths.own
    with os_errors("read the folder", root):
        there = {path.name for path in root.iterdir()} if exists(root) else set()
        inside = {path.name for path in own.iterdir()} if exists(own) else set()
    if there - {own.name, paths.lock.name} or inside - {_partial(paths).name, paths.unopened.name}:
        raise RefusedStoreError("cannot copy the base: the folder is not empty", path=root)


def closed_files(source: Path, folders: Sequence[Path] = ()) -> list[Path]:
    """Return the log files in ``source`` that are followed by a file with a record, in order.

    ``source`` is a folder of log files, or a folder with a subfolder ``commitlog``; if the log is
    elsewhere, ``folders`` are those with its files.

    Raises:
        RefusedStoreError: ``source`` has no closed log file.
        CorruptionError: a log file is missing in the sequence, or has a different size.
    """
    folder = source / "commitlog" if is_dir(source / "commitlog") else source
    with os_errors("list the base", folder):
        row = log_file_paths(folders or [folder])
        while row and _is_empty(row[-1]):
            row.pop()
        sizes = [path.stat().st_size for path in row]
    if len(row) < 2:  # noqa: PLR2004 - a closed file and the next one
        raise RefusedStoreError(
            "no closed log file found in the base: a log file is closed once the next one contains"
            " records. If the master has only one log file, omit --base: the master sends its last"
            " file completely. Otherwise copy all files of its log",
            path=folder,
        )
    for (path, behind), size in zip(pairwise(row), sizes, strict=False):
        if size != sizes[0]:
            raise CorruptionError(
                "a log file of the base differs in size from the first", path=path,
                expected=f"{sizes[0]} bytes", got=f"{size} bytes",
            )  # fmt: skip
        if int(behind.name) != int(path.name) + size:
            raise CorruptionError(
                "a log file of the base is missing before this one", path=behind,
                expected=f"start {int(path.name) + size}", got=f"start {int(behind.name)}",
            )  # fmt: skip
    return row[:-1]


def _is_empty(path: Path) -> bool:
    """Return whether nothing was written to a log file yet."""
    with reading(path) as file:
        return not any(file.read(_HEAD_BYTES))
