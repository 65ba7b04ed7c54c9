"""What a directory holds, before anything in it is opened for writing.

Stores that this project must not write to are recognised here, each with its reason; they are
still read where their records are framed as ours are.
"""

from dataclasses import dataclass, field
from pathlib import Path

from store.config import BrokerRole, StoreConfig
from store.errors import RefusedStoreError, StoreConfigError
from store.paths import StorePaths
from store.queue.backends import backend, backend_names

FILE, ROCKSDB = "file", "rocksdb"
_ROCKSDB_TYPE = "defaultrocksdb"
_FILE_TYPES = {"default", "file"}


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The verdict on one directory."""

    paths: StorePaths
    log_folders: list[Path]
    has_log: bool
    backends: list[str]
    """Backends that hold queues here, files first."""
    refusals: list[str] = field(default_factory=list)
    """Why it must not be opened read-write."""

    @property
    def combined(self) -> bool:
        """Return whether two backends hold queues, as RocketMQ's double write leaves them."""
        return len(self.backends) > 1


def detect(root: Path, config: StoreConfig, commit_log: Path | None = None) -> StoreLayout:
    """Look at ``root``; ``commit_log`` is the log's folder when it lies elsewhere.

    Changes nothing.

    Raises:
        RefusedStoreError: two readings are possible, or the log is DLedger's.
    """
    refusals: list[str] = []
    given = commit_log or _configured_log(config, root)
    paths = StorePaths(root, given)
    folders = [paths.commit_log]
    if config.store_path_commit_log and "," in config.store_path_commit_log and not commit_log:
        folders = [Path(part.strip()) for part in config.store_path_commit_log.split(",")]
        refusals.append("its commit log is spread over several paths")
    elif given is not None:
        refusals.append(f"its commit log lies elsewhere, in {given}")
    refusals += _foreign(paths, config)
    has_log = any(_has_files(folder) for folder in folders)
    found = [name for name in backend_names() if backend(name).present(paths)]
    return StoreLayout(paths, folders, has_log, found, refusals)


def _configured_log(config: StoreConfig, root: Path) -> Path | None:
    text = config.store_path_commit_log
    if not text or "," in text:
        return None
    folder = Path(text)
    return None if folder.absolute() == (root / "commitlog").absolute() else folder


def _foreign(paths: StorePaths, config: StoreConfig) -> list[str]:
    reasons: list[str] = []
    dledger = sorted(paths.root.glob("dledger-*")) if paths.root.is_dir() else []
    if dledger or config.enable_dledger_commit_log:
        where = dledger[0] if dledger else paths.root
        if not _has_files(paths.commit_log):
            raise RefusedStoreError(
                "the commit log is DLedger's, framed in its own way", path=where
            )
        reasons.append("a DLedger log belongs to it")
    if paths.epoch_file.exists() or config.enable_controller_mode:
        reasons.append("a controller decides who writes it (epochFileCheckpoint)")
    if config.broker_role is BrokerRole.SLAVE:
        reasons.append("it is a slave's: only its master's bytes may be added")
    if config.duplication_enable:
        reasons.append("log duplication decides its offsets (duplicationEnable)")
    if paths.compaction_log.is_dir() and any(paths.compaction_log.iterdir()):
        reasons.append("compacted topics live in it (compaction/)")
    return reasons


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.iterdir())


def choose_backends(layout: StoreLayout, config: StoreConfig, asked: str | None) -> list[str]:
    """Return the backends to open, the one that is read first.

    What lies on disk decides; for a new store ``asked`` or ``storeType``. ``asked`` picks the one
    to read of a combined store.

    Raises:
        RefusedStoreError: ``asked`` has no queues here but another backend has.
        StoreConfigError: an unknown ``storeType``.
    """
    if asked is not None:
        backend(asked)
    if not layout.backends:
        return [asked] if asked else _configured(config)
    if asked is not None and asked not in layout.backends:
        raise RefusedStoreError(
            f"the queues are in backend {layout.backends[0]!r}, not {asked!r}; "
            "opening it so would hide them",
            path=layout.paths.root,
        )
    first = asked or layout.backends[0]
    return [first, *(name for name in layout.backends if name != first)]


def _configured(config: StoreConfig) -> list[str]:
    kind = config.store_type.lower()
    if kind == _ROCKSDB_TYPE:
        return [ROCKSDB]
    if kind not in _FILE_TYPES:
        raise StoreConfigError(
            f"storeType {config.store_type!r} is neither default nor defaultRocksDB"
        )
    return [FILE, ROCKSDB] if config.rocksdb_cq_double_write_enable else [FILE]


def found_sizes(layout: StoreLayout, config: StoreConfig) -> dict[str, int]:
    """Return the file sizes that the files themselves show, for settings that were not given."""
    if "mapped_file_size_commit_log" in config.model_fields_set:
        return {}
    for folder in layout.log_folders:
        if folder.is_dir():
            sizes = {path.stat().st_size for path in folder.iterdir() if path.is_file()} - {0}
            if sizes:
                return {"mapped_file_size_commit_log": max(sizes)}
    return {}
