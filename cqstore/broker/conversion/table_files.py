"""Files of a broker that are moved with its log and queues, and their modification times.

These are the tables, the timer wheel and timer log, and two databases: ``rocksdbstore`` (timer
messages, half messages and an index, which refer to phy offsets and queue offsets) and ``kvStore``
(POP). A move changes neither kind of offset, so both databases stay valid in another folder.

Source: RocketMQ ``MessageRocksDBStorage``, ``PopConsumerRocksdbStore``.
"""

from collections.abc import Iterator
from pathlib import Path

from cqstore.store.broker_files.file_names import TIMER_LOG, TIMER_WHEEL
from cqstore.store.errors import os_errors
from cqstore.store.path_kind import files_below, is_dir
from cqstore.store.paths import StorePaths

DATABASES = ("rocksdbstore", "kvStore")
Stamps = dict[str, tuple[int, int]]
"""Path below the root → size in bytes and modification time in ns."""


def table_paths(paths: StorePaths) -> list[Path]:
    """Return the files to copy; the tables are last, because they refer to the others."""
    beside = [path for path in paths.root.iterdir() if _is_timer(path) or path.name in DATABASES]
    return [*beside, paths.config] if is_dir(paths.config) else beside


def _is_timer(path: Path) -> bool:
    """Return whether a path is the timer log, the timer wheel, or a snapshot of the wheel."""
    name, _, number = path.name.partition(".")
    return path.name == TIMER_LOG or (name == TIMER_WHEEL and (not number or number.isdecimal()))


def stamps(paths: StorePaths) -> Stamps:
    """Return the size and modification time of each of these files."""
    found: Stamps = {}
    for path in _files(paths):
        status = path.stat()
        found[str(path.relative_to(paths.root))] = (status.st_size, status.st_mtime_ns)
    return found


def _files(paths: StorePaths) -> Iterator[Path]:
    for path in table_paths(paths):
        if is_dir(path):
            yield from files_below(path)
        else:
            yield path


def newest_table(paths: StorePaths) -> float | None:
    """Return the latest write time of these files, in seconds since the epoch.

    Raises:
        StoreIOError: a file cannot be accessed.
    """
    with os_errors("read the broker's tables", paths.config):
        return max((written / 1e9 for _, written in stamps(paths).values()), default=None)
