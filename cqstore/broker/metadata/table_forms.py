"""Current form of a broker's tables: the one that was written last.

A broker with ``storeType=defaultRocksDB`` merges the JSON files once and then keeps topics, groups
and consumer offsets in databases; the files no longer change. A broker with file queues reads and
writes only the files. Modification times show which form is newer: a broker writes its form every
few seconds, and when it stops.

Source: RocketMQ ``BrokerController``, ``RocksDBConfigManager``, ``ConfigRocksDBStorage``,
``ConfigStorage``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cqstore.broker.metadata.json_form import read_json_file
from cqstore.broker.metadata.locations import (
    FILES_OF_TABLE,
    SINGLE_FOLDER,
    V1_FOLDERS,
    V2_FOLDER,
    names_of,
)
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.rocksdb_v1 import read_single, read_v1
from cqstore.broker.metadata.rocksdb_v2 import read_v2
from cqstore.store.broker_files.file_names import CURRENT, DELAYS_FILE, backup_of
from cqstore.store.errors import StoreError, os_errors
from cqstore.store.path_kind import is_file
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.database_copy import is_database

_READERS = {Form.V1: read_v1, Form.SINGLE: read_single, Form.V2: read_v2}


@dataclass(frozen=True, slots=True)
class TableForms:
    """Files and databases of one table of a broker, and which of them was written last."""

    table: Table
    files: tuple[Path, ...]
    """Paths of the JSON files, which may not exist."""
    databases: tuple[Path, ...]
    """Existing databases, without the database of version 2."""
    newest: Path | None
    """The file or database that was written last."""

    @property
    def name(self) -> str:
        """Return the folder name of the table's database in version 1."""
        return V1_FOLDERS[self.table]

    @property
    def form(self) -> Form | None:
        """Return the newest form, the database if times are equal; ``None`` if no form exists."""
        if self.newest is None:
            return None
        if self.newest in self.files:
            return Form.JSON
        if self.newest not in self.databases:
            return Form.V2
        return Form.SINGLE if self.newest.name == SINGLE_FOLDER else Form.V1

    @property
    def is_in_databases(self) -> bool:
        """Return whether only a broker with ``storeType=defaultRocksDB`` reads the current form.

        Version 2 is read by a broker with ``configManagerVersion=v2`` and any ``storeType``.
        """
        return self.form in {Form.V1, Form.SINGLE}


def table_forms(paths: StorePaths) -> list[TableForms]:
    """Return the forms of topics, groups and consumer offsets; changes nothing.

    Raises:
        StoreIOError: a folder cannot be read.
    """
    folder = paths.config
    with os_errors("read the broker's tables", folder):
        return [_forms(folder, table) for table in Table]


def forms_there(config: Path) -> list[Form]:
    """Return the forms that exist in ``config``, whether or not they can be read."""
    return [form for form in Form if any(_is_there(config / name) for name in names_of(form))]


def read_newest(config: Path, tables: Sequence[TableForms]) -> dict[Table, BrokerMetadata]:
    """Return, for each existing table, the content of the form that was written last.

    Only that table of the returned metadata is valid; unreadable parts of the form are in its
    faults. A torn JSON file is read from its ``.bak``, which is not a fault.
    """
    found: dict[Table, BrokerMetadata] = {}
    databases: dict[Form, BrokerMetadata] = {}
    for each in tables:
        form = each.form
        if form is None:
            continue
        if form is Form.JSON:
            found[each.table] = read_json_file(config, newest_file(config, each.table))
            continue
        if form not in databases:
            databases[form] = _READERS[form](config) or BrokerMetadata(form, config)
        found[each.table] = databases[form]
    return found


def faults_of(table: Table, source: BrokerMetadata, config: Path) -> list[StoreError]:
    """Return the faults of ``source`` that may have made rows of ``table`` unreadable."""
    delays = config / DELAYS_FILE
    others = {config / V1_FOLDERS[each] for each in Table if each is not table}
    return [each for each in source.faults if each.path not in {*others, delays, backup_of(delays)}]


def newest_file(config: Path, table: Table) -> str:
    """Return the file that was written last; offsets may have two files, see ``enableLmq``."""
    names = reversed(FILES_OF_TABLE[table])
    return max(names, key=lambda name: file_written(config / name))


def file_written(path: Path) -> int:
    """Return the time of the last write to a JSON file in ns; -1 without file and backup.

    The backup counts if a broker was killed while writing the file, which then does not exist.
    """
    written = _written(path)
    return written if written >= 0 else _written(backup_of(path))


def newer_in_database(paths: StorePaths) -> list[TableForms]:
    """Return the tables that are newer in databases, which brokers with file queues ignore."""
    return [table for table in table_forms(paths) if table.is_in_databases]


def _forms(folder: Path, table: Table) -> TableForms:
    """Return the locations of a table in each form, and which form was written last."""
    files = tuple(folder / each for each in FILES_OF_TABLE[table])
    databases = [folder / each for each in (V1_FOLDERS[table], SINGLE_FOLDER)]
    written = {path: _written_to(path) for path in (*databases, folder / V2_FOLDER)}
    written |= {path: file_written(path) for path in files}
    newest = max(written, key=lambda path: written[path])
    return TableForms(
        table, files, tuple(path for path in databases if written[path] >= 0),
        newest if written[newest] >= 0 else None,
    )  # fmt: skip


def _is_there(path: Path) -> bool:
    return is_file(path) or is_database(path)


def _written_to(database: Path) -> int:
    """Return the time of the last write to a database; a read-only open writes only ``LOG``."""
    if not is_database(database):
        return -1
    return max(map(_written, filter(_holds_data, database.iterdir())), default=-1)


def _holds_data(path: Path) -> bool:
    if path.name == CURRENT or path.name.startswith("MANIFEST-"):
        return True
    return path.suffix in {".log", ".sst"} and path.stem.isdecimal()


def _written(path: Path) -> int:
    """Return the time of the last write to a file in ns; -1 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1
