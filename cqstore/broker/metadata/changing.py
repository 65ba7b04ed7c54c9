"""Changes to tables of a broker's metadata in their current form; other tables stay unchanged.

A JSON file is replaced as a whole, together with its ``.bak``. A database is built in another
folder, read back and compared, and then exchanged with the current one in one system call. So a
complete database exists under that name at every instant. ``change_tables`` keeps the previous
content.

Source: RocketMQ ``ConfigManager.persist``, ``RocksDBConsumerOffsetManager``.
"""

import ctypes
import errno
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from cqstore.broker.metadata.convert import build_beside
from cqstore.broker.metadata.json_repair import Repair, apply_repairs
from cqstore.broker.metadata.json_writer import content_of
from cqstore.broker.metadata.locations import FILES_OF_TABLE, SINGLE_FOLDER, V1_FOLDERS, V2_FOLDER
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.placing import clear_new
from cqstore.broker.metadata.replaced_folder import new_kept_folder
from cqstore.cq_rocksdb.engine.raw_builder import finish_database
from cqstore.cq_rocksdb.engine.raw_writer import RawWriter
from cqstore.store.broker_files.fastjson import encoded
from cqstore.store.broker_files.file_names import CONFIG_FOLDER, LMQ_OFFSETS_FILE
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import make_folder, sync_folder
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.database_copy import copy_database

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def change_tables(paths: StorePaths, made: BrokerMetadata, tables: Collection[Table]) -> Path:
    """Replace ``tables`` of a form by those of ``made``; return the folder of the old ones.

    The caller has the store's lock. If interrupted, each table is the old one or the new one.

    Raises:
        RefusedStoreError: the file system cannot exchange two folders.
        CorruptionError: the data read back differs from the data written; nothing was changed.
        StoreIOError: a file cannot be written.
    """
    if made.form is Form.JSON:
        return _change_files(paths, made, tables)
    build_beside(paths, made)
    kept = new_kept_folder(paths)
    with os_errors("change the metadata", kept):
        make_folder(kept)
        for name in _folders(made.form, tables):
            (paths.new_metadata / CONFIG_FOLDER / name).rename(kept / name)
            exchange(kept / name, paths.config / name)
    clear_new(paths)
    return kept


def delete_keys(paths: StorePaths, name: str, rows: Iterable[tuple[str, bytes]]) -> None:
    """Delete ``rows``, family and key, from the database ``name`` in ``config``. File times stay.

    They are deleted in a copy that shares the tables, which is then exchanged with the database.
    The caller has the store's lock. If interrupted, the old or the new database is there, complete,
    and the next change removes the other one.

    Raises:
        RefusedStoreError: the file system cannot exchange two folders.
        CorruptionError: RocksDB reports damage; nothing was changed.
        StoreIOError: a file cannot be written.
    """
    clear_new(paths)
    there, new = paths.config / name, paths.new_metadata / CONFIG_FOLDER / name
    with os_errors("remove rows of the metadata", new):
        make_folder(new)
        copy_database(there, new, os.link)
    writer = RawWriter(paths, new, ())
    try:
        writer.write((family, key, None) for family, key in rows)
    finally:
        writer.close()
    finish_database(new)
    with os_errors("remove rows of the metadata", new):
        _copy_time(there, new)
        exchange(new, there)
    clear_new(paths)


def exchange(one: Path, other: Path) -> None:
    """Exchange two names durably in one system call.

    Raises:
        RefusedStoreError: the file system does not support this.
        OSError: a name does not exist or cannot be changed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if call is not None:
        names = os.fsencode(one), os.fsencode(other)
        if call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            sync_folder(one.parent)
            sync_folder(other.parent)
            return
        code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        raise RefusedStoreError(
            "cannot change the metadata: the file system does not support the exchange of two"
            " names. Convert to json, make the change, and convert back (cqstore meta convert)",
            path=other,
        )
    raise OSError(code, os.strerror(code), str(other))


def _change_files(paths: StorePaths, made: BrokerMetadata, tables: Collection[Table]) -> Path:
    config = paths.config
    names = [name for table in tables for name in FILES_OF_TABLE[table]]
    there = [name for name in names if name != LMQ_OFFSETS_FILE or exists(config / name)]
    changes = [Repair(name, "", "call", encoded(content_of(name, made))) for name in there]
    return apply_repairs(paths, changes) or paths.replaced


def _copy_time(former: Path, new: Path) -> None:
    """Set the time of all files in ``new`` to that of the newest file in ``former``."""
    youngest = max((each.stat().st_mtime_ns for each in former.iterdir()), default=0)
    for path in new.iterdir():
        os.utime(path, ns=(youngest, youngest))


def _folders(form: Form, tables: Collection[Table]) -> list[str]:
    """Return the folders that contain these tables in a RocksDB form."""
    match form:
        case Form.V1:
            return [V1_FOLDERS[table] for table in tables]
        case Form.SINGLE:
            return [SINGLE_FOLDER]
        case _:
            return [V2_FOLDER]
