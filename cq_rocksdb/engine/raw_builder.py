"""build_database: a small RocksDB of any families, written whole into a folder of its own.

For a broker's metadata. The tables are of format 5 and not compressed, so that RocksDB 8.4, which
RocketMQ 5.3 brings along, reads them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, WriteOptions

from cqstore.cq_rocksdb.engine.errors import disk_error, is_rocksdicts
from cqstore.cq_rocksdb.folders import as_text
from cqstore.store.errors import StoreIOError, os_errors
from cqstore.store.files import make_folder, sync_below

DEFAULT_FAMILY = "default"
_FORMAT_VERSION = 5
_MANIFEST_BYTES = 64 << 10
"""Taken of the disk for the manifest ahead of what is written; RocksDB's default is 4 MiB."""
_NOT_OF_THE_DATABASE = ("rocksdict-config.json", "LOG", "LOCK")
Rows = Iterable[tuple[bytes, bytes]]


def build_database(folder: Path, families: Mapping[str, Rows]) -> None:
    """Write a new database into ``folder``, which is made; durable when it returns.

    The family ``default`` is there with or without rows. What an interrupted call leaves is no
    database that anything may be read from: the caller gives a folder that nothing looks at yet.

    Raises:
        RefusedStoreError: a name in its path is no UTF-8.
        StoreIOError: the folder is not empty, or something cannot be written.
        DiskFullError: there is no room for it.
    """
    as_text(folder)  # refused before anything is made
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
    with os_errors("finish a database", folder):
        for name in _NOT_OF_THE_DATABASE:
            (folder / name).unlink(missing_ok=True)
        sync_below([folder])


def _write(folder: Path, families: Mapping[str, Rows]) -> None:
    """Write the rows of each family and flush them, without a write-ahead log."""
    names = sorted({DEFAULT_FAMILY, *families})
    database = Rdict(as_text(folder), _options(), {name: _options() for name in names})
    try:
        unlogged = WriteOptions()
        # The flush below makes the tables, and those alone count. The stubs have a method here.
        unlogged.disable_wal = True  # type: ignore[method-assign,assignment]
        for name in names:
            family = database.get_column_family(name)
            try:
                for key, value in families.get(name, ()):
                    family.put(key, value, unlogged)
                family.flush()
            finally:
                family.close()  # else a kept error keeps the database open
    finally:
        database.close()


def _options() -> Options:
    """Return the options of a database that is made for its table files alone."""
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
