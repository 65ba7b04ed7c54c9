"""Writer of metadata version 2 in RocksDB; for its keys, see ``rocksdb_v2``.

Source: RocketMQ ``config.v2.ConfigHelper``, ``ConsumerOffsetManagerV2``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.locations import V2_FOLDER
from cqstore.broker.metadata.model import (
    BrokerMetadata,
    Changes,
    DataVersion,
    Json,
    Table,
    readings,
)
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.broker.metadata.rocksdb_v2 import (
    CTRL_1,
    HEAD,
    JSON,
    LENGTH,
    OFFSET,
    QUEUE_ID,
    TABLE_PREFIX,
    VERSION,
    VERSION_NAME,
    RowKind,
    TableId,
)
from cqstore.cq_rocksdb.engine.raw_builder import DEFAULT_FAMILY, build_database

_CTRL = bytes([CTRL_1])
_TABLES_WITH_VERSION = (
    (TableId.CONSUMER_OFFSET, Table.OFFSETS), (TableId.PULL_OFFSET, Table.OFFSETS),
    (TableId.TOPIC, Table.TOPICS), (TableId.SUBSCRIPTION_GROUP, Table.GROUPS),
)  # fmt: skip
"""Number → table; a broker gives pull offsets the version of the other offsets."""


def write_v2(found: BrokerMetadata, config: Path) -> None:
    """Write ``config/rdb``, durably; ``found`` must not have content that ``refusals`` reports.

    Raises:
        StoreIOError: the database cannot be written or already exists.
    """
    build_database(config / V2_FOLDER, {DEFAULT_FAMILY: _rows(found)})


def _rows(found: BrokerMetadata) -> Iterator[tuple[bytes, bytes]]:
    """Yield all rows of version 2, in the order of their tables."""
    for number, table in _TABLES_WITH_VERSION:
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
    number = next(number for number, each in _TABLES_WITH_VERSION if each is table)
    for name, row in changes.items():
        if table is not Table.OFFSETS:
            yield DEFAULT_FAMILY, _data_key(number, name), _config(row) if row else None
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


def _configs(number: TableId, table: dict[str, Json]) -> Iterator[tuple[bytes, bytes]]:
    for name, config in table.items():
        yield _data_key(number, name), _config(config)


def _config(config: Mapping[Any, object]) -> bytes:
    text = json.dumps(config, ensure_ascii=False, separators=(",", ":")).encode()
    return bytes([JSON]) + text


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
    return _data_key(number, group) + _CTRL + _name(topic) + _CTRL


def _version_key(number: TableId) -> bytes:
    return HEAD.pack(TABLE_PREFIX, number, RowKind.DATA_VERSION) + VERSION_NAME


def _data_key(number: TableId, name: str) -> bytes:
    return HEAD.pack(TABLE_PREFIX, number, RowKind.DATA) + _name(name)


def _name(name: str) -> bytes:
    data = name.encode()
    return LENGTH.pack(len(data)) + data
