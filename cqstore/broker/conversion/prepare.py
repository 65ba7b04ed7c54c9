"""Prepares the tables of a stopped broker for a broker with the other backend.

A broker that keeps tables in RocksDB merges a file whose change counter is higher than that of the
database, which is 0 for a new database. The counter in RocketMQ's own files may be 0, because
offsets are counted every 500 commits. Such a broker merges only ``consumerOffset.json``, even with
``enableLmq``.

Source: RocketMQ ``RocksDBConsumerOffsetManager.merge``, ``ConfigManager.load``,
``LmqConsumerOffsetManager``.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.config_files import ConfigFiles
from cqstore.broker.metadata.lmq_offsets import all_offsets, consumer_offset, lmq_consumer_offset
from cqstore.broker.metadata.model import Form
from cqstore.broker.metadata.table_forms import TableForms, file_written, table_forms
from cqstore.store.broker_files.file_names import LMQ_OFFSETS_FILE, OFFSETS_FILE, read_either
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend

_OFFSETS = "consumerOffsets"
_ROCKSDB = "defaultRocksDB"
Json = dict[str, Any]
PutAway = Callable[[Path], object]
"""Moves a database of tables to a folder that no broker reads."""


def reads_databases(backends: Sequence[str]) -> bool:
    """Return whether a broker with these backends keeps tables in RocksDB: not if it has both.

    Source: RocketMQ ``MessageStoreConfig.isEnableRocksDBStore``.
    """
    return [backend(name).store_type() for name in backends] == [_ROCKSDB]


def prepare_tables(
    paths: StorePaths, backends: Sequence[str], put_away: PutAway, *, lmq: bool
) -> list[str]:
    """Write the tables as a broker with queues in ``backends`` reads them.

    A second call changes nothing. A table that is newer in a database is not changed.

    Args:
        paths: paths of the store, on which no broker runs.
        backends: backends of the store for the next broker.
        put_away: called with each database that is older than the files.
        lmq: whether the next broker has ``enableLmq``.

    Returns:
        a sentence for each change.

    Raises:
        CorruptionError: neither a file nor its backup is a valid file of a broker.
        StoreIOError: a file cannot be read or written.
    """
    files, done, tables = ConfigFiles(paths), list[str](), table_forms(paths)
    in_json = [table for table in tables if table.form is Form.JSON]
    if any(backend(name).store_type() == _ROCKSDB for name in backends):
        for table in in_json:
            _for_rocksdb(files, table, done)
        newer = {path for table in tables if table not in in_json for path in table.databases}
        for path in {path for table in in_json for path in table.databases} - newer:
            put_away(path)
            done.append(f"database {path.name} was older than the files and was moved away")
    if not reads_databases(backends) and any(table.name == _OFFSETS for table in in_json):
        _for_files(files, done, lmq=lmq)
    return done


def _for_rocksdb(files: ConfigFiles, table: TableForms, done: list[str]) -> None:
    """Change a table's JSON file so that a broker with RocksDB tables merges it at its start."""
    name = table.files[0].name
    content = _Content.of_offsets(files) if table.name == _OFFSETS else _Content.of(files, name)
    if content is None:
        return
    version = content.json.get("dataVersion")
    if not isinstance(version, dict) or type(version.get("counter")) is not int:
        version = {"counter": 0, "stateVersion": 0, "timestamp": time.time_ns() // 1_000_000}
    content.json["dataVersion"] = version | {"counter": max(version["counter"], 1)}
    if files.write(name, content.json, backup=not content.is_backup):
        done.append(f"{name} was rewritten so that a broker imports it into RocksDB")


def _for_files(files: ConfigFiles, done: list[str], *, lmq: bool) -> None:
    """Write the offset file that a broker with light queues reads, if the broker has them."""
    there = file_written(files.path(LMQ_OFFSETS_FILE)) >= 0
    if not (lmq or there) or _is_lmq_newer(files):
        return
    content = _Content.of(files, OFFSETS_FILE)
    if content is None:
        return
    offsets = all_offsets(content.json, files.path(OFFSETS_FILE))
    version = content.json.get("dataVersion") or {}
    if files.write(LMQ_OFFSETS_FILE, lmq_consumer_offset(offsets, version)):
        done.append(f"{LMQ_OFFSETS_FILE} was created from {OFFSETS_FILE}")


def _is_lmq_newer(files: ConfigFiles) -> bool:
    written = file_written(files.path(LMQ_OFFSETS_FILE))
    return written >= 0 and written >= file_written(files.path(OFFSETS_FILE))


@dataclass(slots=True)
class _Content:
    """The content a broker reads: a file, else its backup (after a kill between the writes)."""

    json: Json
    is_backup: bool
    """Read from the backup: the invalid file must not replace the backup."""

    @classmethod
    def of(cls, files: ConfigFiles, name: str) -> "_Content | None":
        """Return the content of a file or its backup; ``None`` if neither exists.

        Raises:
            CorruptionError: the file is damaged and there is no backup.
        """
        path = files.path(name)
        found = read_either(path, lambda each: files.read(each.name))
        return None if found is None else cls(found.content, is_backup=found.path != path)

    @classmethod
    def of_offsets(cls, files: ConfigFiles) -> "_Content | None":
        """Return the new ``consumerOffset.json``, from the file that was written last."""
        if not _is_lmq_newer(files):
            return cls.of(files, OFFSETS_FILE)
        found = cls.of(files, LMQ_OFFSETS_FILE)
        if found is None:
            return None
        offsets = all_offsets(found.json, files.path(LMQ_OFFSETS_FILE))
        return cls(consumer_offset(offsets, found.json.get("dataVersion") or {}), is_backup=False)
