"""The sides' logs: the bytes of the original's, shared where that is safe, and room for them.

A file that will not be written to again, one that ends at or before the end of the log, is shared
by reflink, else by hard link; any other is copied. So nothing that a side does reaches the
original.
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
"""Of the disk that a unit may take for a while: a backend rewrites what it has written."""
_QUEUE_BYTES = 16 << 10
"""Of a queue beside its units: folders, blocks that are not full."""


def share_log(folders: Sequence[Path], target: Path, end: int, file_size: int) -> str:
    """Give ``target`` a log of the same bytes up to ``end``; return how whole files were shared.

    Files that begin at or behind ``end`` are left out; of the one that holds it what lies before is
    copied, zeros follow.

    ``end`` must not lie behind the log's own: what ends before is never written again.

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
    """Copy a side's store that is not open; log files that end at or before ``settled`` are shared.

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
    """Copy what the log does not say: topics that were deleted, and ends of expired queues.

    Raises:
        StoreIOError: they cannot be read or written.
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
        DiskFullError: there is less; nothing was made.
        StoreIOError: the disk cannot be asked.
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
    """Return whether a log's folders lie on the file system of ``place``, where links reach."""
    device = place.stat().st_dev
    return all(folder.stat().st_dev == device for folder in folders if exists(folder))
