"""DatabaseTable: an owned table in RocksDB, in which each write has only the changed rows.

The rows of one write and the table's new data version are in one batch, which is durable when the
write returns. So a killed process leaves the table as after one of its writes. The files are opened
by the first write and stay open. A table in a database of its own is independent of the others; the
forms single and v2 share one database.

A broker writes all rows of version 1 every five seconds, unless
``persistConsumerOffsetIncrementally`` is set (RocketMQ 5.5).

Source: RocketMQ ``RocksDBConsumerOffsetManager.persist``, ``RocksDBTopicConfigManager``,
``ConsumerOffsetManagerV2``, ``TopicConfigManagerV2``.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from cqstore.broker.metadata import rocksdb_v1, rocksdb_v2
from cqstore.broker.metadata.locations import SINGLE_FOLDER, V1_FOLDERS, V2_FOLDER
from cqstore.broker.metadata.model import (
    FIELDS_OF_TABLE,
    BrokerMetadata,
    Changes,
    DataVersion,
    Form,
    Table,
)
from cqstore.broker.metadata.owned_table import Rows, following, last_version
from cqstore.broker.metadata.sorted_keys import SortedKeys
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.cq_rocksdb.engine.raw_writer import RawWriter, Row
from cqstore.cq_rocksdb.engine.shared_writer import SharedWriter
from cqstore.store.paths import StorePaths


class DatabaseTable:
    """A table in one of the forms in RocksDB; see ``OwnedTable``."""

    def __init__(
        self, paths: StorePaths, table: Table, form: Form, source: BrokerMetadata,
        database: SharedWriter,
    ) -> None:  # fmt: skip
        """Use the rows of ``source``, which has the form ``form`` or is empty; changes nothing.

        Raises:
            CorruptionError, StoreIOError: another form cannot be read.
        """
        self._table, self.form, self._database = table, form, database
        self._last = last_version(paths, table, source)
        self._rows: Rows = getattr(source, FIELDS_OF_TABLE[table][0])
        self._names = BrokerMetadata(form, source.path)
        self._pulls, self._forgotten = SortedKeys(()), set[str]()
        if form is Form.V2:
            self._names.topics = {name: {} for name in source.topics}
            self._names.groups = {name: {} for name in source.groups}
            self._pulls = SortedKeys(source.pull_offsets)

    def take(self) -> Rows:
        """Return the rows; the table keeps none."""
        rows, self._rows = self._rows, {}
        return rows

    def forget(self, keys: TopicKeys) -> bool:
        """Remove the pull offsets of ``keys``, which only version 2 has, with the next write."""
        gone = {key for key in self._pulls.of_topics(keys.topics) if key in keys}
        self._forgotten |= gone
        return bool(gone)

    def write(self, changes: Changes) -> None:
        """Write the changed rows and the next version in one batch."""
        every = dict.fromkeys(self._forgotten) | {**changes}
        version = following(self._last)
        self._database.write(lambda writer: self._batch(every, version, writer))
        self._last = version
        self._pulls.remove(self._forgotten)
        self._forgotten = set()

    def released(self) -> AbstractContextManager[object]:
        """Close the database until the end of the block."""
        return self._database.released()

    def _batch(self, changes: Changes, version: DataVersion, writer: RawWriter) -> Iterator[Row]:
        if self.form is Form.V2:
            return rocksdb_v2.changed_rows(self._table, changes, version, self._names, writer.keys)
        single = self.form is Form.SINGLE
        return rocksdb_v1.changed_rows(self._table, changes, version, single=single)


def databases_of(paths: StorePaths, form: Form) -> dict[Table, SharedWriter]:
    """Return the database of each table in a form in RocksDB; single and v2 have one for all."""
    if form is Form.V1:
        return {
            table: SharedWriter(paths, name, rocksdb_v1.families_of(table, single=False))
            for table, name in V1_FOLDERS.items()
        }
    if form is Form.SINGLE:
        families = {each for table in Table for each in rocksdb_v1.families_of(table, single=True)}
        return dict.fromkeys(Table, SharedWriter(paths, SINGLE_FOLDER, families))
    return dict.fromkeys(Table, SharedWriter(paths, V2_FOLDER))
