"""The sides' logs: shared with the original where that is safe, else copied; and disk space.

A file that ends at or before the end of the log is never written again: it is shared by reflink,
else by hard link. All other files are copied. So no side can change the original.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.store.errors import DiskFullError, os_errors
from cqstore.store.files import is_file_name, make_folder
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal_manifest import register
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.store_copy import (
    COPIES,
    HARD_LINKS,
    REFLINKS,
    copy_file,
    share_file,
)

_UNIT_BYTES = 100
"""Maximum temporary disk space per unit: backends rewrite their data."""
_QUEUE_BYTES = 16 << 10
"""Disk space per queue in addition to its units: folders, partly filled blocks."""


def share_log(folders: Sequence[Path], target: Path, end: int, file_size: int) -> str:
    """Create a log in ``target`` with the same bytes up to ``end``; return how files were shared.

    Files that begin at or after ``end`` are skipped. The file that contains ``end`` is copied up to
    it, followed by zeros.

    ``end`` must not be after the log's own end: files that end before it are never written again.

    Raises:
        StoreIOError: something cannot be read, linked or written.
    """
    ways = set()
    with os_errors("share the commit log", target):
        make_folder(target)
        for path in log_file_paths(folders):
            start = int(path.name)
            if start + file_size <= end:
                ways.add(share_file(path, target / path.name))
            elif start < end:
                copy_file(str(path), str(target / path.name), end - start)
    return next((way for way in (COPIES, HARD_LINKS, REFLINKS) if way in ways), COPIES)


def copy_tree(source: Path, target: Path, settled: int, file_size: int) -> None:
    """Copy a side's closed store; log files that end at or before ``settled`` are shared.

    Raises:
        StoreIOError: something cannot be read, linked or written.
    """
    log = StorePaths(source).commit_log

    def place(old: str, new: str) -> str:
        path = Path(old)
        if path.parent == log and is_file_name(path.name) and int(path.name) + file_size <= settled:
            share_file(path, Path(new))
        else:
            copy_file(old, new)
        return new

    with os_errors("copy a side's store", target):
        make_folder(target.parent)
        shutil.copytree(source, target, copy_function=place)


def bring_journals(root: Path, target: Path, found: StoreSurvey) -> None:
    """Copy what the log does not contain: deleted topics, and max offsets of expired queues.

    Raises:
        StoreIOError: the journals cannot be read or written.
    """
    old, new = StorePaths(root), StorePaths(target)
    with os_errors("copy the journals of the store", new.own):
        make_folder(new.own)
        for name in (old.deleted_topics.name, old.expired_queues.name):
            if exists(old.own / name):
                shutil.copy(old.own / name, new.own / name)
                register(new.own / name)
    ExpiredQueues(new.expired_queues).add(found.expired)


def check_room(found: StoreSurvey, work: Path, sides: int) -> int:
    """Return the temporary disk space that the comparison needs, in bytes.

    Raises:
        DiskFullError: there is less free space; nothing was created.
        StoreIOError: the free space cannot be determined.
    """
    shape, place = found.shape, work
    while not exists(place):
        place = place.parent
    shared = 0 if _may_share(found.log_folders, place) else shape.log_bytes
    queues = shape.units * _UNIT_BYTES + shape.queues * _QUEUE_BYTES
    # Each side its log's last file and its queues, and a throw-away store with two copies of them.
    wanted = sides * (found.log_file_size + queues + shared)
    wanted += 2 * (2 * found.log_file_size + queues + shared)
    with os_errors("determine the free disk space", place):
        free = shutil.disk_usage(place).free
    if wanted > free:
        raise DiskFullError(
            f"not enough disk space for the comparison: expected {wanted:,} bytes, found {free:,}",
            path=work,
        )
    return wanted


def _may_share(folders: Sequence[Path], place: Path) -> bool:
    """Return whether the log's folders are on the file system of ``place``, as links require."""
    device = place.stat().st_dev
    return all(folder.stat().st_dev == device for folder in folders if exists(folder))
