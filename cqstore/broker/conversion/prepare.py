"""Puts the tables of a stopped broker into the form that a broker of the other backend reads.

A broker that keeps tables in RocksDB takes a file in whose version counts more changes than the
database, which is 0 for a new one. RocketMQ's own files may say 0: offsets count every 500 commits.
It takes in ``consumerOffset.json`` alone, also with ``enableLmq``.

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
"""Takes a database of tables out of a broker's sight."""


def reads_databases(backends: Sequence[str]) -> bool:
    """Return whether a broker with these queues keeps its tables in RocksDB; with both it does not.

    Source: RocketMQ ``MessageStoreConfig.isEnableRocksDBStore``.
    """
    return [backend(name).store_type() for name in backends] == [_ROCKSDB]


def prepare_tables(
    paths: StorePaths, backends: Sequence[str], put_away: PutAway, *, lmq: bool
) -> list[str]:
    """Write the tables as a broker with queues in ``backends`` reads them.

    A second call does nothing more. A table that a database has newer is left alone.

    Args:
        paths: of the store; no broker runs on it.
        backends: those of the store as it is to be.
        put_away: is called with each database that is older than the files.
        lmq: that broker has ``enableLmq``.

    Returns:
        a sentence for each thing that was done.

    Raises:
        CorruptionError: a file is none of a broker's, nor its backup.
        StoreIOError: something cannot be read or written.
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
    """Make of a table's JSON file one that a broker with RocksDB tables takes in at its start."""
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
    """Make the file of offsets that a broker with light queues reads, if it is one."""
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
    """What a broker would read: a file, else its backup, as after a kill between both writes."""

    json: Json
    is_backup: bool
    """Then the file itself, which is none, must not become the backup."""

    @classmethod
    def of(cls, files: ConfigFiles, name: str) -> "_Content | None":
        """Return the content of a file, ``None`` without file and backup.

        Raises:
            CorruptionError: the file is damaged, and there is no backup.
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
