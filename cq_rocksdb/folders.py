"""Locations of RocksDB's files in a store."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import RefusedStoreError
from cqstore.store.index.key_index import KeyIndex
from cqstore.store.path_kind import is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.whole_import import import_whole

INDEX_FOLDER = "rocksdbstore"
"""Index of keys of a broker with ``indexRocksDBEnable``; every broker creates the folder."""
NO_QUEUES = "no RocksDB consume queue found"
"""Error message for a store without RocksDB queues."""


def separate_folder(paths: StorePaths) -> Path:
    """Return the database's own folder (``useSeparateStorePathForRocksdbCQ``)."""
    return paths.root / "consumequeue_rocksdb"


def log_folder(paths: StorePaths) -> Path:
    """Return the folder of RocksDB's own log."""
    return paths.own / "rocksdb-log"


def database_folders(paths: StorePaths) -> list[Path]:
    """Return the possible folders of the database; the first may be shared with file queues."""
    return [paths.consume_queue, separate_folder(paths)]


def database_folder(paths: StorePaths) -> Path | None:
    """Return the folder that contains the database, or ``None``.

    Raises:
        RefusedStoreError: both folders contain a database, and it is not known which is in use.
    """
    found = [folder for folder in database_folders(paths) if is_file(folder / CURRENT)]
    if len(found) > 1:
        raise RefusedStoreError(
            f"found two databases with RocksDB queues, {found[0]} and {found[1]}: move one away",
            path=paths.root,
        )
    return found[0] if found else None


def holds_only_tables(folder: Path) -> bool:
    """Return whether a folder has table files, and no folders of queues."""
    if not is_dir(folder):
        return False
    found = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():  # of maybe a million
                return False
            found = found or entry.name.endswith(".sst")
    return found


def message_index_of(root: Path) -> Callable[[], KeyIndex | None] | None:
    """Return a function that opens a broker's index of keys; ``None``: there is no such database.

    The code that reads the index is imported here, when a store is opened, and never by a query.
    """
    if not is_file(root / INDEX_FOLDER / CURRENT):
        return None
    module = import_whole("cqstore.cq_rocksdb.message_index")
    return partial(module.open_message_index, root)


def as_text(path: Path) -> str:
    """Return a path as text, as rocksdict requires it.

    Raises:
        RefusedStoreError: a name in the path is not UTF-8.
    """
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise RefusedStoreError(
            "the rocksdict engine cannot write to a folder whose name is not UTF-8: rename the"
            " folder or use the native engine",
            path=path,
        ) from exc
    return text
