"""RawDatabase: reads the raw keys and values of any RocksDB.

The databases of a broker's metadata are small and have different families, so nothing here depends
on the families and keys of consume queues.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict, RdictIter

from cqstore.cq_rocksdb.engine.errors import disk_error, is_of_the_disk, is_rocksdicts
from cqstore.cq_rocksdb.engine.open_databases import Library, note_use
from cqstore.cq_rocksdb.engine.private_folder import PrivateFolder
from cqstore.store.errors import CorruptionError

_KEYS_ESTIMATE = "rocksdb.estimate-num-keys"


class RawDatabase:
    """The database in ``folder``, at the time of its opening. One thread at a time.

    Opened through links in a private folder, so no byte of ``folder`` changes. Includes records
    that are only in the write-ahead log. While another process writes to the database, its newest
    records may be missing. A damaged write-ahead log is read up to where a broker reads it, and
    ``fault`` reports the damage; a log that ends in the middle of a record is not damaged.
    """

    def __init__(self, folder: Path) -> None:
        """Open the database through links.

        Raises:
            CorruptionError: RocksDB cannot read the database, or it does not exist.
            StoreIOError: the private folder cannot be created or written to.
            DiskFullError: there is no space for the private folder.
        """
        self.folder = folder
        note_use(Library.ROCKSDICT)
        self._private = PrivateFolder(folder)
        self.fault: CorruptionError | None = None
        try:
            with _rocksdb_errors(folder):
                self.families = frozenset(Rdict.list_cf(str(self._private.path), _options()))
            try:
                self._database = self._open(DBRecoveryMode.tolerate_corrupted_tail_records())
            except CorruptionError as exc:
                self._database = self._open(DBRecoveryMode.point_in_time())
                self.fault = exc
        except BaseException:
            self._private.release()
            raise

    def _open(self, mode: DBRecoveryMode) -> Rdict:
        """Open the private copy read-only; ``mode`` is the WAL recovery mode."""
        options = _options()
        options.set_wal_recovery_mode(mode)
        families = {name: _options() for name in self.families}
        with _rocksdb_errors(self.folder):
            return Rdict(
                str(self._private.path), options, families, access_type=AccessType.read_only()
            )

    def items(self, family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a family in key order; nothing if there is no such family.

        Begins with the first key that is not less than ``start``.

        Raises:
            CorruptionError: a block cannot be read; entries before it were yielded.
        """
        if family not in self.families:
            return
        with _rocksdb_errors(self.folder):
            rows = self._database.get_column_family(family).iter()
            rows.seek(start)
            while rows.valid():
                yield bytes(rows.key()), bytes(rows.value())
                rows.next()
            rows.status()  # an iterator also ends at an unreadable block

    def keys(self, family: str, prefix: bytes) -> list[bytes]:
        """Return the keys of a family that begin with ``prefix``, in order.

        Raises:
            CorruptionError: a block cannot be read.
        """
        if family not in self.families:
            return []
        with _rocksdb_errors(self.folder):
            return keys_of(self._database.get_column_family(family).iter(), prefix)

    def first_key(self, family: str, start: bytes) -> bytes | None:
        """Return the first key of a family that is not less than ``start``; ``None``: no such key.

        Raises:
            CorruptionError: a block cannot be read.
        """
        return next((key for key, _ in self.items(family, start)), None)

    def keys_estimate(self, family: str) -> int | None:
        """Return the approximate number of keys in a family; ``None``: no keys, or not reported."""
        if family not in self.families:
            return None
        with _rocksdb_errors(self.folder):
            found = self._database.get_column_family(family).property_value(_KEYS_ESTIMATE)
        return None if found is None else int(found)

    def last_key_before(self, family: str, end: bytes) -> bytes | None:
        """Return the last key of a family that is less than ``end``; ``None``: there is none.

        Raises:
            CorruptionError: a block cannot be read.
        """
        if family not in self.families:
            return None
        with _rocksdb_errors(self.folder):
            rows = self._database.get_column_family(family).iter()
            rows.seek_for_prev(end)
            if rows.valid() and bytes(rows.key()) == end:
                rows.prev()
            found = bytes(rows.key()) if rows.valid() else None
            rows.status()
        return found

    def close(self) -> None:
        """Close the database and remove the private folder; may be called again."""
        self._database.close()
        self._private.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def keys_of(rows: RdictIter, prefix: bytes) -> list[bytes]:
    """Return the keys that begin with ``prefix``, in order."""
    found = list[bytes]()
    rows.seek(prefix)
    while rows.valid():
        key = bytes(rows.key())
        if not key.startswith(prefix):
            return found
        found.append(key)
        rows.next()
    rows.status()  # an iterator also ends at an unreadable block
    return found


def _options() -> Options:
    options = Options(raw_mode=True)
    options.set_max_file_opening_threads(1)  # RocksDB starts this many with each open; default: 16
    return options


@contextmanager
def _rocksdb_errors(folder: Path) -> Iterator[None]:
    """Translate the ``Exception`` of rocksdict into an error that names ``folder``."""
    try:
        yield
    except Exception as exc:
        if not is_rocksdicts(exc):
            raise
        sentence = f"RocksDB cannot read the database: {exc}"
        if is_of_the_disk(str(exc)):
            raise disk_error(sentence, folder) from exc
        raise CorruptionError(sentence, path=folder) from exc
