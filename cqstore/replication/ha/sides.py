"""Sides of a comparison: a store in a folder, or the bytes that a running master has sent.

A side is never changed. The files of an open store are read as they are at that moment.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from cqstore.store.broker_files.file_names import CONFIG_FOLDER
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError, os_errors
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import is_queued
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import StoreConfig

PATIENCE_SECONDS = 3.0
"""Maximum time that the queues of an open store may lag behind its log."""
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Undispatched:
    """Records in the log that are missing from their queues."""

    phy_offset: int
    """Phy offset of the first one."""
    records: int
    queue: QueueKey
    """Queue of the first one."""
    needs_recovery: bool = False
    """The store was not closed properly, and is not open: the next open dispatches the records."""


class LogSide(ABC):
    """One of the two compared logs, or the available part of it."""

    name: str
    """Name as the user wrote it."""
    log: CommitLog
    """The log; it ends after the last record that can be read."""
    damage: CorruptionError | None = None
    """Why the log ends there, or the first damage before."""
    bytes_behind_end: int = 0
    """Bytes after that end that are not records."""
    whole: bool = True
    """Whether the log is complete up to its end; the log of a running master may continue."""
    whole_begin: bool = True
    """Whether the log is complete from its start; only a part of a running master's is fetched."""
    damaged_queues: int = 0
    """Number of incomplete queues that the opening has found."""
    config: Path | None = None
    """Folder of the broker's tables, if there is one."""

    @abstractmethod
    def undispatched(self) -> Undispatched | None:
        """Return the records missing from queues; ``None``: none, or queues cannot be read."""

    def as_json(self, stuck: Undispatched | None) -> dict[str, object]:
        """Return the start and end of the log, and its problems.

        ``stuck`` is the result of ``undispatched``.
        """
        return {
            "name": self.name, "begin": self.log.min_phy_offset(),
            "end": self.log.max_phy_offset(), "fileSize": self.log.files.file_size,
            "whole": self.whole, "bytesBehindEnd": self.bytes_behind_end,
            "damage": None if self.damage is None else str(self.damage),
            "damagedQueues": self.damaged_queues,
            "undispatched": None if stuck is None else {
                "from": stuck.phy_offset, "records": stuck.records, "topic": stuck.queue.topic,
                "queueId": stuck.queue.queue_id,
            },
        }  # fmt: skip


class StoreSide(LogSide):
    """A store in a folder."""

    def __init__(self, root: Path, store: MessageStore, config: StoreConfig) -> None:
        """Use ``store``, which is open read-only and is closed by the caller."""
        self.name, self.root = str(root), root
        self.store, self._config = store, config
        self.log = components_of(store).log
        report = store.report
        self.damage = report.damage or report.first_bad
        self.bytes_behind_end = report.dropped_bytes
        self.damaged_queues = len(report.queues_damaged)
        folder = root / CONFIG_FOLDER
        self.config = folder if is_dir(folder) else None

    def undispatched(self) -> Undispatched | None:
        """Return the records missing from queues, up to the end of the log when it was opened.

        A process that has the store open dispatches records a moment later, so its queues are read
        again for a while. If its queues hide unflushed units, the result is ``None``.
        """
        if components_of(self.store).queues.hides_unflushed and _is_open(self.store):
            return None
        end, found = self.log.max_phy_offset(), _undispatched(self.store)
        if found is None:
            return None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _is_open(self.store) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            with _open(self.root, self._config) as again:
                found = _undispatched(again, end)
            if found is None:
                return None
        crashed = not self.store.last_exit_ok and not _is_open(self.store)
        return replace(found, needs_recovery=crashed)


def _is_open(store: MessageStore) -> bool:
    """Return whether a process has the store open; False if the lock cannot be read."""
    try:
        return bool(locked_by(components_of(store).paths))
    except StoreError:  # this process may have no permission to open the file
        return False


def _undispatched(store: MessageStore, end: int | None = None) -> Undispatched | None:
    """Find records from the replay start to ``end`` that are missing from their own queue."""
    log, gone = components_of(store).log, components_of(store).deleted.has_record
    start = store.report.start_phy_offset
    ends: dict[QueueKey, int] = {}
    first: tuple[int, QueueKey] | None = None
    lacking = 0
    try:
        for record in log.scan(start, end):
            if not is_queued(record.sys_flag) or gone(record.topic, record.phy_offset):
                continue
            key = QueueKey(record.topic, record.queue_id)
            if key not in ends:
                ends[key] = _next_offset(store, key)
            if record.queue_offset >= ends[key] and not _is_inner(record.properties):
                first = first or (record.phy_offset, key)
                lacking += 1
    except CorruptionError:
        pass  # reported as the damage of the side
    return None if first is None else Undispatched(first[0], lacking, first[1])


def _next_offset(store: MessageStore, key: QueueKey) -> int:
    """Return the first queue offset without a unit; for batch queues, a number above all."""
    if components_of(store).queues.queue_type(key.topic) is QueueType.BATCH:
        return 1 << 62  # a unit of a batch queue counts several messages
    return components_of(store).queues.queue(*key).max_offset()


def _is_inner(properties: bytes) -> bool:
    """Return whether the record is an inner batch."""
    return dispatch_properties(properties).inner_base is not None


@contextmanager
def open_side(root: Path, config: StoreConfig) -> Iterator[StoreSide]:
    """Open the store in ``root`` for reading, for the length of the block.

    Raises:
        RefusedStoreError: there is no store.
        CorruptionError, StoreIOError: the store cannot be read.
    """
    with _open(root, config) as store:
        yield StoreSide(root, store, config)


def _open(root: Path, config: StoreConfig) -> MessageStore:
    """Open a store for reading; records missing from queues are a finding, not an error."""
    return open_served(
        MessageStore, root, config, OpenOptions(read_only=True, refuse_lost_units=False)
    )


def readable(config: StoreConfig) -> StoreConfig:
    """Return ``config`` for reading: the settings of a slave are changed to those of a master."""
    return config.without_replicas().as_master()


def is_same_folder(one: Path, other: Path) -> bool:
    """Return whether both paths refer to the same folder.

    Raises:
        StoreIOError: a path cannot be examined.
    """
    with os_errors("access the store", one):
        return exists(one) and exists(other) and one.samefile(other)


def refuse_same_log(stores: Sequence[StoreSide]) -> None:
    """Refuse stores of which two have the same folder for their commit log.

    Raises:
        RefusedStoreError: two stores share a folder, which ``storePathCommitLog`` allows.
        StoreIOError: a folder cannot be examined.
    """
    folders = [
        (store, folder)
        for store in stores
        for folder in components_of(store.store).layout.log_folders
    ]
    for (store, folder), (other, others) in combinations(folders, 2):
        if store is not other and is_same_folder(folder, others):
            raise RefusedStoreError(
                f"{store.name} and {other.name} have the same commit log. If storePathCommitLog"
                " names it, leave the key out of the configuration, or set storePathRootDir to the"
                " store that has this log",
                path=folder,
            )
