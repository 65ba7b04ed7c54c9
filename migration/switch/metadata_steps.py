"""The broker's tables in a switch or rollback: wait until they are written, then convert them.

A broker may release the lock of the store before it has written its tables (RocketMQ 5.3.3 does).
So they are converted after its process has ended, or after they have not changed for a while.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.broker_process import BrokerProcess
from cqstore.broker.conversion.conversion import (
    CONVERTED,
    CONVERTING,
    NextBroker,
    TablesDone,
    bring_tables,
    plan_conversion,
)
from cqstore.broker.conversion.table_files import newest_table
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.files import make_folder, sync_folder
from cqstore.store.journals.store_lock import StoreLock, refuse_if_open
from cqstore.store.paths import StorePaths
from cqstore.store.progress import OnEvent, noop
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.offline.mode import StoreMode, current_mode
from cqstore.store.settings.config import StoreConfig


@dataclass(slots=True)
class TablesReport:
    """Changes to the broker's tables for the broker that starts next on a store."""

    state: StoreMode
    """State of the store that the tables fit."""
    prepared_tables: list[str] = field(default_factory=list)
    """Changes that were made to the tables, in sentences."""
    converted_tables: dict[str, object] = field(default_factory=dict)
    """Source forms, target form and counts; empty if the tables had the right form."""
    older_tables: list[str] = field(default_factory=list)
    """Tables whose JSON files, which the next broker reads, are older than those in RocksDB."""

    def add(self, done: TablesDone) -> None:
        """Add the changes of one step."""
        self.prepared_tables += done.sentences
        self.converted_tables = done.converted or self.converted_tables
        self.older_tables = done.older


_PREPARED, _NEWEST = "prepared", "newestTable"
_ENDS = ("dropped", "rolled back", "finished")
"""Steps that end a migration; earlier entries of the journal belong to another migration."""


def prepare_for(
    root: Path,
    config: StoreConfig | None = None,
    *,
    to: StoreMode | None = None,
    without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False,
    on_event: OnEvent = noop,
) -> TablesReport:
    """Convert the tables to the form that a broker with queues in state ``to`` reads.

    By default, ``to`` is the state of the store. A switch, a rollback and a followed move do this
    themselves. A second call changes nothing.

    Raises:
        RefusedStoreError: there is no store, the tables keep changing, a form is damaged, or it
            cannot hold data that is not in ``without``.
        StoreLockedError: a process has the store open.
        CorruptionError, StoreIOError: as for ``bring_tables``.
    """
    layout, config = resolve_layout(root.absolute(), config or StoreConfig(), read_only=True)
    goal = to or current_mode(layout, config)
    broker = NextBroker(goal.backends, config, without, accept_older_tables)
    wait_for_broker(layout.paths, None, on_event)
    plan_conversion(layout.paths, broker)  # refuse before a lock file is created
    report = TablesReport(goal)
    report.add(prepare(layout.paths, broker))
    return report


def preparing(
    root: Path,
    config: StoreConfig,
    to: StoreMode,
    on_event: OnEvent,
    *,
    without: Sequence[str] = (),
    accept_older_tables: bool = False,
) -> Callable[[], dict[str, object]]:
    """Return a function that converts the tables for a step of ``cqstore mode``, under its lock.

    If the step is interrupted, a broker of the former state can read either form: JSON files stay,
    and without databases a broker imports the files.

    Raises:
        StoreConfigError: ``without`` contains an invalid name.
        RefusedStoreError, StoreError: as ``prepare_for``.
    """
    named = [_named(name) for name in without]
    layout, config = resolve_layout(root.absolute(), config, read_only=True)
    broker = NextBroker(to.backends, config, named, accept_older_tables)
    wait_for_broker(layout.paths, None, on_event)
    plan_conversion(layout.paths, broker)

    def prepare_now() -> dict[str, object]:
        done = prepare_locked(layout.paths, broker)
        return {
            "preparedTables": done.sentences, "convertedTables": done.converted,
            "olderTables": done.older,
        }  # fmt: skip

    return prepare_now


def _named(name: str) -> AcceptedLoss:
    try:
        return AcceptedLoss(name)
    except ValueError as exc:
        raise StoreConfigError(
            f"invalid value {name!r} for --without: expected {', '.join(AcceptedLoss)}"
        ) from exc


def wait_for_broker(paths: StorePaths, space: Workspace | None, on_event: OnEvent) -> None:
    """Wait until the process that had the store open has written its tables.

    Do not wait if the newest table is the one that ``note_tables`` recorded in ``space``: nothing
    was written since.

    Raises:
        StoreLockedError: a process has the store open.
        RefusedStoreError: the tables keep changing.
        StoreIOError: they cannot be examined.
    """
    refuse_if_open(paths)
    newest = newest_table(paths)
    if newest is None or (space is not None and newest == _noted(space)):
        return
    BrokerProcess(paths).wait(on_event)


def note_tables(paths: StorePaths, space: Workspace) -> None:
    """Record the time of the newest table in the journal of ``space``, after ``prepare``."""
    newest = newest_table(paths)
    if newest is not None and newest != _noted(space):
        space.note(_PREPARED, **{_NEWEST: newest})


def _noted(space: Workspace) -> float | None:
    noted = [entry.get(_NEWEST) for entry in space.history() if entry["step"] == _PREPARED]
    return noted[-1] if noted else None


def prepare(paths: StorePaths, broker: NextBroker, space: Workspace | None = None) -> TablesDone:
    """Convert the tables to the form that ``broker`` reads; return the changes.

    With a ``space``, the conversion is recorded in its journal. A conversion of an earlier call
    that lacks only its last entry is recorded and returned like one of this call.

    Raises:
        StoreLockedError: a process has the store open.
        StoreError: as for ``bring_tables``.
    """
    with StoreLock(paths):
        return prepare_locked(paths, broker, space)


def prepare_locked(
    paths: StorePaths, broker: NextBroker, space: Workspace | None = None
) -> TablesDone:
    """Convert the tables like ``prepare``; the caller holds the lock."""
    away = replaced_folder(paths) / paths.config.name

    def put_away(database: Path) -> None:
        with os_errors("move an older database of the broker aside", away):
            make_folder(away)
            database.rename(away / database.name)
            sync_folder(away)  # first: after a power failure it is in one of both folders
            sync_folder(database.parent)

    if space is None:
        return bring_tables(paths, broker, put_away)

    def note(step: str, facts: dict[str, object]) -> None:
        space.note(step, **facts)

    done, last = bring_tables(paths, broker, put_away, note), last_conversion(space)
    if not done.converted and last.get("step") == CONVERTING:
        done.converted = {name: last[name] for name in last if name not in {"at", "step"}}
        space.note(CONVERTED, **done.converted)
    return done


def last_conversion(space: Workspace) -> dict[str, object]:
    """Return the last journal entry about a conversion of this migration, or an empty dict.

    Changes nothing.
    """
    found: dict[str, object] = {}
    for entry in space.history():
        if entry["step"] in _ENDS:
            found = {}
        elif entry["step"] in {CONVERTING, CONVERTED}:
            found = entry
    return found


def replaced_folder(paths: StorePaths) -> Path:
    """Return a folder for queues that are moved aside, named by the time; it is not created."""
    return paths.replaced / time.strftime("%Y%m%dT%H%M%S-migrated", time.gmtime())
