"""Database: the LMDB environment, its errors, and the rules of LMDB for processes and threads.

All commits are synced (no ``sync=False``, ``metasync=False`` or ``writemap``): after any crash the
database is that of the last commit. Commits are rare, because units wait in memory until a flush.

LMDB reserves addresses for its whole map, and the file grows only as far as it is written. So the
map is much larger than the file, and it need not grow while readers use it.

Readers of any process register in ``lock.mdb``, so that the writer does not reuse their pages. This
file contains no data, and it is the only one that reading changes.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb

from cqstore.store.errors import (
    ConsumeQueueError,
    CorruptionError,
    RetryableDiskFullError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
    StoreStateError,
    UnsupportedFormatError,
    is_full,
)
from cqstore.store.files import make_folder, sync_folder
from cqstore.store.path_kind import is_file
from cqstore_lmdb.layout import FORMAT, FORMAT_KEY, QUEUES, UNITS

DATA_FILE, LOCK_FILE = "data.mdb", "lock.mdb"
MAP_BYTES = 1 << 40
"""Size of the map, unless a quarter of it is in use when the database is opened."""
MAX_READERS = 1_024
"""Threads of all processes that read at the same time."""
REBUILD = (
    "Close the store, move the folder away and open the store again: the queues are rebuilt from"
    " the commit log"
)
_DAMAGE = (
    lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError,
    lmdb.PanicError, lmdb.IncompatibleError,
)  # fmt: skip


class Database:
    """One open environment. Any thread may read; one thread at a time writes."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        """Open the database in ``folder``; read-only without one, it is empty.

        Raises:
            StoreLockedError: this process has it open already.
            CorruptionError: it is damaged.
            UnsupportedFormatError: its format is not supported.
            ConsumeQueueError: LMDB cannot open it.
        """
        self.folder = folder
        self.is_closed = self.is_forked = False
        self._locks: dict[int, threading.RLock] = {}  # by thread: held during a read
        self._empty: TemporaryDirectory[str] | None = None
        if not read_only:
            make_folder(folder)
        if read_only and not is_file(folder / DATA_FILE):
            self._open_empty()
        else:
            self._open(folder, read_only=read_only)
        if not read_only:
            sync_folder(folder)
        _databases.add(self)

    def _open(self, folder: Path, *, read_only: bool) -> None:
        with self.translated():
            self.env = lmdb.open(
                os.fspath(folder), map_size=_map_bytes(folder), max_dbs=2, readonly=read_only,
                max_readers=MAX_READERS, max_spare_txns=1, readahead=False, mode=0o644,
            )  # fmt: skip
        try:
            with self.translated():
                made = self._open_tables(read_only=read_only)
        except BaseException:
            self.env.close()
            raise
        if not made:
            self.env.close()
            self._open_empty()

    def _open_empty(self) -> None:
        """Open an empty database elsewhere: reading creates nothing in the store."""
        self._empty = TemporaryDirectory(prefix="cqstore-lmdb-")
        self._open(Path(self._empty.name), read_only=False)

    def _open_tables(self, *, read_only: bool) -> bool:
        """Open both tables, created in one commit; return False without any, read-only.

        Raises:
            UnsupportedFormatError: the database is of another program, or of a later version.
        """
        with self.env.begin(write=not read_only) as txn:
            found = txn.get(FORMAT_KEY)
            if found is None and not txn.stat()["entries"]:
                if read_only:
                    return False
                txn.put(FORMAT_KEY, FORMAT)
            elif found != FORMAT:
                raise UnsupportedFormatError(
                    f"not a database of this backend: expected {FORMAT!r}, found {found!r}",
                    path=self.folder,
                )
            if not read_only:
                self._open_both(txn)
        if read_only:  # a handle from a transaction that only reads ends with it
            self._open_both(None)
        return True

    def _open_both(self, txn: Any) -> None:
        """Open both tables; with a transaction that writes, create them."""
        self.queues, self.units = (
            self.env.open_db(name, txn, create=txn is not None) for name in (QUEUES, UNITS)
        )

    # ---- calls

    def read_lock(self) -> threading.RLock:
        """Return the lock that the calling thread holds while it reads; ``close`` waits for it.

        Raises:
            StoreClosedError: the database is closed.
            StoreStateError: this is a child of the process that opened it.
        """
        self.check_open()
        thread = threading.get_ident()
        return self._locks.get(thread) or self._locks.setdefault(thread, threading.RLock())

    def begin(self, *, write: bool = False) -> Any:
        """Return a transaction; the thread holds its ``read_lock``."""
        self.check_open()
        return self.env.begin(write=write)

    def check_open(self) -> None:
        """Refuse a call that is not possible any more.

        Raises:
            StoreStateError: the process has forked since the database was opened.
            StoreClosedError: the database has been closed.
        """
        if self.is_forked:
            raise StoreStateError(
                "the LMDB queues were opened before a fork: open the store again", path=self.folder
            )
        if self.is_closed:
            raise StoreClosedError("the LMDB queues are closed", path=self.folder)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate the errors of the block."""
        try:
            yield
        except lmdb.Error as exc:
            raise self.error_of(exc) from exc

    def error_of(self, exc: Exception) -> StoreError:
        """Return the error of this project for an error of LMDB."""
        if self.is_closed:
            return StoreClosedError("the LMDB queues were closed during the call", path=self.folder)
        if "already open in this process" in str(exc):
            return StoreLockedError(
                "the LMDB queues are already in use by this process", path=self.folder
            )
        if isinstance(exc, _DAMAGE):
            return CorruptionError(
                f"the LMDB queues are damaged: {exc}. {REBUILD}", path=self.folder
            )
        if isinstance(exc, lmdb.MapFullError):
            return ConsumeQueueError(
                "the map of the LMDB queues is full: close the store and open it again, which"
                " makes the map larger",
                path=self.folder,
            )
        if is_full(OSError(getattr(exc, "code", 0), "")):
            return RetryableDiskFullError(f"cannot write the LMDB queues: {exc}", path=self.folder)
        return ConsumeQueueError(f"LMDB: {exc}", path=self.folder)

    def size_bytes(self) -> int:
        """Return the allocated bytes of the database's file."""
        return (self.folder / DATA_FILE).stat().st_blocks * 512 if self._empty is None else 0

    def close(self) -> None:
        """Refuse further calls, wait for readers, and release the database."""
        self.is_closed = True
        for lock in list(self._locks.values()):
            with lock:
                pass
        if not self.is_forked:
            self.env.close()
        if self._empty is not None:
            self._empty.cleanup()

    def leave_to_parent(self) -> None:
        """Refuse all calls: this is a child of the process that opened the database."""
        self.is_forked = True


def has_database(folder: Path) -> bool:
    """Return whether ``folder`` contains a database with more than its two first pages.

    A process that is killed while it creates one may leave an empty file, or these pages.
    """
    data = folder / DATA_FILE
    return is_file(data) and data.stat().st_size > 2 * os.sysconf("SC_PAGESIZE")


def copy_database(folder: Path, target: Path) -> None:
    """Copy the last commit of the database in ``folder``, also beside a writer, into ``target``."""
    for each in list(_databases):  # a process cannot open it a second time
        if not each.is_closed and each.folder.resolve() == folder.resolve():
            with each.read_lock(), each.translated():
                each.env.copy(os.fspath(target))
            return
    opened = Database(folder, read_only=True)
    try:
        with opened.translated():
            opened.env.copy(os.fspath(target))
    finally:
        opened.close()


def _map_bytes(folder: Path) -> int:
    data = folder / DATA_FILE
    return max(MAP_BYTES, 4 * data.stat().st_size if is_file(data) else 0)


_databases: "weakref.WeakSet[Database]" = weakref.WeakSet()


def _after_fork() -> None:
    for each in _databases:
        each.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
