"""Opening a store at rest for a task: its log is listed, its queues are read by name."""

import hashlib
from pathlib import Path

from store.config import StoreConfig
from store.errors import RefusedStoreError, os_errors
from store.files import reading
from store.log.checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.paths import StorePaths
from store.queue.context import QueueStoreContext

_IDENTITY_BYTES = 4096
"""Bytes of the log that tell one store from another."""
_TASK_MEMORY = 64 << 20
"""Bytes that RocksDB may take in a task: there are as many tasks as cores."""


def settings_of_tasks(config: StoreConfig, **sizes: int) -> dict[str, object]:
    """Return the settings that were given and those that tasks need, by RocketMQ's keys.

    ``config`` has the size of the log's files as they are; ``sizes`` are further ones.
    """
    update = {
        "mapped_file_size_commit_log": config.mapped_file_size_commit_log,
        "rocksdb_memory_bytes": min(config.rocksdb_memory_bytes, _TASK_MEMORY),
        **sizes,
    }
    given = config.model_fields_set | set(update)
    return config.model_copy(update=update).model_dump(mode="json", by_alias=True, include=given)


def queue_context(
    paths: StorePaths, log_folders: list[Path], config: StoreConfig, *, read_only: bool = True
) -> QueueStoreContext:
    """Return what a backend is opened with; ``paths`` may be those of queues in the making.

    Raises:
        CorruptionError, StoreIOError: the log cannot be listed.
    """
    log = CommitLog(log_folders, config, read_only=True)
    log.load()
    return QueueStoreContext(
        paths, config, log, StoreCheckpoint(paths.checkpoint),
        last_exit_ok=not paths.abort.exists(), read_only=read_only,
    )  # fmt: skip


def log_identity(log_folders: list[Path]) -> str:
    """Return a digest of the oldest log file's name and first bytes: a store's own.

    Raises:
        RefusedStoreError: there is no log.
        StoreIOError: it cannot be read.
    """
    found = []
    for folder in log_folders:
        with os_errors("list the commit log", folder):
            found += [path for path in folder.iterdir() if path.name.isdigit()]
    if not found:
        raise RefusedStoreError("there is no commit log", path=log_folders[0])
    oldest = min(found, key=lambda path: path.name)
    with os_errors("read the commit log", oldest), reading(oldest) as file:
        head = file.read(_IDENTITY_BYTES)
    return hashlib.blake2b(oldest.name.encode() + head, digest_size=16).hexdigest()


def tail_identity(log: CommitLog, phy_offset: int) -> str:
    """Return a digest of the last bytes of the log before ``phy_offset``; empty if they are gone.

    A copy of a store and the store itself agree in them, however long it went on since.

    Raises:
        StoreIOError: they cannot be read.
    """
    file = log.files.find(phy_offset - 1) if phy_offset > 0 else None
    if file is None:
        return ""
    end = phy_offset - file.file_from_offset
    start = max(end - _IDENTITY_BYTES, 0)
    data = file.read_raw(start, end - start)
    return hashlib.blake2b(b"%d" % phy_offset + data, digest_size=16).hexdigest()
