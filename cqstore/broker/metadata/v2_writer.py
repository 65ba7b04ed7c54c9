"""Writer of metadata version 2 in RocksDB; for its keys, see ``rocksdb_v2``.

Source: RocketMQ ``config.v2.ConfigHelper``, ``ConsumerOffsetManagerV2``.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from cqstore.broker.metadata.locations import V2_FOLDER
from cqstore.broker.metadata.model import BrokerMetadata, Json, Offsets, Table
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
            key = HEAD.pack(TABLE_PREFIX, number, RowKind.DATA_VERSION) + VERSION_NAME
            yield key, VERSION.pack(*found.versions[table])
    yield from _configs(TableId.TOPIC, found.topics)
    yield from _configs(TableId.SUBSCRIPTION_GROUP, found.groups)
    yield from _offsets(TableId.CONSUMER_OFFSET, found.offsets, found)
    yield from _offsets(TableId.PULL_OFFSET, found.pull_offsets, found)


def _configs(number: TableId, table: dict[str, Json]) -> Iterator[tuple[bytes, bytes]]:
    for name, config in table.items():
        text = json.dumps(config, ensure_ascii=False, separators=(",", ":")).encode()
        yield _data_key(number, name), bytes([JSON]) + text


def _offsets(
    number: TableId, offsets: Offsets, found: BrokerMetadata
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of offsets."""
    for key, row in offsets.items():
        topic, group = fitting_readings(key, found.topics, found.groups)[0]
        head = _data_key(number, group) + _CTRL + _name(topic) + _CTRL
        for queue_id, offset in row.items():
            yield head + QUEUE_ID.pack(queue_id), OFFSET.pack(offset)


def _data_key(number: TableId, name: str) -> bytes:
    return HEAD.pack(TABLE_PREFIX, number, RowKind.DATA) + _name(name)


def _name(name: str) -> bytes:
    data = name.encode()
    return LENGTH.pack(len(data)) + data
