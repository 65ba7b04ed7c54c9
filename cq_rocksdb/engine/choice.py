"""Chooses the engine for a database: the native one if it works, else rocksdict.

Both pass the same contract tests. rocksdict lacks a compaction filter, cancelling of compactions,
and sizes of ranges.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from cqstore.cq_rocksdb.engine.errors import RocksDBError
from cqstore.cq_rocksdb.engine.private_folder import DATABASE_FILE
from cqstore.cq_rocksdb.engine.rocks_engine import RocksEngine
from cqstore.cq_rocksdb.engine.tuning import options_of
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError, UnsupportedFormatError, os_errors
from cqstore.store.files import check_folder
from cqstore.store.path_kind import is_dir, matching
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from cqstore.store.whole_import import import_whole

_LOG = StoreLogger(__name__)
OpenEngine = Callable[..., RocksEngine]
_ENGINES = "cqstore.cq_rocksdb.engine"
"""Opens a database with an engine, which is imported on first use."""
_TRIES = 100
_LACKS = "no compaction filter for expired units, no cancellation of compactions, no topic sizes"
"""What rocksdict lacks."""
WITHOUT_FILTER = (
    f"{_LACKS}: the native RocksDB engine is not available (cqstore info shows why). Install"
    " cqstore-rocksdb, or set rocksdbLibrary to a RocksDB library, for example to the lib folder of"
    " a RocketMQ broker"
)
"""Warning for writers about the engine that is used if the other one does not work."""
_FAMILY_MISSING = "Column family not found"


def open_engine(
    folder: Path, config: StoreConfig, log_folder: Path, *, read_only: bool
) -> tuple[RocksEngine, str]:
    """Open the database in ``folder``; return the engine and the reason for its choice.

    Raises:
        UnsupportedFormatError: the configured engine is not available.
        CorruptionError: its folder contains something that is neither a file nor a folder.
        StoreError: the database cannot be opened, see the engines.
    """
    tables = 0
    if is_dir(folder):  # RocksDB would wait forever at a FIFO
        with os_errors("list the files of the database", folder):
            check_folder(folder)
            tables = len(matching(folder, "*.sst"))
    make, reason = _choose(config)
    options = options_of(config)
    options = options.of_so_many_tables(tables)
    open_once = partial(make, folder, options, log_folder, read_only=read_only)
    if not read_only:
        return open_once(), reason
    try:
        return _while_it_changes(open_once, folder), reason
    except RocksDBError as exc:
        if _FAMILY_MISSING not in exc.reason or not _holds_nothing(folder):
            raise
    return open_once(is_empty=True), reason


def _holds_nothing(folder: Path) -> bool:
    """Return whether no key was ever written to a database: no table, no write-ahead log.

    A store that was interrupted while it created the database leaves it without the second family.
    The next read-write open adds the family.
    """
    files = [path for path in folder.iterdir() if DATABASE_FILE.fullmatch(path.name)]
    return all(
        path.suffix not in {".sst", ".blob"} and (path.suffix != ".log" or not path.stat().st_size)
        for path in files
    )


def _while_it_changes(open_once: Callable[[], RocksEngine], folder: Path) -> RocksEngine:
    """Open a database that another process may be writing, whose files may change during the open.

    Retries as long as the files change; if the open fails on unchanged files, they are damaged.
    """
    for _ in range(_TRIES):
        before = _files(folder)
        try:
            return open_once()
        except RocksDBError:
            if _files(folder) == before:
                raise
    return open_once()


def _files(folder: Path) -> set[tuple[str, int, int]]:
    """Return names, sizes and times of the database's files, except files just removed."""
    found: set[tuple[str, int, int]] = set()
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if DATABASE_FILE.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    now = entry.stat()
                    found.add((entry.name, now.st_size, now.st_mtime_ns))
    return found


def check_settings(config: StoreConfig) -> None:
    """Refuse settings with which no database can be opened. Opens no database.

    Raises:
        StoreConfigError: an option of ``rocksdb_options`` is invalid.
        UnsupportedFormatError: the configured engine is not available.
    """
    options_of(config)
    _choose(config)


def _choose(config: StoreConfig) -> tuple[OpenEngine, str]:
    """Return the configured or available engine, and the reason for its choice."""
    wanted, library = config.rocksdb_engine, config.rocksdb_library
    if wanted is RocksDBEngine.ROCKSDICT:
        return _rocksdict_engine(), "as configured"
    try:
        return _native_engine(library), "as configured" if library else wanted.value
    except UnsupportedFormatError as exc:
        # A configured library is never skipped silently.
        if wanted is RocksDBEngine.NATIVE or library is not None:
            raise
        _LOG.info("using the rocksdict engine: %s", exc)
        reason = f"{_LACKS}; the native engine is not available: {exc.reason}"
        return _rocksdict_engine(), reason


@cache
def warn_once(sentence: str) -> None:
    """Log a warning about the engine, once a process."""
    _LOG.warning("%s", sentence)


def _rocksdict_engine() -> OpenEngine:
    engine: OpenEngine = import_whole(f"{_ENGINES}.rocksdict_engine").RocksdictEngine
    return engine


def _native_engine(library: Path | None) -> OpenEngine:
    """Return a function that opens the native engine.

    Raises:
        UnsupportedFormatError: the engine is not compiled, or there is no library.
    """
    try:
        native = import_whole(f"{_ENGINES}.native_engine")
    except ImportError as exc:
        raise UnsupportedFormatError(
            f"the compiled part of the native engine is missing ({exc}):"
            " install cqstore on a machine with a C compiler"
        ) from exc
    native.load_library(library)
    return partial(native.NativeEngine, library=library)


def engine_works(wanted: RocksDBEngine) -> bool:
    """Return whether ``wanted`` can be used on this machine, for tests and benches."""
    try:
        _choose(StoreConfig(rocksdb_engine=wanted))
    except StoreError:
        return False
    return True
