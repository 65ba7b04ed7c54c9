"""OffsetRemoval: removes the offsets of deleted topics from all forms of a broker's tables.

All forms are changed, even outdated ones: a broker that merges such a form later would restore the
offsets. Versions and file times stay, so the newest form remains the same. The forms are read once
for many removals. A database is then changed row by row, and a JSON file is written as a whole.

Source: RocketMQ ``ConsumerOffsetManager.cleanOffsetByTopic``, ``RocksDBConsumerOffsetManager``.
"""

from collections.abc import Collection
from pathlib import Path

from cqstore.broker.metadata import rocksdb_v1, rocksdb_v2
from cqstore.broker.metadata.changing import delete_keys
from cqstore.broker.metadata.locations import (
    FILES_OF_TABLE,
    SINGLE_FOLDER,
    V1_FOLDERS,
    V2_FOLDER,
)
from cqstore.broker.metadata.model import Form, Table
from cqstore.broker.metadata.offset_files import DelayLevels, offset_files
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.broker_files.file_names import DELAYS_FILE, TIMER_CHECK_FILE, backup_of
from cqstore.store.errors import CorruptionError, RefusedStoreError, os_errors
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import SCHEDULE_TOPIC, TIMER_TOPIC
from cqstore.store.service.offline.database_copy import is_database

_FOLDERS = {
    Form.V1: V1_FOLDERS[Table.OFFSETS], Form.SINGLE: SINGLE_FOLDER, Form.V2: V2_FOLDER,
}  # fmt: skip
_Stamp = list[tuple[str, int, int, int]]
"""Name, inode, size and modification time of each file."""


def planned(config: Path, topics: Collection[str], owned: str | None = None) -> "OffsetRemoval":
    """Return what removes the offsets in ``topics``, see ``OffsetRemoval``."""
    return OffsetRemoval(config, topics, owned)


class OffsetRemoval:
    """The offsets in some topics in all forms. The caller has the store's lock; one thread."""

    def __init__(self, config: Path, topics: Collection[str], owned: str | None = None) -> None:
        """Read all forms in ``config`` but ``owned``, which the process maintains itself.

        Raises:
            CorruptionError: a form cannot be read, so it may have offsets of the topics.
            RefusedStoreError: one of the topics is the timer topic, and the timer has a position in
                it.
            StoreIOError: a file cannot be read.
        """
        if TIMER_TOPIC in topics and exists(config / TIMER_CHECK_FILE):
            raise RefusedStoreError(
                f"cannot delete {TIMER_TOPIC}: the broker's timer keeps its position in it",
                path=config / TIMER_CHECK_FILE,
            )
        paths = StorePaths(config.parent)
        self._keys = TopicKeys(paths, topics)
        names = () if owned == Form.JSON else FILES_OF_TABLE[Table.OFFSETS]
        self._paths = [config / name for name in names]
        self._files = [each for path in self._paths for each in offset_files(path, self._keys)]
        if SCHEDULE_TOPIC in topics:
            self._paths.append(config / DELAYS_FILE)
            self._files += offset_files(self._paths[-1], DelayLevels())
        self._paths += [backup_of(path) for path in self._paths]
        forms = [form for form in _FOLDERS if form != owned]
        self._databases = [_DatabaseKeys(paths, form, self._keys) for form in forms]
        self._paths += [config / _FOLDERS[form] for form in forms]
        self._stamp = self._stamped()

    def is_current(self) -> bool:
        """Return whether no one else changed a form since it was read."""
        return self._stamp == self._stamped()

    def remove(self, topics: Collection[str]) -> None:
        """Remove the offsets in ``topics``, durably; all of them are among those that were read.

        If interrupted, each file or database has its old or its new content, and a removal by
        another object completes the rest.

        Raises:
            RefusedStoreError: the file system cannot exchange two folders.
            StoreIOError: a file cannot be written.
        """
        keys = self._keys.part(topics)
        for file in self._files:
            file.remove(keys)
        for database in self._databases:
            database.remove(keys)
        self._stamp = self._stamped()

    def _stamped(self) -> _Stamp:
        found: _Stamp = []
        for path in self._paths:
            with os_errors("check the metadata for changes", path):
                files = sorted(path.iterdir()) if is_dir(path) else [path] * exists(path)
                for each in files:
                    is_at = each.stat()
                    found.append((str(each), is_at.st_ino, is_at.st_size, is_at.st_mtime_ns))
        return found


class _DatabaseKeys:
    """The keys of the offsets in some topics in one database."""

    def __init__(self, paths: StorePaths, form: Form, keys: TopicKeys) -> None:
        """Read the keys.

        Raises:
            CorruptionError: RocksDB cannot read them, or the newest rows of the database are lost.
            StoreIOError: the database cannot be opened.
        """
        self._paths, self._form = paths, form
        self._rows: dict[str, list[tuple[str, bytes]]] = {}  # family and key, per topic
        folder = paths.config / _FOLDERS[form]
        if not is_database(folder):
            return
        try:
            with RawDatabase(folder) as database:
                if database.fault is not None:
                    raise database.fault
                found = (
                    rocksdb_v2.offset_keys(database, keys.topics)
                    if form is Form.V2
                    else rocksdb_v1.offset_keys(database, keys.topics, single=form is Form.SINGLE)
                )
                for topic, family, key in found:
                    self._rows.setdefault(topic, []).append((family, key))
        except CorruptionError as exc:
            raise CorruptionError(
                "the offsets of the deleted topics cannot be removed from the form"
                f" {form}: {exc.reason} (cqstore meta repair)", path=exc.path,
            ) from exc  # fmt: skip

    def remove(self, keys: TopicKeys) -> None:
        """Remove the rows of ``keys``, durably.

        Raises:
            RefusedStoreError, StoreIOError: see ``delete_keys``.
        """
        rows = {row for topic in keys.topics for row in self._rows.get(topic, ())}
        if self._form is not Form.V2:
            rows = {row for row in rows if row[1].decode(errors="replace") in keys}
        if rows:
            delete_keys(self._paths, _FOLDERS[self._form], sorted(rows))
        for topic in keys.topics:
            self._rows.pop(topic, None)
