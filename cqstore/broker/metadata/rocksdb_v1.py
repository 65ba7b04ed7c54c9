"""Reader of metadata version 1 in RocksDB: three databases, or one with a family per table.

Source: RocketMQ ``config.v1.RocksDBTopicConfigManager``, ``RocksDBSubscriptionGroupManager``,
``RocksDBConsumerOffsetManager``, ``RocksDBConfigManager``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cqstore.broker.metadata.json_form import read_delays
from cqstore.broker.metadata.locations import SINGLE_FOLDER, V1_FOLDERS
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.table_kinds import BITS, GROUP, OFFSET_ROW, TOPIC
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.broker_files.fastjson import broker_row
from cqstore.store.broker_files.fastjson_kinds import VERSION, Record, converted
from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.service.offline.database_copy import is_database

VERSION_KEY = b"kvDataVersionKey"


class _Rows(NamedTuple):
    """One kind of rows of version 1: its database, its family, and the decoder of a row."""

    folder: str
    """Folder of the database, one of three."""
    family: str
    """Column family in this database."""
    single: str
    """Column family in the single database, ``config/metadata``."""
    take: Callable[[BrokerMetadata, str, bytes], None]


def read_v1(config: Path) -> BrokerMetadata | None:
    """Return the content of the three databases; ``None`` if none of them exists."""
    folders = {rows.folder for rows in _ROWS}
    present = {name for name in folders if is_database(config / name)}
    if not present:
        return None
    found = BrokerMetadata(Form.V1, config)
    for name in sorted(present):
        families = [(rows.family, rows.take) for rows in _ROWS if rows.folder == name]
        _read(config / name, families, found)
    read_delays(config, found)
    return found


def read_single(config: Path) -> BrokerMetadata | None:
    """Return the content of ``config/metadata``; ``None`` if it does not exist."""
    folder = config / SINGLE_FOLDER
    if not is_database(folder):
        return None
    found = BrokerMetadata(Form.SINGLE, folder)
    _read(folder, [(rows.single, rows.take) for rows in _ROWS], found)
    read_delays(config, found)
    return found


def families_of_databases() -> list[tuple[str, str, str]]:
    """Return each family: its database, its name there, its name in the single database."""
    return [(rows.folder, rows.family, rows.single) for rows in _ROWS]


def _read(
    folder: Path,
    families: list[tuple[str, Callable[[BrokerMetadata, str, bytes], None]]],
    into: BrokerMetadata,
) -> None:
    """Add all rows of one database; an unreadable row or database becomes a fault."""
    try:
        with RawDatabase(folder) as database:
            if database.fault is not None:
                into.faults.append(database.fault)
            for family, take in families:
                for key, value in database.items(family):
                    _take(folder, take, into, key, value)
    except StoreError as exc:
        into.faults.append(exc)


def _take(
    folder: Path,
    take: Callable[[BrokerMetadata, str, bytes], None],
    into: BrokerMetadata,
    key: bytes,
    value: bytes,
) -> None:
    """Add a row to the metadata; an invalid row becomes a fault."""
    try:
        take(into, key.decode(), value)
    except ValueError as exc:
        into.faults.append(CorruptionError(f"invalid row {key!r}: {exc}", path=folder))


def _topic(into: BrokerMetadata, name: str, value: bytes) -> None:
    into.topics[name] = broker_row(value, TOPIC)


def _group(into: BrokerMetadata, name: str, value: bytes) -> None:
    into.groups[name] = broker_row(value, GROUP)


def _forbidden(into: BrokerMetadata, group: str, value: bytes) -> None:
    bits: Any = converted(broker_row(value, Record({})), BITS)
    into.forbidden[group] = bits


def _offset(into: BrokerMetadata, key: str, value: bytes) -> None:
    row: Any = broker_row(value, OFFSET_ROW).get("offsetTable")
    if row is None:
        raise ValueError("offsetTable is missing")
    into.offsets[key] = row


def _version(table: Table) -> Callable[[BrokerMetadata, str, bytes], None]:
    def take(into: BrokerMetadata, key: str, value: bytes) -> None:
        if key.encode() == VERSION_KEY:
            into.versions[table] = DataVersion.of(broker_row(value, VERSION))

    return take


_ROWS = (
    _Rows(V1_FOLDERS[Table.TOPICS], "default", "topic", _topic),
    _Rows(V1_FOLDERS[Table.TOPICS], "kvDataVersion", "topicVersion", _version(Table.TOPICS)),
    _Rows(V1_FOLDERS[Table.GROUPS], "default", "subscriptionGroup", _group),
    _Rows(V1_FOLDERS[Table.GROUPS], "forbidden", "forbidden", _forbidden),
    _Rows(
        V1_FOLDERS[Table.GROUPS],
        "kvDataVersion",
        "subscriptionGroupVersion",
        _version(Table.GROUPS),
    ),
    _Rows(V1_FOLDERS[Table.OFFSETS], "default", "consumerOffset", _offset),
    _Rows(
        V1_FOLDERS[Table.OFFSETS], "kvDataVersion", "consumerOffsetVersion", _version(Table.OFFSETS)
    ),
)
