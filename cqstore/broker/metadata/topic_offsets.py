"""Removal of the offsets of deleted topics from all forms of a broker's tables.

All forms are changed, even outdated ones: a broker that merges such a form later would restore the
offsets. Versions and file times stay, so the newest form remains the same.

Source: RocketMQ ``ConsumerOffsetManager.cleanOffsetByTopic``, ``RocksDBConsumerOffsetManager``.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from cqstore.broker.metadata.changing import change_tables
from cqstore.broker.metadata.locations import FILES_OF_TABLE
from cqstore.broker.metadata.model import BrokerMetadata, Json, Offsets, Table
from cqstore.broker.metadata.rocksdb_v1 import read_single, read_v1
from cqstore.broker.metadata.rocksdb_v2 import read_v2
from cqstore.broker.metadata.table_forms import faults_of
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.store.broker_files.fastjson import broker_object, encoded
from cqstore.store.broker_files.file_names import (
    DELAYS_FILE,
    MAX_TABLE_BYTES,
    TIMER_CHECK_FILE,
    Readable,
    backup_of,
)
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError, os_errors
from cqstore.store.files import read_file, replace_file
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import SCHEDULE_TOPIC, TIMER_TOPIC

Change = Callable[[], None]


def planned(config: Path, topics: Collection[str]) -> list[Change]:
    """Read all forms in ``config``; return the changes that remove the offsets in ``topics``.

    The caller has the store's lock. If interrupted, each file or database has its old or its new
    content, and another call completes the rest.

    Raises:
        CorruptionError: a form cannot be read, so it may have offsets of the topics.
        RefusedStoreError: one of the topics is the timer topic, and the timer has a position in it.
        StoreIOError: a file cannot be read.
    """
    paths = StorePaths(config.parent)
    keys = TopicKeys(paths, topics)
    if TIMER_TOPIC in topics and exists(config / TIMER_CHECK_FILE):
        raise RefusedStoreError(
            f"cannot delete {TIMER_TOPIC}: the broker's timer keeps its position in it",
            path=config / TIMER_CHECK_FILE,
        )
    if not exists(config):
        return []
    changes: list[Change] = []
    for name in FILES_OF_TABLE[Table.OFFSETS]:
        changes += _file_changes(config / name, keys.removed_from)
    if SCHEDULE_TOPIC in topics:
        changes += _file_changes(config / DELAYS_FILE, lambda found: {**found, "offsetTable": {}})
    return [*changes, *_database_changes(paths, keys)]


def _file_changes(path: Path, removed: Callable[[Mapping[str, object]], Json]) -> Iterator[Change]:
    """Yield the changes to a file and its backup; as in a broker, one of them may be torn."""
    found: list[Readable[Json]] = []
    fault: CorruptionError | None = None
    for each in (path, backup_of(path)):
        try:
            content = _content(each)
        except CorruptionError as exc:
            fault = fault or exc
            continue
        if content is not None:
            found.append(Readable(content, each, None))
    if fault is not None and not found:
        raise fault
    for content, each, _ in found:
        made = removed(content)
        if made != content:
            yield partial(_replace, each, encoded(made))


def _content(path: Path) -> Json | None:
    """Return the object in a file; ``None`` if the file does not exist or is empty.

    Raises:
        CorruptionError: a broker cannot read the file.
        StoreIOError: the file cannot be read.
    """
    with os_errors("read a table of offsets", path):
        try:
            data = read_file(path, MAX_TABLE_BYTES)
        except FileNotFoundError:
            return None
    try:
        return broker_object(data) if data.strip() else None
    except ValueError as exc:
        raise CorruptionError(
            f"the offsets of the deleted topics cannot be removed: {exc} (cqstore meta repair)",
            path=path,
        ) from exc


def _replace(path: Path, data: bytes) -> None:
    """Replace a file durably and keep its modification time."""
    with os_errors("remove the offsets of deleted topics", path):
        before = path.stat()
        replace_file(path, data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _database_changes(paths: StorePaths, keys: TopicKeys) -> Iterator[Change]:
    """Yield a change for each database form that has offsets of these topics."""
    for read in (read_v1, read_single, read_v2):
        found = read(paths.config)
        if found is None:
            continue
        for fault in faults_of(Table.OFFSETS, found, paths.config):
            if isinstance(fault, StoreIOError):
                raise fault
            raise CorruptionError(
                "the offsets of the deleted topics cannot be removed from the form"
                f" {found.form}: {fault.reason} (cqstore meta repair)", path=fault.path,
            ) from fault  # fmt: skip
        made = replace(
            found, offsets=_without(found.offsets, keys), delay_offsets={},
            pull_offsets=_without(found.pull_offsets, keys),
        )  # fmt: skip
        if (made.offsets, made.pull_offsets) != (found.offsets, found.pull_offsets):
            yield partial(_change, paths, made)


def _without(offsets: Offsets, keys: TopicKeys) -> Offsets:
    return {key: row for key, row in offsets.items() if key not in keys}


def _change(paths: StorePaths, made: BrokerMetadata) -> None:
    """Replace the databases, keeping file times; delete the old ones with the removed offsets."""
    shutil.rmtree(change_tables(paths, made, [Table.OFFSETS], keeps_times=True))
