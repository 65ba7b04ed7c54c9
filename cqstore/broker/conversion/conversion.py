"""Conversion of a broker's tables to the form that a broker with the other backend reads.

Each table is taken from the form that was written last. The converter of ``metadata`` writes the
new form to a temporary folder, compares every field, and puts it in place with its own journal.

If the next broker reads databases, the JSON files stay in place, as in RocketMQ. Their change
counters are not above those of the databases, so no broker merges them, and a broker started with
the former ``storeType`` finds them. If the next broker reads JSON, the databases are moved to
``cqstore/replaced``, because stale databases would hide newer files.

Source: RocketMQ ``RocksDBConfigManager``, ``RocksDBConsumerOffsetManager.merge``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.prepare import PutAway, prepare_tables, reads_databases
from cqstore.broker.metadata.convert import Droppable, convert, dropped, fitted
from cqstore.broker.metadata.json_form import UNKNOWN_FIELDS_FOUND, unknown_fields
from cqstore.broker.metadata.locations import FILES_OF_TABLE, V1_FOLDERS
from cqstore.broker.metadata.model import FIELDS_OF_TABLE, BrokerMetadata, Form, Remark, Table
from cqstore.broker.metadata.placing import finish_placing
from cqstore.broker.metadata.table_forms import (
    TableForms,
    newer_in_database,
    read_newest,
    table_forms,
)
from cqstore.store.broker_files.file_names import LMQ_OFFSETS_FILE, is_either_there
from cqstore.store.errors import RefusedStoreError, StoreError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig

CONVERTING, CONVERTED = "converting tables", "converted tables"
"""Steps in a journal; each is recorded with the facts of ``TablesConversion.facts``."""
Note = Callable[[str, dict[str, object]], object]
"""Appends a step and its facts to a journal, durably."""


def _no_journal(_step: str, _facts: dict[str, object]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class NextBroker:
    """The broker that will start on a store, and the losses that its operator accepts."""

    backends: Sequence[str]
    """Backends of its queues."""
    config: StoreConfig
    without: Collection[AcceptedLoss] = ()
    accept_older_tables: bool = False
    """Do not convert newer tables in RocksDB to JSON; the older files stay unchanged."""

    def form(self, tables: Sequence[TableForms]) -> Form | None:
        """Return the form that the broker reads; ``None``: it probably continues with version 2.

        Unless the settings specify ``configManagerVersion`` or ``useSingleRocksDBForAllConfigs``,
        the values of the last broker are assumed.
        """
        there = {table.form for table in tables}
        version, is_single = self.config.config_manager_version, self.config.single_metadata
        if version == Form.V2:
            return Form.V2
        if version is None and Form.V2 in there:
            return None
        if not reads_databases(self.backends):
            return Form.JSON
        if is_single is None:
            is_single = Form.SINGLE in there
        return Form.SINGLE if is_single else Form.V1

    @property
    def droppable(self) -> list[Droppable]:
        """Return the tables that may be dropped if the form cannot store them."""
        return [each for each in Droppable if each.value in set(self.without)]


@dataclass(frozen=True, slots=True)
class TablesConversion:
    """A planned conversion: source forms, target form and converted metadata."""

    made: BrokerMetadata
    sources: dict[Table, Form]
    """Table → the form it is read from; missing tables are left out."""
    dropped: list[str]

    def facts(self) -> dict[str, object]:
        """Return the facts of the conversion under their names in reports and journals."""
        made = self.made
        return {
            "from": {table.value: form.value for table, form in self.sources.items()},
            "to": made.form.value, "topics": len(made.topics), "groups": len(made.groups),
            "offsets": sum(map(len, made.offsets.values())), "dropped": self.dropped,
        }  # fmt: skip

    def without_tables(self) -> "ConversionFacts":
        """Return what is known without the tables, which can be large."""
        return ConversionFacts(self.facts(), self.made.remarks, self.sources)


@dataclass(slots=True)
class TablesDone:
    """Report of the changes to a broker's tables: sentences for people, and facts."""

    sentences: list[str] = field(default_factory=list)
    converted: dict[str, object] = field(default_factory=dict)
    """Facts of the conversion, and ``movedTo``; empty if no conversion was needed."""
    older: list[str] = field(default_factory=list)
    """Tables whose files are older than RocksDB's, although the next broker reads the files."""


def plan_conversion(paths: StorePaths, broker: NextBroker) -> TablesConversion | None:
    """Return the planned conversion; ``None`` if the form is already right. Read-only.

    Raises:
        RefusedStoreError: a form is damaged, or the next form cannot store a part of it.
        StoreIOError: a folder cannot be read.
    """
    tables = [table for table in table_forms(paths) if table.form is not None]
    form = broker.form(tables)
    if form is None or all(table.form is form for table in tables):
        return None
    if form is Form.JSON and broker.accept_older_tables:
        return None
    found, sources = _newest(paths.config, tables)
    out: list[str] = [each.value for each in dropped(found, form, broker.droppable)]
    if unknown := _unknown_fields(paths, sources, form):
        if AcceptedLoss.UNKNOWN_FIELDS not in broker.without:
            raise RefusedStoreError(
                f"{UNKNOWN_FIELDS_FOUND}: {', '.join(unknown)}. To leave them out, use"
                f" --without {AcceptedLoss.UNKNOWN_FIELDS}",
                path=paths.config,
            )
        out += unknown
    try:
        made = fitted(found, form, broker.droppable)
    except RefusedStoreError as exc:
        raise RefusedStoreError(f"{exc}{_way_on(found, form)}") from exc
    made.raise_counters()
    return TablesConversion(made, sources, out)


@dataclass(frozen=True, slots=True)
class ConversionFacts:
    """What is known of a planned conversion without its tables, which can be large."""

    shown: dict[str, object]
    """``TablesConversion.facts``."""
    remarks: dict[Remark, list[str]]
    sources: dict[Table, Form]


class PlannedConversion:
    """The planned conversion of one store's tables, which are read once however often it is used.

    The tables must not change meanwhile.
    """

    def __init__(self, paths: StorePaths, broker: NextBroker) -> None:
        self.broker = broker
        self._paths = paths
        self._found: tuple[ConversionFacts | None, StoreError | None] | None = None

    def facts(self) -> ConversionFacts | None:
        """Return the facts of the conversion; ``None`` if the form is already right. Read-only.

        Raises:
            StoreError: as for ``plan_conversion``.
        """
        if self._found is None:
            try:
                plan = plan_conversion(self._paths, self.broker)
            except StoreError as exc:
                self._found = None, exc
            else:
                self._found = plan.without_tables() if plan is not None else None, None
        found, error = self._found
        if error is not None:
            raise error
        return found


def bring_tables(
    paths: StorePaths, broker: NextBroker, put_away: PutAway, note: Note = _no_journal
) -> TablesDone:
    """Convert the tables to the form that ``broker`` reads; a second call changes nothing.

    The caller has the store's lock. If the process is killed at any step, either the old or the new
    form is complete, and the next call continues.

    Args:
        paths: paths of the store, on which no broker runs.
        broker: the next broker.
        put_away: called with each database that is older than the files.
        note: appends to the journal; called before and after a conversion.

    Raises:
        RefusedStoreError: see ``plan_conversion``; raised before a byte is changed.
        CorruptionError, StoreIOError: see ``prepare_tables`` and ``convert``.
    """
    done = TablesDone()
    if sentence := finish_placing(paths):
        done.sentences.append(sentence)
    plan_conversion(paths, broker)  # refuse before the files are changed
    lmq = broker.config.enable_lmq
    done.sentences += prepare_tables(paths, broker.backends, put_away, lmq=lmq)
    if plan := plan_conversion(paths, broker):
        done.sentences += plan.made.sentences()
        note(CONVERTING, plan.facts())
        is_json = plan.made.form is Form.JSON
        lmq = is_json and (lmq or is_either_there(paths.config / LMQ_OFFSETS_FILE))
        away = convert(paths, plan.made, lmq=lmq, keep=() if is_json else (Form.JSON,))
        done.converted = plan.facts() | {"movedTo": str(away)}
        note(CONVERTED, done.converted)
    if not reads_databases(broker.backends):
        done.older = [table.name for table in newer_in_database(paths)]
    return done


def _newest(config: Path, tables: Sequence[TableForms]) -> tuple[BrokerMetadata, dict[Table, Form]]:
    """Return each table from the form that was written last, and the name of that form."""
    found, sources = BrokerMetadata(Form.JSON, config), dict[Table, Form]()
    for table, source in read_newest(config, tables).items():
        for fault in source.faults:
            if isinstance(fault, StoreIOError):
                raise fault
            raise RefusedStoreError(
                f"cannot convert the broker's {V1_FOLDERS[table]}: {fault}. Repair JSON files with"
                " cqstore meta repair, or use --accept-older-tables to keep the JSON files"
                " unchanged", path=source.path,
            )  # fmt: skip
        for name in FIELDS_OF_TABLE[table]:
            setattr(found, name, getattr(source, name))
        found.remarks |= source.remarks if source.form is Form.JSON else {}
        if table in source.versions:
            found.versions[table] = source.versions[table]
        sources[table] = source.form
    return found, sources


def _unknown_fields(paths: StorePaths, sources: dict[Table, Form], form: Form) -> list[str]:
    """Return the fields of the JSON files to convert that no other form can store."""
    if form is Form.JSON:
        return []
    names = {
        name for table, source in sources.items() if source is Form.JSON
        for name in FILES_OF_TABLE[table]
    }  # fmt: skip
    found = unknown_fields(paths.config)
    return [each for each in found if each.partition(":")[0] in names]


def _way_on(found: BrokerMetadata, form: Form) -> str:
    names = [each.value for each in dropped(found, form, list(Droppable))]
    return f". To leave them out, use --without {' --without '.join(names)}" if names else ""
