"""RawWriter: an open RocksDB with any families, for writes of a few rows.

For a broker's metadata. A write is durable when it returns, and all or nothing after a kill. The
files have the format of ``raw_builder``. As in a broker, the rows are first in the write-ahead log.

Source: RocketMQ ``ConfigHelper.createConfigDBOptions``, ``createConfigColumnFamilyOptions``.
"""

import ctypes
import os
import traceback
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rocksdict import (
    ColumnFamily,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from cqstore.cq_rocksdb.engine.errors import RocksDBStatus, disk_error, is_rocksdicts
from cqstore.cq_rocksdb.engine.open_databases import Claim, HeldResources, Library, opening
from cqstore.cq_rocksdb.engine.raw_builder import DEFAULT_FAMILY, raw_options
from cqstore.cq_rocksdb.engine.raw_database import keys_of
from cqstore.cq_rocksdb.folders import as_text, log_folder
from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import CorruptionError, StoreStateError, os_errors
from cqstore.store.files import make_folder
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

Row = tuple[str, bytes, bytes | None]
"""Family, key and value; ``None`` deletes the key."""
_WRITE_BUFFER_BYTES = 8 << 20
_WAL_BYTES = 16 << 20
"""Size of the write-ahead log above which memtables are flushed. A family that changes little would
otherwise keep a log of hundreds of MiB, which each open replays. A broker flushes once an hour."""
_INFO_LOG_BYTES, _INFO_LOGS = 1 << 20, 2


class RawWriter:
    """The database in ``folder``. One thread at a time.

    After a failed write, close it and open it again: RocksDB then refuses all writes.
    """

    def __init__(self, paths: StorePaths, folder: Path, families: Collection[str]) -> None:
        """Open the database in a store's folder, or create it; missing ``families`` are created.

        Raises:
            StoreLockedError: this process has the database open for writing.
            StoreStateError: RocksDB was in use before this process was forked.
            CorruptionError: RocksDB cannot read the database.
            StoreIOError: it cannot be opened or created.
            DiskFullError: there is not enough disk space.
        """
        self.folder = folder
        self._pid = os.getpid()
        self._held = HeldResources()
        self._handles: dict[str, ColumnFamily] = {}
        self._database: Rdict | None = None
        _writers.add(self)
        try:
            self._open({DEFAULT_FAMILY, *families}, log_folder(paths))
        except BaseException:  # also asynchronous ones, whose frames keep this object
            self.close()
            raise

    def _open(self, families: set[str], own_log: Path) -> None:
        path = as_text(self.folder)
        as_text(own_log)
        with opening(self.folder, Library.ROCKSDICT):
            for each in (self.folder, own_log):
                with os_errors("create the folder of a database", each):
                    make_folder(each)
            self._held.claim = Claim(self.folder)
            with _rocksdb_errors("open", self.folder):
                if exists(self.folder / CURRENT):
                    families.update(Rdict.list_cf(path, raw_options()))
                names = sorted(families)
                options = _options(own_log)
                self._database = Rdict(path, options, {name: _options(own_log) for name in names})
                for name in names:
                    self._handles[name] = self._database.get_column_family_handle(name)

    def write(self, rows: Iterable[Row]) -> None:
        """Write all ``rows``, in order, durably; families must be among those of the opening.

        Raises:
            StoreStateError: the writer is closed, or belongs to the parent of this process.
            CorruptionError: RocksDB reports damage.
            StoreIOError: the rows cannot be written; after a kill, all or none are there.
        """
        database = self._usable()
        batch = WriteBatch(raw_mode=True)
        for family, key, value in rows:
            if value is None:
                batch.delete(key, self._handles[family])
            else:
                batch.put(key, value, self._handles[family])
        synced = WriteOptions()
        synced.sync = True
        with _rocksdb_errors("write to", self.folder):
            database.write(batch, synced)

    def keys(self, prefix: bytes) -> list[bytes]:
        """Return the keys of the family ``default`` that begin with ``prefix``, in order.

        rocksdict flushes any other family when the object to read it is released.

        Raises:
            StoreStateError: as for ``write``.
            CorruptionError: a block cannot be read.
        """
        with _rocksdb_errors("read", self.folder):
            rows = self._usable().iter()
            try:
                return keys_of(rows, prefix)
            finally:
                del rows  # the frame of an exception would keep the database open

    def close(self) -> None:
        """Close the database. May be called again; does nothing in a child of the process.

        An error is not raised: what ``write`` wrote is durable in the write-ahead log.
        """
        if self._pid != os.getpid():
            return
        self._handles.clear()
        try:
            if self._database is not None:
                with suppress(Exception):
                    self._database.close()
                self._database = None
        finally:
            self._held.release()

    def _usable(self) -> Rdict:
        """Return the open database.

        Raises:
            StoreStateError: it is closed, or belongs to the parent of this process.
        """
        if self._database is None or self._pid != os.getpid():
            raise StoreStateError(
                "the broker's database is closed, or was opened before a fork: open the log again",
                path=self.folder,
            )
        return self._database

    def leave_to_parent(self) -> None:
        """Prevent a child of the process that opened the database from closing it.

        rocksdict closes a database without references, which would wait for threads that the fork
        did not copy.
        """
        for held in (self._database, *self._handles.values()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


_writers: "weakref.WeakSet[RawWriter]" = weakref.WeakSet()


def _after_fork() -> None:
    for writer in _writers:
        writer.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _options(own_log: Path) -> Options:
    options = raw_options()
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_total_wal_size(_WAL_BYTES)
    options.set_db_log_dir(as_text(own_log))
    options.set_max_log_file_size(_INFO_LOG_BYTES)
    options.set_keep_log_file_num(_INFO_LOGS)
    return options


@contextmanager
def _rocksdb_errors(what: str, folder: Path) -> Iterator[None]:
    """Translate the ``Exception`` of rocksdict into an error that names ``folder``."""
    try:
        yield
    except Exception as exc:
        traceback.clear_frames(exc.__traceback__)  # so that no iterator lives on in them
        if not is_rocksdicts(exc):
            raise
        sentence = f"RocksDB cannot {what} the database: {exc}"
        if RocksDBStatus.of(str(exc)) is RocksDBStatus.CORRUPTION:
            raise CorruptionError(sentence, path=folder) from exc
        raise disk_error(sentence, folder) from exc
