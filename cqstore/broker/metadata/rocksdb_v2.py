"""Metadata version 2 in RocksDB: one database whose keys contain the row kind.

Source: RocketMQ ``config.v2.ConfigHelper``, ``TopicConfigManagerV2``,
``SubscriptionGroupManagerV2``, ``ConsumerOffsetManagerV2``, ``TableId``, ``RecordPrefix``.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Any

from cqstore.broker.metadata.json_form import read_delays
from cqstore.broker.metadata.locations import V2_FOLDER
from cqstore.broker.metadata.model import (
    BrokerMetadata,
    Changes,
    DataVersion,
    Form,
    Json,
    Table,
    readings,
)
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.broker.metadata.rocksdb_rows import read_rows, row_json
from cqstore.broker.metadata.table_kinds import GROUP, TOPIC
from cqstore.cq_rocksdb.engine.raw_builder import DEFAULT_FAMILY, build_database
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.broker_files.fastjson import broker_row
from cqstore.store.broker_files.fastjson_kinds import Record
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.service.offline.database_copy import is_database

HEAD = Struct(">BHB")
"""Head of a key: table prefix (1), table number, row kind."""
LENGTH, QUEUE_ID, OFFSET = Struct(">H"), Struct(">i"), Struct(">q")
VERSION = Struct(">qqq")
TABLE_PREFIX = 1
_CTRL, _JSON = b"\1", b"\1"
"""Byte before each part of a key after a name, and before a value that is JSON."""
_AFTER_CTRL = b"\2"
VERSION_NAME = b"data_version"


class RowKind(IntEnum):
    """Kind of a row of version 2, from its key."""

    DATA_VERSION = 1
    DATA = 2


class TableId(IntEnum):
    """Number of a table in the keys of its rows."""

    CONSUMER_OFFSET = 1
    PULL_OFFSET = 2
    TOPIC = 3
    SUBSCRIPTION_GROUP = 4


VERSIONS = {
    TableId.CONSUMER_OFFSET: Table.OFFSETS,
    TableId.TOPIC: Table.TOPICS,
    TableId.SUBSCRIPTION_GROUP: Table.GROUPS,
}
_WRITTEN_VERSIONS = sorted((VERSIONS | {TableId.PULL_OFFSET: Table.OFFSETS}).items())
"""Number → table; a broker gives pull offsets the version of the other offsets."""


def read_v2(config: Path) -> BrokerMetadata | None:
    """Return the content of ``config/rdb``; ``None`` if it does not exist.

    A row that no known release writes becomes a fault and is skipped.
    """
    folder = config / V2_FOLDER
    if not is_database(folder):
        return None
    found = BrokerMetadata(Form.V2, folder)
    families = [DEFAULT_FAMILY]
    read_rows(folder, families, found, lambda _, key, value: _take(found, key, value))
    read_delays(config, found)
    return found


def write_v2(found: BrokerMetadata, config: Path) -> None:
    """Write ``config/rdb``, durably; ``found`` must not have content that ``refusals`` reports.

    Raises:
        StoreIOError: the database cannot be written or already exists.
    """
    build_database(config / V2_FOLDER, {DEFAULT_FAMILY: _rows(found)})


def _take(into: BrokerMetadata, key: bytes, value: bytes) -> None:
    """Add a row of version 2 to the metadata.

    Raises:
        ValueError: the row is invalid.
    """
    prefix, number, kind = HEAD.unpack_from(key)
    if prefix != TABLE_PREFIX:
        raise ValueError("the key does not belong to a table")
    table, row_kind, rest = TableId(number), RowKind(kind), key[HEAD.size :]
    if row_kind is RowKind.DATA_VERSION:
        if rest != VERSION_NAME:
            raise ValueError("the key is not the key of a data version")
        if table in VERSIONS:
            into.versions[VERSIONS[table]] = DataVersion(*VERSION.unpack(value))
    else:
        _take_data(into, table, rest, value)


def _take_data(into: BrokerMetadata, table: TableId, rest: bytes, value: bytes) -> None:
    """Add a row of a topic, a group or an offset to the metadata.

    Raises:
        ValueError: the row is invalid or contradicts another row.
    """
    name, rest = _name(rest)
    if table is TableId.TOPIC:
        into.topics[name] = _config(rest, value, TOPIC)
    elif table is TableId.SUBSCRIPTION_GROUP:
        into.groups[name] = _config(rest, value, GROUP)
    else:
        topic, queue_id = _topic_and_queue(rest)
        (offset,) = OFFSET.unpack(value)
        to = into.offsets if table is TableId.CONSUMER_OFFSET else into.pull_offsets
        row = to.setdefault(f"{topic}{TOPIC_GROUP_SEPARATOR}{name}", {})
        former, row[queue_id] = row.get(queue_id, offset), offset  # a broker uses the last one
        if former != offset:
            raise ValueError(f"another row has {former} for the same topic@group and queue")


def _config(rest: bytes, value: bytes, kind: Record) -> Json:
    if rest:
        raise ValueError(f"the key has {len(rest)} more bytes after the name")
    if value[:1] != _JSON:
        raise ValueError(f"the value has type {value[:1].hex() or 'none'}: expected JSON")
    return broker_row(value[1:], kind)


def _topic_and_queue(rest: bytes) -> tuple[str, int]:
    """Return topic and queue id, which follow the group; a byte 1 precedes each."""
    topic, rest = _name(_behind_ctrl(rest))
    (queue_id,) = QUEUE_ID.unpack(_behind_ctrl(rest))
    return topic, queue_id


def _behind_ctrl(rest: bytes) -> bytes:
    if rest[:1] != _CTRL:
        raise ValueError("no byte 1 follows a name in the key")
    return rest[1:]


def _name(rest: bytes) -> tuple[str, bytes]:
    (length,) = LENGTH.unpack_from(rest)
    end = LENGTH.size + length
    if end > len(rest):
        raise ValueError(f"a name has {length} bytes, but only {len(rest) - LENGTH.size} follow")
    return rest[LENGTH.size : end].decode(), rest[end:]


def _rows(found: BrokerMetadata) -> Iterator[tuple[bytes, bytes]]:
    """Yield all rows of version 2, in the order of their tables."""
    for number, table in _WRITTEN_VERSIONS:
        if table in found.versions:
            yield _version_key(number), VERSION.pack(*found.versions[table])
    yield from _configs(TableId.TOPIC, found.topics)
    yield from _configs(TableId.SUBSCRIPTION_GROUP, found.groups)
    yield from _offsets(TableId.CONSUMER_OFFSET, found.offsets, found)
    yield from _offsets(TableId.PULL_OFFSET, found.pull_offsets, found)


def changed_rows(
    table: Table, changes: Changes, version: DataVersion, found: BrokerMetadata,
    keys: Callable[[bytes], list[bytes]],
) -> Iterator[tuple[str, bytes, bytes | None]]:  # fmt: skip
    """Yield family, key and value of each changed row and of the version; ``None``: removed.

    ``keys`` returns the keys in the database that begin with a prefix: each queue has a row. A key
    that is removed also loses its pull offsets. ``found`` has the topics and groups by which keys
    with several readings are split.

    Source: RocketMQ ``ConsumerOffsetManagerV2.commitOffset``, ``removeOffset``.
    """
    number = next(number for number, each in _WRITTEN_VERSIONS if each is table)
    for name, row in changes.items():
        if table is not Table.OFFSETS:
            yield DEFAULT_FAMILY, _data_key(number, name), _JSON + row_json(row) if row else None
            continue
        made = dict(_offsets(number, {name: row}, found)) if row else {}
        heads = [_head(number, *each) for each in readings(name)]
        if not row:
            heads += [_head(TableId.PULL_OFFSET, *each) for each in readings(name)]
        for head in heads:
            gone = [key for key in keys(head) if key not in made]
            yield from ((DEFAULT_FAMILY, key, None) for key in gone)
        yield from ((DEFAULT_FAMILY, key, value) for key, value in made.items())
    yield DEFAULT_FAMILY, _version_key(number), VERSION.pack(*version)


def offset_keys(database: RawDatabase, topics: Collection[str]) -> Iterator[tuple[str, str, bytes]]:
    """Yield topic, family and key of each offset in ``topics``.

    Keys begin with the group. In each group, only the topics that may have keys are looked up.
    """
    names = {_named(topic) + _CTRL: topic for topic in topics}
    order = sorted(names)
    for number in (TableId.CONSUMER_OFFSET, TableId.PULL_OFFSET):
        head = start = HEAD.pack(TABLE_PREFIX, number, RowKind.DATA)
        while (key := database.first_key(DEFAULT_FAMILY, start)) and key.startswith(head):
            group = _group_of(key)
            for name, found in _keys_of_group(database, group, order):
                yield names[name], DEFAULT_FAMILY, found
            is_whole = key.startswith(group)
            start = group[: -len(_CTRL)] + _AFTER_CTRL if is_whole else key + b"\0"


def _group_of(key: bytes) -> bytes:
    """Return the part of an offset's key that all keys of its group have in common."""
    (length,) = LENGTH.unpack_from(key[HEAD.size :].ljust(LENGTH.size, b"\0"))
    return key[: HEAD.size + LENGTH.size + length] + _CTRL


def _keys_of_group(
    database: RawDatabase, group: bytes, names: Sequence[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and key of each offset of a group in a topic of ``names``, which are in order.

    No name begins with another name, because a name begins with its length.
    """
    at = 0
    while at < len(names):
        found = database.keys(DEFAULT_FAMILY, group + names[at])
        yield from ((names[at], key) for key in found)
        at += 1
        if not found:
            key = database.first_key(DEFAULT_FAMILY, group + names[at - 1])
            if key is None or not key.startswith(group):
                return
            at = max(at, bisect_right(names, key[len(group) :]) - 1)


def _configs(number: TableId, table: dict[str, Json]) -> Iterator[tuple[bytes, bytes]]:
    for name, config in table.items():
        yield _data_key(number, name), _JSON + row_json(config)


def _offsets(
    number: TableId, offsets: Mapping[str, Mapping[Any, Any]], found: BrokerMetadata
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of offsets."""
    for key, row in offsets.items():
        topic, group = fitting_readings(key, found.topics, found.groups)[0]
        head = _head(number, topic, group)
        for queue_id, offset in row.items():
            yield head + QUEUE_ID.pack(queue_id), OFFSET.pack(offset)


def _head(number: TableId, topic: str, group: str) -> bytes:
    """Return the key of a group's offset in ``topic``, without the queue id at its end."""
    return _data_key(number, group) + _CTRL + _named(topic) + _CTRL


def _version_key(number: TableId) -> bytes:
    return HEAD.pack(TABLE_PREFIX, number, RowKind.DATA_VERSION) + VERSION_NAME


def _data_key(number: TableId, name: str) -> bytes:
    return HEAD.pack(TABLE_PREFIX, number, RowKind.DATA) + _named(name)


def _named(name: str) -> bytes:
    data = name.encode()
    return LENGTH.pack(len(data)) + data
