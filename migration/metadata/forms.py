"""In which form a broker left its tables: as JSON, or in RocksDB databases.

A broker with ``storeType=defaultRocksDB`` takes the JSON files in once and from then on keeps
topics, groups and consumer offsets in databases; the files stay as they were. A broker with queues
in files reads and writes the files alone. Which of both is the newer one is told by when the files
were written: a broker writes either form every few seconds, and when it stops.

Source: RocketMQ ``BrokerController``, ``RocksDBConfigManager``, ``ConfigRocksDBStorage``,
``ConfigStorage``.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from metadata.model import Form as MetadataForm
from metadata.places import (
    FILES_OF_TABLE,
    SINGLE_FOLDER,
    V1_FOLDERS,
    V2_FOLDER,
    backup_of,
)
from store.errors import os_errors
from store.paths import StorePaths
from store.service.upkeep.database_copy import CURRENT, is_database

_TABLES = {V1_FOLDERS[table]: files for table, files in FILES_OF_TABLE.items()}
"""Database of a table, and the files that hold it otherwise; RocksDB takes in the first."""


class Form(StrEnum):
    """Which form of a table is the newest: that is the one which the last broker wrote."""

    NONE = "none"
    JSON = "json"
    ROCKSDB = "rocksdb"
    """A database that only a broker with ``storeType=defaultRocksDB`` reads."""
    VERSION_2 = "v2"
    """That of ``configManagerVersion=v2``, which reads nothing else whatever its ``storeType``."""


@dataclass(frozen=True, slots=True)
class TableForms:
    """One table of a broker's, and where it lies."""

    name: str
    """Of its own database in version 1."""
    files: tuple[Path, ...]
    """Whether they are there or not."""
    databases: tuple[Path, ...]
    """Those that are there, without that of version 2."""
    newest: Path | None
    """File or database that was written last."""

    @property
    def form(self) -> Form:
        """Return which form counts; the database where both are of the same age."""
        if self.newest is None:
            return Form.NONE
        if self.newest in self.files:
            return Form.JSON
        return Form.ROCKSDB if self.newest in self.databases else Form.VERSION_2

    @property
    def kept(self) -> MetadataForm | None:
        """Return the form of ``metadata`` that counts; ``None``: the table lies nowhere."""
        match self.form:
            case Form.NONE:
                return None
            case Form.JSON:
                return MetadataForm.JSON
            case Form.VERSION_2:
                return MetadataForm.V2
        is_single = self.newest is not None and self.newest.name == SINGLE_FOLDER
        return MetadataForm.SINGLE if is_single else MetadataForm.V1


def table_forms(paths: StorePaths) -> list[TableForms]:
    """Look at topics, groups and consumer offsets; changes nothing.

    Raises:
        StoreIOError: a folder cannot be read.
    """
    folder = paths.topics.parent
    with os_errors("look at the broker's tables", folder):
        return [_forms(folder, name, files) for name, files in _TABLES.items()]


def _forms(folder: Path, name: str, names: tuple[str, ...]) -> TableForms:
    files = tuple(folder / each for each in names)
    databases = [folder / each for each in (name, SINGLE_FOLDER)]
    written = {path: _written_to(path) for path in (*databases, folder / V2_FOLDER)}
    written |= {path: file_written(path) for path in files}
    newest = max(written, key=lambda path: written[path])
    return TableForms(
        name, files, tuple(path for path in databases if written[path] >= 0),
        newest if written[newest] >= 0 else None,
    )  # fmt: skip


def _written_to(database: Path) -> int:
    """Return when a database was written last; to open it read-only writes nothing but ``LOG``."""
    if not is_database(database):
        return -1
    return max(map(_written, filter(_holds_data, database.iterdir())), default=-1)


def _holds_data(path: Path) -> bool:
    if path.name == CURRENT or path.name.startswith("MANIFEST-"):
        return True
    return path.suffix in {".log", ".sst"} and path.stem.isdecimal()


def _written(path: Path) -> int:
    """Return when a file was written, ns; -1: it is not there, or no longer."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def file_written(path: Path) -> int:
    """Return when a JSON file was written, ns, -1 without one.

    A broker that was killed while it wrote the file has left the backup alone.
    """
    written = _written(path)
    return written if written >= 0 else _written(backup_of(path))


def newer_in_database(paths: StorePaths) -> list[TableForms]:
    """Return the tables whose files are older than databases that file brokers do not read."""
    return [table for table in table_forms(paths) if table.form is Form.ROCKSDB]
