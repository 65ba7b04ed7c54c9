"""build_database: writes a small RocksDB with any families into a new folder.

For a broker's metadata. The tables have format version 5 and are not compressed, so that RocksDB
8.4, which RocketMQ 5.3 includes, can read them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, WriteOptions

from cqstore.cq_rocksdb.engine.errors import disk_error, is_rocksdicts
from cqstore.cq_rocksdb.engine.open_databases import Library, opening
from cqstore.cq_rocksdb.folders import as_text
from cqstore.store.errors import StoreIOError, os_errors
from cqstore.store.files import make_folder, sync_below

DEFAULT_FAMILY = "default"
_FORMAT_VERSION = 5
_MANIFEST_BYTES = 64 << 10
"""Bytes preallocated for the manifest; RocksDB's default is 4 MiB."""
_NOT_OF_THE_DATABASE = ("rocksdict-config.json", "LOG", "LOCK")
Rows = Iterable[tuple[bytes, bytes]]


def build_database(folder: Path, families: Mapping[str, Rows]) -> None:
    """Write a new database into ``folder``, which is created; durable on return.

    The family ``default`` exists even without rows. An interrupted call leaves an invalid database,
    so the caller must use a folder that nothing reads yet.

    Raises:
        RefusedStoreError: a name in the path is not UTF-8.
        StoreStateError: RocksDB was in use before this process was forked.
        StoreIOError: the folder is not empty, or a file cannot be written.
        DiskFullError: there is not enough disk space.
    """
    as_text(folder)  # refuses the path before anything is created
    with opening(folder, Library.ROCKSDICT):
        with os_errors("create the folder of a database", folder):
            make_folder(folder)
            if any(folder.iterdir()):
                raise StoreIOError("cannot create a database: the folder is not empty", path=folder)
        try:
            _write(folder, families)
        except Exception as exc:
            if not is_rocksdicts(exc):
                raise
            raise disk_error(f"RocksDB cannot write the database: {exc}", folder) from exc
    finish_database(folder)


def finish_database(folder: Path) -> None:
    """Remove what rocksdict leaves beside a closed database, and make the database durable.

    Raises:
        StoreIOError: a file cannot be removed or synced.
    """
    with os_errors("finish a database", folder):
        for name in _NOT_OF_THE_DATABASE:
            (folder / name).unlink(missing_ok=True)
        sync_below([folder])


def _write(folder: Path, families: Mapping[str, Rows]) -> None:
    """Write the rows of each family and flush them, without a write-ahead log."""
    names = sorted({DEFAULT_FAMILY, *families})
    database = Rdict(as_text(folder), raw_options(), {name: raw_options() for name in names})
    try:
        unlogged = WriteOptions()
        # Only the tables matter, which the flush below writes. The stubs declare a method here.
        unlogged.disable_wal = True  # type: ignore[method-assign,assignment]
        for name in names:
            family = database.get_column_family(name)
            try:
                for key, value in families.get(name, ()):
                    family.put(key, value, unlogged)
                family.flush()
            finally:
                family.close()  # else a stored exception keeps the database open
    finally:
        database.close()


def raw_options() -> Options:
    """Return the options that determine the files of a database, for building and for writing."""
    options = Options(raw_mode=True)
    for setter in (options.create_if_missing, options.create_missing_column_families):
        setter(True)  # noqa: FBT003 - it takes no name
    options.set_max_file_opening_threads(1)
    options.set_manifest_preallocation_size(_MANIFEST_BYTES)
    table = BlockBasedOptions()
    table.set_format_version(_FORMAT_VERSION)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    return options
