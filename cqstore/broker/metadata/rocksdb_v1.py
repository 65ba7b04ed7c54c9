"""Metadata version 1 in RocksDB: three databases, or one with a family per table.

Only families with rows are created, as in 5.5.1; other releases create missing families.

Source: RocketMQ ``config.v1.RocksDBTopicConfigManager``, ``RocksDBSubscriptionGroupManager``,
``RocksDBConsumerOffsetManager``, ``RocksDBConfigManager``, ``ConfigRocksDBStorage``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cqstore.broker.metadata.json_form import read_delays
from cqstore.broker.metadata.locations import SINGLE_FOLDER, V1_FOLDERS
from cqstore.broker.metadata.model import BrokerMetadata, Changes, DataVersion, Form, Table
from cqstore.broker.metadata.rocksdb_rows import read_rows, row_json
from cqstore.broker.metadata.table_kinds import BITS, GROUP, OFFSET_ROW, TOPIC
from cqstore.cq_rocksdb.engine.raw_builder import build_database
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.broker_files.fastjson import broker_row
from cqstore.store.broker_files.fastjson_kinds import VERSION, Record, converted
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.service.offline.database_copy import is_database

VERSION_KEY = b"kvDataVersionKey"
_Pairs = list[tuple[bytes, bytes]]


class _Rows(NamedTuple):
    """One kind of rows of version 1: its database, its family, and how they are read and made."""

    folder: str
    """Folder of the database, one of three."""
    family: str
    """Column family in this database."""
    single: str
    """Column family in the single database, ``config/metadata``."""
    take: Callable[[BrokerMetadata, str, bytes], None]
    """Adds a row to the metadata."""
    made: Callable[[BrokerMetadata], _Pairs]
    """Returns the rows of the metadata."""


def read_v1(config: Path) -> BrokerMetadata | None:
    """Return the content of the three databases; ``None`` if none of them exists."""
    present = [name for name in sorted(V1_FOLDERS.values()) if is_database(config / name)]
    if not present:
        return None
    found = BrokerMetadata(Form.V1, config)
    for name in present:
        _read(config / name, {each.family: each for each in _ROWS if each.folder == name}, found)
    read_delays(config, found)
    return found


def read_single(config: Path) -> BrokerMetadata | None:
    """Return the content of ``config/metadata``; ``None`` if it does not exist."""
    folder = config / SINGLE_FOLDER
    if not is_database(folder):
        return None
    found = BrokerMetadata(Form.SINGLE, folder)
    _read(folder, {each.single: each for each in _ROWS}, found)
    read_delays(config, found)
    return found


def write_v1(found: BrokerMetadata, config: Path) -> None:
    """Write the three databases below ``config``, durably.

    Raises:
        StoreIOError: a database cannot be written or already exists.
    """
    for folder in V1_FOLDERS.values():
        made = {each.family: each.made(found) for each in _ROWS if each.folder == folder}
        build_database(config / folder, {name: rows for name, rows in made.items() if rows})


def write_single(found: BrokerMetadata, config: Path) -> None:
    """Write ``config/metadata``, durably.

    Raises:
        StoreIOError: see ``write_v1``.
    """
    made = {each.single: each.made(found) for each in _ROWS}
    build_database(config / SINGLE_FOLDER, {name: rows for name, rows in made.items() if rows})


def families_of(table: Table, *, single: bool) -> tuple[str, str]:
    """Return the families of a table's rows and of its version, in its own or the single database.

    The forbidden topics of groups have another family.
    """
    kinds = [each for each in _ROWS if each.folder == V1_FOLDERS[table]]
    names = [each.single if single else each.family for each in kinds]
    return names[0], names[-1]


def changed_rows(
    table: Table, changes: Changes, version: DataVersion, *, single: bool
) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Yield family, key and value of each changed row and of the version; ``None``: removed."""
    rows, versions = families_of(table, single=single)
    for name, row in changes.items():
        yield rows, name.encode(), _row(table, row) if row else None
    yield versions, VERSION_KEY, row_json(version.as_json())


def offset_keys(
    database: RawDatabase, topics: Collection[str], *, single: bool
) -> Iterator[tuple[str, str, bytes]]:
    """Yield topic, family and key of each offset in ``topics``.

    Keys begin with the topic, so only those of the topics are read. A key with several readings is
    yielded for each topic that it may belong to.
    """
    family, _ = families_of(Table.OFFSETS, single=single)
    for topic in topics:
        for key in database.keys(family, f"{topic}{TOPIC_GROUP_SEPARATOR}".encode()):
            yield topic, family, key


def _read(folder: Path, families: Mapping[str, _Rows], into: BrokerMetadata) -> None:
    """Add all rows of one database."""
    read_rows(
        folder, families, into,
        lambda family, key, value: families[family].take(into, key.decode(), value),
    )  # fmt: skip


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


def _pairs(table: Mapping[str, Mapping[str, object]]) -> _Pairs:
    return [(name.encode(), row_json(value)) for name, value in table.items()]


def _offset_pairs(found: BrokerMetadata) -> _Pairs:
    return [(key.encode(), _row(Table.OFFSETS, row)) for key, row in found.offsets.items()]


def _row(table: Table, row: Mapping[Any, object]) -> bytes:
    return row_json({"offsetTable": row} if table is Table.OFFSETS else row)


def _version(table: Table, single: str) -> _Rows:
    def take(into: BrokerMetadata, key: str, value: bytes) -> None:
        if key.encode() == VERSION_KEY:
            into.versions[table] = DataVersion.of(broker_row(value, VERSION))

    def made(found: BrokerMetadata) -> _Pairs:
        version = found.versions.get(table)
        return [] if version is None else [(VERSION_KEY, row_json(version.as_json()))]

    return _Rows(V1_FOLDERS[table], "kvDataVersion", single, take, made)


_TOPICS, _GROUPS, _OFFSETS = (V1_FOLDERS[table] for table in Table)
_ROWS = (
    _Rows(_TOPICS, "default", "topic", _topic, lambda found: _pairs(found.topics)),
    _version(Table.TOPICS, "topicVersion"),
    _Rows(_GROUPS, "default", "subscriptionGroup", _group, lambda found: _pairs(found.groups)),
    _Rows(_GROUPS, "forbidden", "forbidden", _forbidden, lambda found: _pairs(found.forbidden)),
    _version(Table.GROUPS, "subscriptionGroupVersion"),
    _Rows(_OFFSETS, "default", "consumerOffset", _offset, _offset_pairs),
    _version(Table.OFFSETS, "consumerOffsetVersion"),
)
