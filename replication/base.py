"""A base: the closed log files of a copy of the master's log, on which a follower goes on.

Only the files before the last one are taken: nothing writes to them any more. They become a log
under its name when all are there and durable; the opening then checks every record and builds the
queues, and the first connection proves that their end is the master's (``Intake``).
"""

import shutil
from itertools import pairwise
from pathlib import Path

from store.errors import CorruptionError, DiskFullError, RefusedStoreError, os_errors
from store.files import NAME_DIGITS, make_folder, sync_below, sync_folder
from store.paths import StorePaths
from store.progress import Progress, untold
from store.service.upkeep.store_copy import copy_file


def take_base(source: Path, root: Path, progress: Progress = untold) -> int:
    """Copy the closed log files in ``source`` into the new store ``root``; return their bytes.

    ``source`` is a folder of log files, or one that has such a folder ``commitlog``. A copy that
    was cut short is begun again. ``progress`` is told the phy offset that it has come to.

    Raises:
        RefusedStoreError: something else lies in ``root``, or ``source`` has no closed log file.
        CorruptionError: a file of the row is missing, or has another size.
        DiskFullError: there is no room; nothing was copied.
        StoreIOError: something cannot be read or written.
    """
    paths = StorePaths(root)
    partial = paths.own / "base"
    with os_errors("look at the folder", root):
        there = {path.name for path in root.iterdir()} if root.exists() else set()
        own = {path.name for path in paths.own.iterdir()} if paths.own.exists() else set()
    if there - {paths.own.name} or own - {partial.name}:
        raise RefusedStoreError("a base goes into an empty folder", path=root)
    files = closed_files(source)
    with os_errors("measure the base", source):
        size = sum(path.stat().st_size for path in files)
        make_folder(paths.own)
        shutil.rmtree(partial, ignore_errors=True)
        free = shutil.disk_usage(root).free
    if size > free:
        raise DiskFullError(f"the base takes {size} bytes, {free} are free", path=root)
    with os_errors("copy the base", source):
        make_folder(partial)
        for path in files:
            progress(int(path.name))
            copy_file(str(path), str(partial / path.name))
        sync_below([partial])
        partial.rename(paths.commit_log)
        sync_folder(root)
    return size


def closed_files(source: Path) -> list[Path]:
    """Return the log files in ``source`` that another one follows, in order.

    Raises:
        RefusedStoreError: there is none.
        CorruptionError: a file of the row is missing, or has another size.
    """
    folder = source / "commitlog" if (source / "commitlog").is_dir() else source
    with os_errors("list the base", folder):
        names = [path.name for path in folder.iterdir()]
        row = [folder / name for name in sorted(names) if _is_log_file(name)]
        sizes = [path.stat().st_size for path in row]
    if len(row) < 2:  # noqa: PLR2004 - a closed one, and the one behind it
        raise RefusedStoreError(
            "no log file that is closed: none that another follows", path=folder
        )
    for (path, behind), size in zip(pairwise(row), sizes, strict=False):
        if size != sizes[0]:
            raise CorruptionError(
                "a log file of the base has another size than the first", path=path,
                expected=f"{sizes[0]} bytes", got=f"{size} bytes",
            )  # fmt: skip
        if int(behind.name) != int(path.name) + size:
            raise CorruptionError(
                "a log file of the base is missing before this one", path=behind,
                expected=f"start {int(path.name) + size}", got=f"start {int(behind.name)}",
            )  # fmt: skip
    return row[:-1]


def _is_log_file(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()
