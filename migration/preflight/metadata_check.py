"""Find what a move does with the broker's tables and other files of the store's folder.

Source: RocketMQ ``BrokerController``; see ``cqstore.broker.conversion``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cqstore.broker.conversion.conversion import PlannedConversion
from cqstore.broker.conversion.prepare import reads_databases
from cqstore.broker.conversion.table_files import DATABASES
from cqstore.broker.conversion.versions import table_doubts
from cqstore.broker.metadata.model import REMARKS, Form, Remark
from cqstore.broker.metadata.table_forms import TableForms, file_written, table_forms
from cqstore.migration.preflight.preflight_report import PreflightFinding, Severity, finding
from cqstore.store.broker_files.file_names import (
    CONFIG_FOLDER,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TIMER_LOG,
    TIMER_WHEEL,
)
from cqstore.store.errors import StoreError
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend, backend_names

_VERSION_KEY, _VERSION_2 = "configManagerVersion", "v2"
_SINGLE_KEY = "useSingleRocksDBForAllConfigs"
_BROUGHT = {CONFIG_FOLDER, TIMER_WHEEL, TIMER_LOG, *DATABASES}
"""Names, or first parts of names, below the root that a move copies besides log and queues."""


def table_findings(
    paths: StorePaths, to: str, values: Mapping[str, Any]
) -> Iterator[PreflightFinding]:
    """Yield findings about the tables in a move to backend ``to``. Changes nothing.

    Args:
        paths: paths of the store.
        to: target backend.
        values: settings of the next broker; empty if they are unknown.

    Raises:
        StoreIOError: a folder cannot be read.
    """
    tables = table_forms(paths)
    yield from _version_2(tables, values)
    in_json = [table for table in tables if table.form is Form.JSON]
    if reads_databases([to]):
        yield from _older_databases(in_json)
        yield from _light_queues(in_json)
    yield from _in_doubt(paths)
    yield from _not_brought(paths)


def _version_2(tables: list[TableForms], values: Mapping[str, Any]) -> Iterator[PreflightFinding]:
    """Yield a finding if tables are in a form that a broker with these settings does not read."""
    there = any(table.form is Form.V2 for table in tables)
    is_set = values.get(_VERSION_KEY, "").lower() == _VERSION_2
    if there and not is_set:
        yield finding(
            "tables-in-version-2", Severity.WARN,
            "The broker's tables are in config/rdb, which a broker reads only with"
            " configManagerVersion=v2: without it, the broker uses older topics, groups and"
            " offsets.",
        )  # fmt: skip


def conversion_findings(
    paths: StorePaths, conversion: PlannedConversion
) -> Iterator[PreflightFinding]:
    """Yield findings about the tables that a switch converts, or why it would refuse to."""
    try:
        found = conversion.facts()
    except StoreError as exc:
        yield finding(
            "tables-not-convertible", Severity.REFUSE,
            f"The broker's topics, groups and offsets cannot be converted: {exc}.",
        ).at(exc.path or paths.config)  # fmt: skip
        return
    if found is not None:
        for kind, names in found.remarks.items():
            severity = Severity.WARN if kind is Remark.OLDER_BACKUP else Severity.INFO
            sentence = f"{REMARKS[kind][0].upper()}{REMARKS[kind][1:]}: {', '.join(names)}."
            yield finding(f"tables-{kind}", severity, sentence)
        facts = found.shown
        sources = ", ".join(f"{table} from {form}" for table, form in found.sources.items())
        yield finding(
            "tables-converted", Severity.INFO,
            f"The move converts {sources} to form {facts['to']}: {facts['topics']} topics,"
            f" {facts['groups']} groups, {facts['offsets']} offsets.",
        )  # fmt: skip


def _in_doubt(paths: StorePaths) -> Iterator[PreflightFinding]:
    """Yield a finding about tables whose newest form is in doubt."""
    try:
        doubts = table_doubts(paths)
    except StoreError as exc:
        sentence = f"Cannot determine whether the newest tables are in JSON or in RocksDB: {exc}."
        yield finding("tables-not-compared", Severity.WARN, sentence)
        return
    if doubts:
        yield finding(
            "tables-in-doubt", Severity.WARN,
            "It is unclear which form of these tables the last broker wrote. The move decides by"
            " the file times, which a copy may have changed: before the move, set the time of the"
            " right form to now (touch the file, or the database's CURRENT).",
            doubts,
        )  # fmt: skip


def _older_databases(tables: list[TableForms]) -> Iterator[PreflightFinding]:
    """Yield a finding about databases that are older than the JSON files."""
    paths = sorted({path for table in tables for path in table.databases})
    if paths:
        yield finding(
            "older-databases", Severity.INFO,
            "Databases of the broker's tables are older than its JSON files: the move moves them"
            " aside, because a broker with RocksDB queues would read them.",
            [f"config/{path.name}" for path in paths],
        )  # fmt: skip


def _light_queues(tables: list[TableForms]) -> Iterator[PreflightFinding]:
    """Yield a finding if offsets are in the file of a broker with light queues."""
    for table in tables:
        files = {path.name: file_written(path) for path in table.files}
        if files.get(LMQ_OFFSETS_FILE, -1) >= max(0, *files.values()):
            yield finding(
                "offsets-of-light-queues", Severity.INFO,
                f"The broker keeps its offsets in {LMQ_OFFSETS_FILE} (enableLmq), but a broker"
                f" with RocksDB queues reads only {OFFSETS_FILE}. The move writes it.",
            )  # fmt: skip


def _not_brought(paths: StorePaths) -> Iterator[PreflightFinding]:
    """Yield a finding about files that ``migrate follow`` does not copy."""
    if names := other_names(paths):
        yield finding(
            "left-by-follow", Severity.INFO,
            "The store's folder has other files: migrate switch leaves them in place, but migrate"
            " follow does not copy them to the new folder.",
            names,
        )  # fmt: skip


def other_names(paths: StorePaths) -> list[str]:
    """Return names below the root that are not of a store and not copied by ``migrate follow``."""
    store = [paths.commit_log, paths.index, paths.checkpoint, paths.abort, paths.abort_backup]
    queues = [path for name in backend_names() for path in backend(name).folders(paths)]
    known = {path.name for path in (*store, *queues, paths.lock, paths.own, paths.consume_queue)}
    names = {path.name for path in _children(paths.root)} - known
    return sorted(name for name in names if name.partition(".")[0] not in _BROUGHT)


def _children(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if is_dir(folder) else []
