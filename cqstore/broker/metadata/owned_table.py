"""OwnedTable: a table of a broker's metadata, maintained by the process with the store's lock.

The table is written as JSON files, which every broker reads except with
``configManagerVersion=v2``. A broker that keeps its tables in databases merges a file whose counter
is higher.

Source: RocketMQ ``ConfigManager``, ``RocksDBConsumerOffsetManager.merge``, ``DataVersion``.
"""

import time

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.json_form import other_fields
from cqstore.broker.metadata.json_repair import next_version
from cqstore.broker.metadata.json_writer import content_of
from cqstore.broker.metadata.locations import FILES_OF_TABLE
from cqstore.broker.metadata.model import (
    FIELDS_OF_TABLE,
    BrokerMetadata,
    DataVersion,
    Form,
    Json,
    Offsets,
    Table,
)
from cqstore.broker.metadata.table_forms import faults_of, forms_there, read_newest, table_forms
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.store.broker_files.fastjson import encoded
from cqstore.store.broker_files.file_names import is_either_there, replace_both
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError, os_errors
from cqstore.store.files import make_folder
from cqstore.store.paths import StorePaths


class OwnedTable:
    """One table, read from the form that was written last; unknown fields are kept.

    The caller has the store's lock. One thread writes.
    """

    def __init__(self, paths: StorePaths, table: Table) -> None:
        """Read ``table``; changes nothing.

        Raises:
            CorruptionError: the table cannot be read completely.
            RefusedStoreError: the table is in a form that this class cannot write.
            StoreIOError: the table cannot be read.
        """
        self._config = config = paths.config
        self._table = table
        names = FILES_OF_TABLE[table]
        self._names = [each for each in names if each == names[0] or is_either_there(config / each)]
        self._others = {name: other_fields(config, name) for name in self._names}
        self.found = _read(paths, table)
        """The rows that were read."""
        self._last = _last_version(paths, table)

    def forget(self, keys: TopicKeys) -> bool:
        """Remove ``keys`` from the unknown fields; return whether a field changed."""
        others = {name: keys.removed_from(content) for name, content in self._others.items()}
        is_other, self._others = others != self._others, others
        return is_other

    def write(self, rows: dict[str, Json] | Offsets) -> None:
        """Replace the table by ``rows``, durably; its ``.bak`` too.

        If interrupted, each file has its old or its new content.

        Raises:
            StoreIOError: a file cannot be written.
        """
        last = self._last
        version = DataVersion(last.state_version, time.time_ns() // 1_000_000, last.counter + 1)
        made = BrokerMetadata(Form.JSON, self._config, versions={self._table: version})
        setattr(made, FIELDS_OF_TABLE[self._table][0], rows)
        for name in self._names:
            data = encoded(self._others[name] | content_of(name, made))
            path = self._config / name
            with os_errors("write the broker's metadata file", path):
                make_folder(self._config)
                replace_both(path, data)
        self._last = version


def _read(paths: StorePaths, table: Table) -> BrokerMetadata:
    """Return a table in its newest form; empty if no form exists.

    Raises:
        RefusedStoreError: this class cannot write that form.
        CorruptionError, StoreIOError: the table cannot be read.
    """
    config = paths.config
    source = read_newest(config, table_forms(paths)).get(table)
    if source is None:
        return BrokerMetadata(Form.JSON, config)
    if source.form is Form.V2:
        raise RefusedStoreError(
            f"cannot write the broker's {table}: the form v2 is not supported. Convert them first"
            " (cqstore meta convert)", path=source.path,
        )  # fmt: skip
    for fault in faults_of(table, source, config):
        if isinstance(fault, StoreIOError):
            raise fault
        raise CorruptionError(
            f"the broker's {table} cannot be read from the form {source.form}: {fault.reason}"
            " (cqstore meta repair)",
            path=fault.path,
        ) from fault
    return source


def _last_version(paths: StorePaths, table: Table) -> DataVersion:
    """Return the version with the highest counter of all forms; the next version exceeds it."""
    if not forms_there(paths.config):
        return DataVersion()
    state, timestamp, counter = next_version(read_forms(paths), table)
    return DataVersion(state, timestamp, counter - 1)
