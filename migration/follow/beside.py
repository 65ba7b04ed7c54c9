"""Copy the files next to a broker's log and queues: tables, timer, and two databases.

The timer's wheel and log contain the phy offsets of waiting messages; ``timercheck``, one of the
tables, contains the position up to which the timer's queue was read into them. Without these files,
the broker would continue after messages that it has lost.

Source: RocketMQ ``TimerMessageStore.recover``, ``TimerWheel``, ``TimerLog``.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker, TablesDone, bring_tables
from cqstore.broker.conversion.table_files import stamps, table_paths
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import make_folder, sync_below, sync_folder
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.store_copy import copy_file

_PARTIAL, _FORMER = "beside", "former"
_TRIES = 5


def copy_tables(broker: StorePaths, own: StorePaths, following: NextBroker) -> TablesDone:
    """Copy tables and timer of a stopped broker; return the changes made to the tables.

    All files are copied and durable before the first one gets its name; if interrupted, the same
    call starts again. Files with these names in ``own`` are replaced, each in one step: no table is
    ever incomplete, or mixed with tables of the other broker.

    Args:
        broker: paths of the broker's store; the caller holds its lock.
        own: paths of the new store, which no process has open.
        following: the next broker, that of the new store.

    Raises:
        RefusedStoreError: the files keep changing, or as for ``bring_tables``.
        CorruptionError, StoreIOError: as for ``bring_tables``, or a file cannot be copied.
    """
    partial = own.own / _PARTIAL
    with os_errors("copy the broker's tables", broker.config):
        _copy_unchanged(broker, partial, following.without)
        done = bring_tables(StorePaths(partial), following, shutil.rmtree)
        done.converted.pop("movedTo", None)  # below ``partial``: the broker's folder has it still
        sync_below([partial])
        make_folder(partial / _FORMER)
        for path in reversed(table_paths(own)):
            path.rename(partial / _FORMER / path.name)
        for path in table_paths(StorePaths(partial)):
            path.rename(own.root / path.name)
        sync_folder(own.root)
        shutil.rmtree(partial)
    return done


def _copy_unchanged(broker: StorePaths, partial: Path, without: Collection[AcceptedLoss]) -> None:
    """Copy the broker's tables into ``partial``, all in the state of one moment.

    Raises:
        RefusedStoreError: they change faster than they are copied.
    """
    for _ in range(_TRIES):
        before = stamps(broker)
        if exists(partial):  # an earlier call's files must not be copied along
            shutil.rmtree(partial)
        make_folder(partial)
        for path in table_paths(broker):
            if path.name in without:
                continue
            if is_dir(path):
                shutil.copytree(path, partial / path.name, copy_function=copy_file)
            else:
                copy_file(str(path), str(partial / path.name))
        if stamps(broker) == before:
            return
    raise RefusedStoreError(
        f"cannot copy the broker's tables: they changed during each of {_TRIES} attempts, so a"
        " process is still writing them. Stop it and run the command again",
        path=broker.config,
    )
