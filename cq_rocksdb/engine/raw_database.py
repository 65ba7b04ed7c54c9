"""RawDatabase: any RocksDB's keys and values as they are, read-only.

The databases of a broker's metadata are small and have families of their own, so nothing here
depends on the families and keys of consume queues.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

from cqstore.cq_rocksdb.engine.errors import disk_error, is_of_the_disk, is_rocksdicts
from cqstore.cq_rocksdb.engine.private_folder import PrivateFolder
from cqstore.store.errors import CorruptionError

_KEYS_ESTIMATE = "rocksdb.estimate-num-keys"


class RawDatabase:
    """The database in ``folder``, at the time of its opening. One thread at a time.

    Opened through links in a private folder, so no byte of ``folder`` changes. Records that its
    write-ahead log alone holds are seen. While another process writes to it, the newest of its
    records may be missing. A write-ahead log that is damaged is read as far as a broker reads it,
    and ``fault`` says that it is; one that only ends in the middle of a record is not damaged.
    """

    def __init__(self, folder: Path) -> None:
        """Open the database through links.

        Raises:
            CorruptionError: RocksDB cannot read it, or it is gone.
            StoreIOError: the private folder cannot be made or written to.
            DiskFullError: there is no room in it.
        """
        self.folder = folder
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

        They begin with the first key that is not less than ``start``.

        Raises:
            CorruptionError: a block cannot be read; what came before it was yielded.
        """
        if family not in self.families:
            return
        with _rocksdb_errors(self.folder):
            rows = self._database.get_column_family(family).iter()
            rows.seek(start)
            while rows.valid():
                yield bytes(rows.key()), bytes(rows.value())
                rows.next()
            rows.status()  # an iterator ends at an unreadable block as it does at the end

    def keys_estimate(self, family: str) -> int | None:
        """Return about how many keys a family has; ``None``: none, or not reported."""
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
        """Close it and remove the private folder; may be called again."""
        self._database.close()
        self._private.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def _options() -> Options:
    options = Options(raw_mode=True)
    options.set_max_file_opening_threads(1)  # as many start with each opening: 16, if not set
    return options


@contextmanager
def _rocksdb_errors(folder: Path) -> Iterator[None]:
    """Turn the ``Exception`` that rocksdict raises into an error that names ``folder``."""
    try:
        yield
    except Exception as exc:
        if not is_rocksdicts(exc):
            raise
        sentence = f"RocksDB cannot read the database: {exc}"
        if is_of_the_disk(str(exc)):
            raise disk_error(sentence, folder) from exc
        raise CorruptionError(sentence, path=folder) from exc
