"""OwnedTable: a table of a broker's metadata, maintained by the process with the store's lock.

The owner reads all rows once and then passes the changed ones. ``JsonTable`` writes them as JSON
files, which a broker with ``storeType=default`` reads. ``database_table`` has the other forms.

Source: RocketMQ ``ConfigManager``, ``RocksDBConsumerOffsetManager.merge``, ``DataVersion``.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.json_form import other_fields
from cqstore.broker.metadata.json_repair import next_version
from cqstore.broker.metadata.json_text import FileText, Former
from cqstore.broker.metadata.locations import FILES_OF_TABLE
from cqstore.broker.metadata.model import (
    FIELDS_OF_TABLE,
    BrokerMetadata,
    Changes,
    DataVersion,
    Form,
    Table,
)
from cqstore.broker.metadata.table_forms import faults_of, forms_there, read_newest, table_forms
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.store.broker_files.file_names import is_either_there, replace_both
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError, os_errors
from cqstore.store.files import make_folder
from cqstore.store.paths import StorePaths

Rows = dict[str, Any]
"""Key → row, as in ``Changes``."""


class OwnedTable(Protocol):
    """One table. One thread at a time."""

    @property
    def form(self) -> Form:
        """Return the form in which the table is written."""

    def take(self) -> Rows:
        """Return the rows that were read, which then belong to the caller. Call it once."""

    def forget(self, keys: TopicKeys) -> bool:
        """Remove ``keys`` where the caller has no rows; return whether a ``write`` must follow."""

    def write(self, changes: Changes) -> None:
        """Write the changed rows, durably; all other rows stay.

        After an error or a kill, all changes are there or none.

        Raises:
            StoreIOError: they cannot be written.
            CorruptionError: the database is damaged.
        """

    def released(self) -> AbstractContextManager[object]:
        """Let others replace the table's files in the block; a ``write`` waits for its end."""


class JsonTable:
    """A table in JSON files; unknown fields are kept. Each write replaces the whole file.

    Each row is encoded once, when it changes.
    """

    def __init__(
        self, paths: StorePaths, table: Table, source: BrokerMetadata | None = None
    ) -> None:
        """Use the rows of ``source``, by default of the newest form; changes nothing.

        Raises:
            CorruptionError: the table cannot be read completely.
            RefusedStoreError: the newest form is version 2, and a broker that reads it ignores
                the files.
            StoreIOError: the table cannot be read.
        """
        self._config = config = paths.config
        self._table = table
        found = source or read_table(paths, table)
        if found.form is Form.V2:
            raise RefusedStoreError(
                f"cannot write the broker's {table} as JSON: they are in the form v2. Open the log"
                " with configManagerVersion=v2, or convert them first (cqstore meta convert)",
                path=found.path,
            )
        names = FILES_OF_TABLE[table]
        self._files = {
            name: FileText(name, other_fields(config, name))
            for name in names
            if name == names[0] or is_either_there(config / name)
        }
        self._is_written = not any(is_either_there(config / name) for name in names)
        self._rows: Rows = getattr(found, FIELDS_OF_TABLE[table][0])
        self._last = last_version(paths, table, found)
        self._change(self._rows, self._last)

    @property
    def form(self) -> Form:
        """Return JSON."""
        return Form.JSON

    def take(self) -> Rows:
        """Return the rows; the table keeps only their text."""
        rows, self._rows = self._rows, {}
        return rows

    def forget(self, keys: TopicKeys) -> bool:
        """Remove ``keys`` from the unknown fields.

        Until the first write, a file or a backup may have rows that the caller does not have.
        """
        is_other = [file.forget(keys) for file in self._files.values()]
        return any(is_other) or not self._is_written

    def write(self, changes: Changes) -> None:
        """Replace the files and their ``.bak``; each has its old or its new content."""
        version = following(self._last)
        former = self._change(changes, version)
        try:
            for name, file in self._files.items():
                path = self._config / name
                with os_errors("write the broker's metadata file", path):
                    make_folder(self._config)
                    replace_both(path, file.text())
        except BaseException:
            for file, each in zip(self._files.values(), former, strict=True):
                file.restore(each)
            raise
        self._is_written, self._last = True, version

    def _change(self, changes: Changes, version: DataVersion) -> list[Former]:
        """Change the text of each file; return what was replaced."""
        made = BrokerMetadata(Form.JSON, self._config, versions={self._table: version})
        rows = {key: row for key, row in changes.items() if row}
        setattr(made, FIELDS_OF_TABLE[self._table][0], rows)
        return [file.change(made, changes) for file in self._files.values()]

    def released(self) -> AbstractContextManager[object]:
        """Return a block without effect: no file is open between writes."""
        return nullcontext()


def following(last: DataVersion) -> DataVersion:
    """Return the version after ``last``."""
    return DataVersion(last.state_version, time.time_ns() // 1_000_000, last.counter + 1)


def read_table(paths: StorePaths, table: Table) -> BrokerMetadata:
    """Return a table in its newest form, see ``whole_table``; empty if no form exists."""
    sources = read_newest(paths.config, table_forms(paths))
    return whole_table(paths, table, sources.get(table))


def whole_table(paths: StorePaths, table: Table, source: BrokerMetadata | None) -> BrokerMetadata:
    """Return ``source``, from which ``table`` was read; ``None`` is an empty table.

    Raises:
        CorruptionError, StoreIOError: the table cannot be read completely.
    """
    if source is None:
        return BrokerMetadata(Form.JSON, paths.config)
    for fault in faults_of(table, source, paths.config):
        if isinstance(fault, StoreIOError):
            raise fault
        raise CorruptionError(
            f"the broker's {table} cannot be read from the form {source.form}: {fault.reason}"
            " (cqstore meta repair)",
            path=fault.path,
        ) from fault
    return source


def last_version(paths: StorePaths, table: Table, found: BrokerMetadata) -> DataVersion:
    """Return the version with the highest counter of all forms; the next version exceeds it.

    A broker imports a form whose counter is higher than that of its own form.
    """
    if forms_there(paths.config) in ([], [found.form]):
        return found.versions.get(table, DataVersion())
    state, timestamp, counter = next_version(read_forms(paths), table)
    return DataVersion(state, timestamp, counter - 1)
