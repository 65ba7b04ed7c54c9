"""OwnedTables: the tables of a broker that an open log maintains, in the form the broker reads.

``NextBroker.form`` is the rule. A log whose tables are in another form is converted when it is
opened, as a broker with ``storeType=defaultRocksDB`` imports the JSON files at its start.

Source: RocketMQ ``BrokerController.initializeMetadata``.
"""

from collections.abc import Sequence

from cqstore.broker.conversion.conversion import NextBroker, plan_conversion
from cqstore.broker.metadata.convert import convert
from cqstore.broker.metadata.database_table import DatabaseTable, databases_of
from cqstore.broker.metadata.model import Form, Table
from cqstore.broker.metadata.owned_table import JsonTable, OwnedTable, whole_table
from cqstore.broker.metadata.placing import finish_placing
from cqstore.broker.metadata.table_forms import read_newest, table_forms
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)


class OwnedTables:
    """The topics and consumer offsets of one open log. A service of the store, which ends it."""

    def __init__(self, paths: StorePaths, backends: Sequence[str], config: StoreConfig) -> None:
        """Read the tables, after a conversion if they are in a form that the broker does not read.

        The caller has the store's lock.

        Raises:
            CorruptionError: a table cannot be read completely.
            RefusedStoreError: a table cannot be written in the form that the broker reads.
            StoreIOError: a table cannot be read, or the conversion cannot be written.
        """
        self.form = _converted(paths, NextBroker(backends, config))
        """Form in which the tables are maintained."""
        self._databases = {} if self.form is Form.JSON else databases_of(paths, self.form)
        sources = read_newest(paths.config, table_forms(paths))

        def opened(table: Table) -> OwnedTable:
            source = whole_table(paths, table, sources.get(table))
            if self.form is Form.JSON:
                return JsonTable(paths, table, source)
            return DatabaseTable(paths, table, self.form, source, self._databases[table])

        self.topics = opened(Table.TOPICS)
        self.offsets = opened(Table.OFFSETS)

    def stop(self) -> None:
        """Close the databases: later writes are refused. May be called again."""
        for each in self._databases.values():
            each.close()


def _converted(paths: StorePaths, broker: NextBroker) -> Form:
    """Convert the tables to the form that ``broker`` reads, and return that form.

    Tables that this form cannot store stay in JSON files, and a warning is logged: a broker
    imports the files at its start.

    Raises:
        CorruptionError, StoreIOError: see ``convert``.
    """
    form = broker.form([table for table in table_forms(paths) if table.form is not None])
    if form is None:
        form = Form.V2
        config = broker.config.model_copy(update={"config_manager_version": form.value})
        broker = NextBroker(broker.backends, config)
    if form is Form.JSON:
        return form
    if sentence := finish_placing(paths):
        _LOG.warning("%s", sentence)
    try:
        plan = plan_conversion(paths, broker)
    except RefusedStoreError as exc:
        _LOG.warning("topics and consumer offsets are not kept in the form %s: %s", form, exc)
        return Form.JSON
    if plan is not None:
        away = convert(paths, plan.made)
        _LOG.warning(
            "topics, groups and consumer offsets were converted to the form %s, which the settings"
            " specify; the former files are in %s", form, away,
        )  # fmt: skip
    return form
