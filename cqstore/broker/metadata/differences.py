"""Differences between the tables of two brokers, independent of the form of each.

Source: RocketMQ ``TopicConfigManager``, ``SubscriptionGroupManager``, ``ConsumerOffsetManager``,
``ConsumerFilterManager``, ``ConsumerOrderInfoManager``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cqstore.broker.metadata.json_form import fault_of, read_delays
from cqstore.broker.metadata.model import FIELDS_OF_TABLE, BrokerMetadata, Form, Table
from cqstore.broker.metadata.offset_keys import fitting_readings, is_own_group
from cqstore.broker.metadata.table_forms import (
    faults_of,
    forms_there,
    newest_file,
    read_newest,
    table_forms,
)
from cqstore.store.broker_files.fastjson import object_in
from cqstore.store.broker_files.file_names import DELAYS_FILE
from cqstore.store.errors import CorruptionError, StoreError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.record.topic_names import is_exempt

_MAX_BYTES = 512 << 20
_TABLES = {name: table for table, names in FIELDS_OF_TABLE.items() for name in names}
_FILES = {"consumerFilter.json": "filterDataByTopic", "consumerOrderInfo.json": "table"}
"""Tables that are JSON files with every form."""
_DELAYS = "delay_offsets"
_MADE = {"topics": is_exempt, "groups": is_own_group}
"""Table → check for names that a broker creates at each start; not every form keeps them."""
Rows = dict[str, object]


@dataclass(slots=True)
class BrokerTables:
    """The tables in one folder ``config``, each from the form that was written last."""

    forms: dict[Table, Form]
    """Table → the form it was read from; missing tables are left out."""
    older: list[Form]
    """Existing forms that no table was read from."""
    found: BrokerMetadata
    """The content of all tables."""
    files: dict[str, Rows] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """Table → sentence that names its form and why it cannot be read completely."""
    from_backup: list[str] = field(default_factory=list)
    """A sentence for each file that a broker reads from its ``.bak``."""

    def form_of(self, name: str) -> Form | None:
        """Return the form that the table ``name`` was read from; ``None`` if it does not exist."""
        return self.forms.get(_TABLES[name])

    def sentences(self) -> list[str]:
        """Return the reasons for unreadable tables, and the files read from a backup."""
        return [*self.sentences_of(*self.unread), *self.from_backup]

    def sentences_of(self, *names: str) -> list[str]:
        """Return why these tables cannot be read, without duplicate sentences."""
        return [*dict.fromkeys(self.unread[name] for name in names if name in self.unread)]

    def rows(self, name: str) -> Rows:
        """Return name → entry of one table; offsets by queue id, as in JSON."""
        if name in _FILES:
            return self.files.get(name, {})
        table = getattr(self.found, name)
        if name in {"topics", "groups"}:
            return dict(table)
        if name == _DELAYS:
            return {str(level): offset for level, offset in table.items()}
        return {key: {str(each): row[each] for each in row} for key, row in table.items() if row}

    def shown(self) -> str:
        """Return a short text with the forms."""
        forms = set(self.forms.values())
        if len(forms) > 1:
            text = ", ".join(f"{table} {form}" for table, form in self.forms.items())
        else:
            text = next(iter(forms), "none")
        return text + (f" (older: {', '.join(self.older)})" if self.older else "")

    def as_json(self) -> dict[str, object]:
        """Return the forms by name."""
        return {
            "forms": {table.value: form.value for table, form in self.forms.items()},
            "olderForms": [form.value for form in self.older],
        }


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """One name whose entries differ; ``None``: that side has no entry."""

    table: str
    name: str
    one: object
    other: object

    def as_json(self) -> dict[str, object]:
        """Return the fields under their names in the report."""
        return {"table": self.table, "name": self.name, "a": self.one, "b": self.other}


def read_tables(config: Path) -> BrokerTables:
    """Return the tables in the folder ``config``. Changes nothing.

    Raises:
        StoreIOError: the folder cannot be read.
    """
    sources = read_newest(config, table_forms(StorePaths(config.parent)))
    forms = {table: source.form for table, source in sources.items()}
    older = [form for form in forms_there(config) if form not in forms.values()]
    made = BrokerTables(forms, older, BrokerMetadata(Form.JSON, config))
    for table, source in sources.items():
        names = FIELDS_OF_TABLE[table]
        for name in names:
            setattr(made.found, name, getattr(source, name))
        if faults := faults_of(table, source, config):
            sentence = f"the {table} cannot be read from the form {source.form}: {faults[0]}"
            made.unread |= dict.fromkeys(names, sentence)
        elif source.form is Form.JSON:
            made.from_backup += _from_backup(config, table)
    _read_delays(config, made)
    for name, key in _FILES.items():
        try:
            made.files[name] = _read_file(config / name, key)
        except StoreError as exc:
            made.unread[name] = f"{name} cannot be read: {exc}"
    return made


def compare_tables(one: BrokerTables, other: BrokerTables) -> list[EntryDifference]:
    """Return the differences, table by table and sorted by name.

    A table that exists on only one side counts as empty on the other side. An unreadable table is
    not compared. Data versions are ignored. Topics and groups that a broker creates at each start
    are compared only if both sides have the same form.
    """
    found: list[EntryDifference] = []
    for name in (*_TABLES, _DELAYS, *_FILES):
        if name in one.unread or name in other.unread or _has_no_place(name, one, other):
            continue
        mine, others = one.rows(name), other.rows(name)
        names = sorted(mine.keys() | others.keys())
        if name in _MADE and one.form_of(name) is not other.form_of(name):
            names = [each for each in names if not _MADE[name](each)]
        for each in names:
            found += _unlike(name, each, mine.get(each), others.get(each))
    return found


def not_compared(one: BrokerTables, other: BrokerTables) -> Iterator[str]:
    """Yield a sentence for each table of one side that the other side's form cannot store."""
    for name in _TABLES:
        if _has_no_place(name, one, other) and (one.rows(name) or other.rows(name)):
            forms = f"{one.form_of(name) or 'none'} and {other.form_of(name) or 'none'}"
            yield f"{name} are not compared: one of the forms {forms} cannot store them"


def offsets_by_queue(tables: BrokerTables) -> dict[tuple[str, str, int], int]:
    """Return (topic, group, queue id) → offset, for every reading of each key."""
    found = tables.found
    return {
        (topic, group, queue_id): offset
        for key, row in found.offsets.items()
        for topic, group in fitting_readings(key, found.topics, found.groups)
        for queue_id, offset in row.items()
    }


def _has_no_place(name: str, one: BrokerTables, other: BrokerTables) -> bool:
    """Return whether table ``name`` cannot be compared: the form of one side cannot store it.

    Permissions denied to groups (``forbidden``) are in every form except version 2 of RocksDB. The
    offsets of pull consumers (``pull_offsets``) are only in version 2.
    """
    if name not in {"forbidden", "pull_offsets"}:
        return False
    return (one.form_of(name) is Form.V2) != (other.form_of(name) is Form.V2)


def _unlike(table: str, name: str, mine: object, others: object) -> list[EntryDifference]:
    if mine == others:
        return []
    if isinstance(mine, dict) and isinstance(others, dict):  # report only the fields that differ
        keys = [key for key in {**mine, **others} if mine.get(key) != others.get(key)]
        mine, others = ({key: each.get(key) for key in keys} for each in (mine, others))
    return [EntryDifference(table, name, mine, others)]


def _from_backup(config: Path, table: Table) -> Iterator[str]:
    """Yield a sentence if a table was read from its backup."""
    name = newest_file(config, table)
    try:
        fault = fault_of(name, config / name)
    except FileNotFoundError:  # a broker was killed while it wrote the file
        return
    if fault is not None:
        yield f"{name} cannot be read, its .bak was used instead: {fault}"


def _read_delays(config: Path, made: BrokerTables) -> None:
    read_delays(config, made.found)
    faults = made.found.faults
    if len(faults) > 1:
        made.unread[_DELAYS] = f"{DELAYS_FILE} cannot be read: {faults[0]}"
    elif faults and exists(config / DELAYS_FILE):
        made.from_backup.append(
            f"{DELAYS_FILE} cannot be read, its .bak was used instead: {faults[0]}"
        )


def _read_file(path: Path, key: str) -> Rows:
    """Return the table ``key`` of a JSON file; empty if the file or table does not exist.

    Raises:
        CorruptionError: the file is not valid.
    """
    with os_errors("read the broker's metadata file", path):
        if not exists(path):
            return {}
        data = read_file(path, _MAX_BYTES)
    whole = object_in(path, data) if data else {}
    table = whole.get(key)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise CorruptionError(f"{key!r} is not a JSON object", path=path)
    return table
