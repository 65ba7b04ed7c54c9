"""Writer of metadata version 1 in RocksDB: three databases, or one with a family per table.

Only families with rows are created, as in 5.5.1; other releases create missing families.

Source: RocketMQ ``config.v1.RocksDBTopicConfigManager``, ``RocksDBSubscriptionGroupManager``,
``RocksDBConsumerOffsetManager``, ``ConfigRocksDBStorage``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.locations import SINGLE_FOLDER, V1_FOLDERS
from cqstore.broker.metadata.model import BrokerMetadata, Changes, DataVersion, Json, Table
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


def families_of(table: Table, *, single: bool) -> tuple[str, str]:
    """Return the families of a table's rows and of its version, in its own or the single database.

    The forbidden topics of groups have another family.
    """
    rows = [each for each in families_of_databases() if each[0] == V1_FOLDERS[table]]
    names = [name if single else family for _, family, name in rows]
    return names[0], names[-1]


def changed_rows(
    table: Table, changes: Changes, version: DataVersion, *, single: bool
) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Yield family, key and value of each changed row and of the version; ``None``: removed."""
    rows, versions = families_of(table, single=single)
    for name, row in changes.items():
        yield rows, name.encode(), _row(table, row) if row else None
    yield versions, VERSION_KEY, _json(_fields(version))


def _row(table: Table, row: Mapping[Any, object]) -> bytes:
    return _json({"offsetTable": row} if table is Table.OFFSETS else row)


def _rows(found: BrokerMetadata) -> Iterator[tuple[str, Pairs]]:
    """Yield the rows of each family, with its name in the single database."""
    yield "topic", _pairs(found.topics)
    yield "topicVersion", _version(found, Table.TOPICS)
    yield "subscriptionGroup", _pairs(found.groups)
    yield "forbidden", _pairs(found.forbidden)
    yield "subscriptionGroupVersion", _version(found, Table.GROUPS)
    yield (
        "consumerOffset",
        [(key.encode(), _row(Table.OFFSETS, row)) for key, row in found.offsets.items()],
    )
    yield "consumerOffsetVersion", _version(found, Table.OFFSETS)


def _pairs(table: Mapping[str, Mapping[str, object]]) -> Pairs:
    return [(name.encode(), _json(value)) for name, value in table.items()]


def _version(found: BrokerMetadata, table: Table) -> Pairs:
    version = found.versions.get(table)
    return [] if version is None else [(VERSION_KEY, _json(_fields(version)))]


def _fields(version: DataVersion) -> Json:
    state, timestamp, counter = version
    return {"counter": counter, "stateVersion": state, "timestamp": timestamp}


def _json(content: Mapping[str, object]) -> bytes:
    """Return JSON as 5.5.1 writes it; releases that escape non-ASCII text can read both."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
