"""What lies beside a broker's log and queues and comes along: tables, timer, and two databases.

The timer's wheel and log say where in the commit log the messages lie that wait; ``timercheck``,
one of the tables, says up to where the timer's queue has been read into them. Without them the
broker would go on behind messages that it does not have.

Source: RocketMQ ``TimerMessageStore.recover``, ``TimerWheel``, ``TimerLog``.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

from cqstore.broker.conversion.conversion import NextBroker, TablesDone, bring_tables
from cqstore.broker.conversion.options import AcceptedLoss
from cqstore.broker.conversion.table_files import stamps, table_paths
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import make_folder, sync_below, sync_folder
from cqstore.store.path_kind import exists, files_below, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.store_copy import copy_file

_PARTIAL, _FORMER = "beside", "former"
_TRIES = 5


def copy_tables(broker: StorePaths, own: StorePaths, following: NextBroker) -> TablesDone:
    """Copy tables and timer of a broker that has ended; return what was done to the tables.

    All is copied and durable before the first of it has its name; if interrupted, the same call
    begins again. What is in ``own`` under these names goes, each name at once: no table is ever
    there in part, nor beside one of the other broker's.

    Args:
        broker: whose lock the caller has.
        own: the new store, which no process has open.
        following: the next broker, that of the new store.

    Raises:
        RefusedStoreError: the files change all the time, or as ``bring_tables``.
        CorruptionError, StoreIOError: as ``bring_tables``, or something cannot be copied.
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


def refuse_left(broker: StorePaths, without: Collection[AcceptedLoss]) -> None:
    """Refuse a move that would leave messages behind that are not in the log.

    Raises:
        RefusedStoreError: there are compacted topics, and the move is not to go on without them.
        StoreIOError: the folder cannot be read.
    """
    folder = broker.root / AcceptedLoss.COMPACTION
    with os_errors("look for compacted topics", folder):
        is_used = is_dir(folder) and any(files_below(folder))
    if is_used and AcceptedLoss.COMPACTION not in without:
        raise RefusedStoreError(
            "the store has messages of compacted topics, which are not copied to the new store. To"
            f" continue without them, pass --without {AcceptedLoss.COMPACTION}", path=folder,
        )  # fmt: skip


def _copy_unchanged(broker: StorePaths, partial: Path, without: Collection[AcceptedLoss]) -> None:
    """Copy the broker's tables into ``partial``, all as they were at one moment.

    Raises:
        RefusedStoreError: they change faster than they are copied.
    """
    for _ in range(_TRIES):
        before = stamps(broker)
        if exists(partial):  # a file left there would come along
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
