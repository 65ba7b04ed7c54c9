"""Sides of a comparison: a store that lies in a folder, or what a running master has sent.

Nothing of a side is changed. A store that is open is read as its files are at that moment.
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
"""How long queues of a store that is being written may lag behind its log."""
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Undispatched:
    """Records that are in the log and not in their queues."""

    phy_offset: int
    """Of the first one."""
    records: int
    queue: QueueKey
    """Where the first one should be."""
    needs_recovery: bool = False
    """The store was not closed properly, and is not open: the next open dispatches them."""


class LogSide(ABC):
    """One of the two logs that are compared, as far as it is here."""

    name: str
    """As the user named it."""
    log: CommitLog
    """Ends behind its last record that can be read."""
    damage: CorruptionError | None = None
    """Why it ends there, or the first damage before."""
    bytes_behind_end: int = 0
    """Bytes behind that end that are no records."""
    whole: bool = True
    """Whether all of the log is here up to its end; a running master's goes on, perhaps."""
    whole_begin: bool = True
    """Whether all of the log is here from its begin; of a running master's a part was fetched."""
    damaged_queues: int = 0
    """Queues that are not whole, as far as the opening has seen."""
    config: Path | None = None
    """The folder of the broker's tables, if there is one."""

    @abstractmethod
    def undispatched(self) -> Undispatched | None:
        """Return what the queues lack; ``None``: nothing, or there are no queues to be seen."""

    def as_json(self, stuck: Undispatched | None) -> dict[str, object]:
        """Return where the log begins and ends, and what is wrong with it.

        ``stuck`` is what ``undispatched`` returned.
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
        """Look at ``store``, which is open read-only and stays the caller's."""
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
        """Return what the queues lack of the log as it ended when it was opened.

        A process that has the store open dispatches records a moment later: its queues are read
        again, for a while. Where they hide what it has not flushed, nothing is said of them.
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
    """Return whether a process has the store open, as far as the lock may be looked at."""
    try:
        return bool(locked_by(components_of(store).paths))
    except StoreError:  # the file may not be ours to open
        return False


def _undispatched(store: MessageStore, end: int | None = None) -> Undispatched | None:
    """Find the records before ``end`` that their own queue lacks, from where it may lack some."""
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
        pass  # it is the side's damage, and reported as that
    return None if first is None else Undispatched(first[0], lacking, first[1])


def _next_offset(store: MessageStore, key: QueueKey) -> int:
    """Return the queue offset from which on records have no unit; of a batch queue none has."""
    if components_of(store).queues.queue_type(key.topic) is QueueType.BATCH:
        return 1 << 62  # units of a batch queue count several messages
    return components_of(store).queues.queue(*key).max_offset()


def _is_inner(properties: bytes) -> bool:
    """Return whether the record is an inner batch."""
    return dispatch_properties(properties).inner_base is not None


@contextmanager
def open_side(root: Path, config: StoreConfig) -> Iterator[StoreSide]:
    """Open the store in ``root`` to be read, for the length of the block.

    Raises:
        RefusedStoreError: there is none.
        CorruptionError, StoreIOError: it cannot be read as a store.
    """
    with _open(root, config) as store:
        yield StoreSide(root, store, config)


def _open(root: Path, config: StoreConfig) -> MessageStore:
    """Open a store to be read; what its queues lack of the log is a finding, not a refusal."""
    return open_served(
        MessageStore, root, config, OpenOptions(read_only=True, refuse_lost_units=False)
    )


def readable(config: StoreConfig) -> StoreConfig:
    """Return ``config`` for a reader: a slave's settings are a master's then."""
    return config.without_replicas().as_master()


def is_same_folder(one: Path, other: Path) -> bool:
    """Return whether both paths lead to one folder.

    Raises:
        StoreIOError: one of them cannot be looked at.
    """
    with os_errors("access the store", one):
        return exists(one) and exists(other) and one.samefile(other)


def refuse_same_log(stores: Sequence[StoreSide]) -> None:
    """Refuse stores of which two have the same folder for their commit log.

    Raises:
        RefusedStoreError: they do; ``storePathCommitLog`` can name one folder for both.
        StoreIOError: a folder cannot be looked at.
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
