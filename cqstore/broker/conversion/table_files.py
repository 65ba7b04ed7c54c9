"""Files of a broker that are moved with its log and queues, and when they were written.

Tables, the timer's wheel and log, and two databases: ``rocksdbstore`` (timer messages, half
messages and an index, by phy offsets of the log and offsets of queues) and ``kvStore`` (POP). A
move changes neither kind of offset, so both are whole in another folder.

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
"""Name below the root → size and when it was written, ns."""


def table_paths(paths: StorePaths) -> list[Path]:
    """Return the files that are copied along; the tables last, as they refer to the rest."""
    beside = [path for path in paths.root.iterdir() if _is_timer(path) or path.name in DATABASES]
    return [*beside, paths.config] if is_dir(paths.config) else beside


def _is_timer(path: Path) -> bool:
    """Return whether it is the timer's log or wheel, or a snapshot of that."""
    name, _, number = path.name.partition(".")
    return path.name == TIMER_LOG or (name == TIMER_WHEEL and (not number or number.isdecimal()))


def stamps(paths: StorePaths) -> Stamps:
    """Return size and time of each of these files."""
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
    """Return when a table or a file of the timer's was written last, seconds since the epoch.

    Raises:
        StoreIOError: it cannot be looked at.
    """
    with os_errors("read the broker's tables", paths.config):
        return max((written / 1e9 for _, written in stamps(paths).values()), default=None)
