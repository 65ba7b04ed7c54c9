"""The broker's tables in a switch or rollback: when they are whole, and who prepares them.

A broker may release the store's lock before it has written its tables (RocketMQ 5.3.3 does). So
they are prepared when its process has ended, or else when they have not changed for a while.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from migration.metadata.forms import refuse_older_files
from migration.metadata.prepare import prepare_tables, reads_databases
from migration.metadata.stopped import BrokerProcess
from migration.metadata.table_files import newest_table
from migration.workspace import Workspace
from store.config import StoreConfig
from store.errors import os_errors
from store.files import make_folder, sync_folder
from store.journals.store_lock import StoreLock, refuse_if_open
from store.paths import StorePaths
from store.progress import Tell, untold
from store.service.finding.lay_out import lay_out
from store.service.upkeep.mode import StoreMode, current_mode


@dataclass(frozen=True, slots=True)
class TablesReport:
    """What was done to the tables of a broker that is to start on a store."""

    state: StoreMode
    """For which they are."""
    prepared_tables: list[str]
    older_tables: list[str]
    """Whose files, which that broker reads, are older than what the last one kept in RocksDB."""


_PREPARED, _NEWEST = "prepared", "newestTable"


def prepare_for(
    root: Path,
    config: StoreConfig | None = None,
    *,
    to: StoreMode | None = None,
    accept_older_tables: bool = False,
    tell: Tell = untold,
) -> TablesReport:
    """Put the tables into the form that a broker with queues in state ``to`` reads.

    ``to`` is by default the state of the store, as ``cqstore mode --to`` left it. A switch, a
    rollback and a followed move do this themselves. A second call does nothing more.

    Raises:
        RefusedStoreError: there is no store, the tables change all the time, or their files are
            older than what the last broker kept in RocksDB.
        StoreLockedError: a process has the store open.
        CorruptionError, StoreIOError: as for ``prepare_tables``.
    """
    layout, config = lay_out(root.absolute(), config or StoreConfig(), None, read_only=True)
    goal, older = to or current_mode(layout, config), list[str]()
    wait_for_broker(layout.paths, None, tell)
    if not reads_databases(goal.backends):
        older = refuse_older_files(layout.paths, accepted=accept_older_tables)
    return TablesReport(goal, prepare(layout.paths, config, goal), older)


def wait_for_broker(paths: StorePaths, space: Workspace | None, tell: Tell) -> None:
    """Wait until the process that had the store open writes no more tables.

    Not where the newest table is the one that ``note_tables`` noted in ``space``: nothing has been
    written since.

    Raises:
        StoreLockedError: a process has the store open.
        RefusedStoreError: the tables change all the time.
        StoreIOError: they cannot be examined.
    """
    refuse_if_open(paths)
    newest = newest_table(paths)
    if newest is None or (space is not None and newest == _noted(space)):
        return
    BrokerProcess(paths).wait(tell)


def note_tables(paths: StorePaths, space: Workspace) -> None:
    """Note in the journal of ``space`` when the newest table was written, behind ``prepare``."""
    newest = newest_table(paths)
    if newest is not None and newest != _noted(space):
        space.note(_PREPARED, **{_NEWEST: newest})


def _noted(space: Workspace) -> float | None:
    noted = [entry.get(_NEWEST) for entry in space.history() if entry["step"] == _PREPARED]
    return noted[-1] if noted else None


def prepare(paths: StorePaths, config: StoreConfig, goal: StoreMode) -> list[str]:
    """Put the broker's tables into the form that the next broker reads; return what was done.

    Raises:
        StoreLockedError: a process has the store open.
        CorruptionError, StoreIOError: as for ``prepare_tables``.
    """
    lock = StoreLock(paths)
    try:
        return prepare_locked(paths, config, goal)
    finally:
        lock.release()


def prepare_locked(paths: StorePaths, config: StoreConfig, goal: StoreMode) -> list[str]:
    """Prepare the tables as ``prepare`` does; the caller has the lock."""
    away = replaced_folder(paths) / paths.topics.parent.name

    def put_away(database: Path) -> None:
        make_folder(away)
        database.rename(away / database.name)
        sync_folder(away)  # first: after a power failure it is found in one of both
        sync_folder(database.parent)

    with os_errors("move an older database of the broker's away", away):
        return prepare_tables(paths, goal.backends, put_away, lmq=config.enable_lmq)


def replaced_folder(paths: StorePaths) -> Path:
    """Return a new folder's name for queues that are moved away."""
    return paths.replaced / time.strftime("%Y%m%dT%H%M%S-migrated", time.gmtime())
