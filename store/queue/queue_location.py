"""QueuePlace: the queues of a quiescent store, in a form that any process can open."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UnitSource, bulk_backend
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.settings.config import StoreConfig

_TASK_MEMORY = 64 << 20
"""Memory limit of RocksDB in a task, in bytes: there are as many tasks as cores."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The queues of one backend in one root, and the log of their records."""

    backend: str
    root: Path
    log_folders: tuple[Path, ...]
    settings: dict[str, Any]
    """By RocketMQ's keys."""

    @property
    def config(self) -> StoreConfig:
        """Return ``settings`` as a configuration."""
        return StoreConfig.from_mapping(self.settings)

    def open(self) -> UnitSource:
        """Open the queues; changes nothing.

        Raises:
            RefusedStoreError: there are no queues of this backend.
        """
        context = queue_context(StorePaths(self.root), list(self.log_folders), self.config)
        return bulk_backend(self.backend).source(context)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields in a form that fits JSON, for another process."""
        folders = [str(folder) for folder in self.log_folders]
        return {"backend": self.backend, "root": str(self.root), "log": folders,
                "settings": self.settings}  # fmt: skip

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Return the place from the result of ``to_fields``."""
        folders = tuple(Path(folder) for folder in given["log"])
        return cls(given["backend"], Path(given["root"]), folders, given["settings"])


def settings_of_tasks(config: StoreConfig, **sizes: int) -> dict[str, object]:
    """Return the given settings plus those that tasks need, by RocketMQ's keys.

    ``config`` has the actual size of the log's files; ``sizes`` are further ones.
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
    """Return the context to open a backend; the queues of ``paths`` may be incomplete.

    Raises:
        CorruptionError, StoreIOError: the log cannot be listed.
    """
    log = CommitLog(log_folders, config, read_only=True)
    log.load()
    return QueueStoreContext(
        paths, config, log, StoreCheckpoint(paths.checkpoint),
        last_exit_ok=not exists(paths.abort), read_only=read_only,
    )  # fmt: skip
