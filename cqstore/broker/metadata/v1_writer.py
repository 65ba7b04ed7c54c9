"""Writer of metadata version 1 in RocksDB: three databases, or one with a family per table.

Only families with rows are created, as in 5.5.1; other releases create missing families.

Source: RocketMQ ``config.v1.RocksDBTopicConfigManager``, ``RocksDBSubscriptionGroupManager``,
``RocksDBConsumerOffsetManager``, ``ConfigRocksDBStorage``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from cqstore.broker.metadata.locations import SINGLE_FOLDER
from cqstore.broker.metadata.model import BrokerMetadata, Json, Table
from cqstore.broker.metadata.rocksdb_v1 import VERSION_KEY, families_of_databases
from cqstore.cq_rocksdb.engine.raw_builder import build_database

Pairs = list[tuple[bytes, bytes]]


def write_v1(found: BrokerMetadata, config: Path) -> None:
    """Write the three databases below ``config``, durably.

    Raises:
        StoreIOError: a database cannot be written or already exists.
    """
    databases: dict[str, dict[str, Pairs]] = {}
    rows = dict(_rows(found))
    for folder, family, single in families_of_databases():
        families = databases.setdefault(folder, {})
        if rows[single]:
            families[family] = rows[single]
    for folder, families in databases.items():
        build_database(config / folder, families)


def write_single(found: BrokerMetadata, config: Path) -> None:
    """Write ``config/metadata``, durably.

    Raises:
        StoreIOError: see ``write_v1``.
    """
    families = {family: rows for family, rows in _rows(found) if rows}
    build_database(config / SINGLE_FOLDER, families)


def _rows(found: BrokerMetadata) -> Iterator[tuple[str, Pairs]]:
    """Yield the rows of each family, with its name in the single database."""
    yield "topic", _pairs(found.topics)
    yield "topicVersion", _version(found, Table.TOPICS)
    yield "subscriptionGroup", _pairs(found.groups)
    yield "forbidden", _pairs(found.forbidden)
    yield "subscriptionGroupVersion", _version(found, Table.GROUPS)
    yield (
        "consumerOffset",
        _pairs({key: {"offsetTable": row} for key, row in found.offsets.items()}),
    )
    yield "consumerOffsetVersion", _version(found, Table.OFFSETS)


def _pairs(table: Mapping[str, Mapping[str, object]]) -> Pairs:
    return [(name.encode(), _json(value)) for name, value in table.items()]


def _version(found: BrokerMetadata, table: Table) -> Pairs:
    version = found.versions.get(table)
    if version is None:
        return []
    state, timestamp, counter = version
    content: Json = {"counter": counter, "stateVersion": state, "timestamp": timestamp}
    return [(VERSION_KEY, _json(content))]


def _json(content: Mapping[str, object]) -> bytes:
    """Return JSON as 5.5.1 writes it; releases that escape non-ASCII text can read both."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
