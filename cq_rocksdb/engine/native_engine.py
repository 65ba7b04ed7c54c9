"""RocksEngine on a configurable RocksDB library, through its C API.

The compiled modules move columns and buffers without a Python object per unit, and run the
compaction filter; this module has the options, the order of opening and closing, and the errors. A
process loads one library, which ``native_library`` selects.

Source: RocketMQ ``ConsumeQueueRocksDBStorage``, ``ConsumeQueueCompactionFilterFactory``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_rocksdb.engine import _append, _capi, _table_writer
from cqstore.cq_rocksdb.engine._database import Database
from cqstore.cq_rocksdb.engine._snapshot import Snapshot
from cqstore.cq_rocksdb.engine._write_batch import WriteBatchColumns
from cqstore.cq_rocksdb.engine.call_gate import CallGate, gated
from cqstore.cq_rocksdb.engine.database_options import DatabaseOptions
from cqstore.cq_rocksdb.engine.native_options import database_objects
from cqstore.cq_rocksdb.engine.open_databases import Claim, HeldResources, Library, opening
from cqstore.cq_rocksdb.engine.private_folder import PrivateFolder
from cqstore.cq_rocksdb.engine.rocks_engine import (
    EngineBatch,
    Family,
    LiveFile,
    PackedUnits,
    TableWriter,
    append_job,
    units_in_key_order,
)
from cqstore.cq_rocksdb.keys import (
    MAX_TOPIC_BYTES,
    OFFSET_ENTRY,
    OffsetEntry,
    max_key,
    queue_prefix,
    unit_key,
)
from cqstore.cq_rocksdb.library.native_library import NativeLibrary, find_library
from cqstore.store.concurrency.checked_lock import CheckedLock, process_lock
from cqstore.store.errors import (
    CorruptionError,
    NestedCallError,
    ReadOnlyStoreError,
    StoreError,
    StoreStateError,
    UnsupportedFormatError,
    os_errors,
)
from cqstore.store.files import make_folder, reading
from cqstore.store.path_kind import matching
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, QueueKey, UnitBatch

_STOPS = (BlockStop.LIMIT, BlockStop.END, BlockStop.HOLE)
_TOO_SHORT = 3
_MAX_TIME = 1 << 63
_MAX_UNITS = 1 << 20
"""Maximum units in the buffer of one scan; a caller may request more than a queue has."""
_FIRST_UNITS = 1 << 12
_LOG_HEAD = 4096
_VERSION_IN_NAME = re.compile(r"(?:rocksdbjni-|librocksdb\.so\.)(\d+\.\d+\.\d+)")
_VERSION = re.compile(rb"RocksDB version: ([0-9.]+)")


class _LoadedLibrary:
    """The RocksDB library that this process has loaded: one for all databases."""

    lock = process_lock("the loading of RocksDB")
    library: NativeLibrary | None = None
    lacking: tuple[str, ...] = ()


def load_library(configured: Path | None) -> NativeLibrary:
    """Load RocksDB unless it is loaded; return the loaded library.

    Raises:
        UnsupportedFormatError: no library was found, or the library lacks functions.
        StoreStateError: a library other than ``configured`` is already loaded.
    """
    with _LoadedLibrary.lock.entry():
        loaded = _LoadedLibrary.library
        if loaded is not None:
            if configured is not None and find_library(configured).path != loaded.path:
                raise StoreStateError(
                    f"cannot load a second RocksDB library: {loaded.source} is already loaded",
                    path=configured,
                )
            return loaded
        found = find_library(configured)
        try:
            lacking = _capi.load(os.fsencode(found.path))
        except _capi.MissingSymbolError as exc:
            raise UnsupportedFormatError(
                f"the RocksDB library {found.source} has no {', '.join(exc.args[0])}",
                path=found.path,
            ) from exc
        except OSError as exc:
            raise UnsupportedFormatError(
                f"the RocksDB library {found.source} cannot be loaded: {exc}", path=found.path
            ) from exc
        _LoadedLibrary.library, _LoadedLibrary.lacking = found, tuple(lacking)
        return found


class NativeEngine:
    """An open database; see ``RocksEngine`` for the guarantees."""

    name: ClassVar[str] = "native"
    filters_expired: ClassVar[bool] = True

    def __init__(
        self,
        folder: Path,
        options: DatabaseOptions,
        log_folder: Path,
        *,
        read_only: bool,
        is_empty: bool = False,
        library: Path | None = None,
    ) -> None:
        """Open the database in ``folder``; read-write: create it if it is missing.

        RocksDB's own log is written to ``log_folder``. A read-only open neither writes nor locks
        anything in ``folder``, and treats a ``folder`` without a database, or with ``is_empty``, as
        an empty database.

        Raises:
            StoreLockedError: the database is open read-write in this or another process.
            RocksDBError: RocksDB cannot open the database.
            UnsupportedFormatError: there is no usable library.
        """
        self.folder = folder
        self._read_only = read_only
        self._library = load_library(library)
        self._gate = CallGate(folder, lambda exc: isinstance(exc, _capi.Error))
        # If the library flushes families one by one, no write may happen in between.
        self.write_lock = CheckedLock("a write to the RocksDB queues")
        self._held = HeldResources()
        self._builds_batches = False
        try:
            self._open(options, log_folder, is_empty=is_empty)
        except BaseException:  # also asynchronous ones, whose frames keep this object
            with suppress(StoreError):
                self.close(flush=False)
            raise

    def _open(self, options: DatabaseOptions, log_folder: Path, *, is_empty: bool) -> None:
        """Open the database; read-only: a private folder of links to its files."""
        folder, opened, really_read_only = self.folder, self.folder, self._read_only
        if self._read_only:
            self._held.private = private = PrivateFolder(folder, is_empty=is_empty)
            opened = log_folder = private.path
            really_read_only = private.holds_database
        else:
            for each in (folder, log_folder):
                with os_errors("create the folder", each):
                    make_folder(each)
            self._held.claim = Claim(folder)
        self._log_folder = log_folder
        self._objects = database_objects(options, log_folder)
        families = self._objects.families
        self._number = {name: number for number, name in enumerate(families)}
        with self._gate.translation(), opening(folder, Library.COMPILED):
            self._database = Database(
                os.fsencode(opened), [name.encode() for name in families],
                list(families.values()), really_read_only,
            )  # fmt: skip
        if not self._read_only and Family.OFFSET in families:
            self._builds_batches = _builds_batches(self._database, self._number[Family.OFFSET])

    # ---- writing

    @gated
    def write(self, batch: EngineBatch) -> None:
        """Apply ``batch`` without the WAL, its units in key order."""
        columns = self._columns(batch)
        with self.write_lock.entry():
            self._writable()
            self._database.write(columns)

    def _columns(self, batch: EngineBatch) -> WriteBatchColumns:
        """Return ``batch`` as columns for the compiled write, units in key order."""
        prefixes, number = batch.prefixes, self._number
        index, offsets, units = batch.prefix_index, batch.queue_offset, batch.units
        order = units_in_key_order(prefixes, index, offsets)
        if order is not None:
            index, offsets, units = index[order], offsets[order], units[order]
        starts = np.fromiter(accumulate(map(len, prefixes), initial=0), np.int64, len(prefixes) + 1)
        return WriteBatchColumns(
            b"".join(prefixes), starts, index, offsets, np.ascontiguousarray(units),
            [(number[family], start, end) for family, start, end in batch.delete_ranges],
            [(number[family], key) for family, key in batch.deletes],
            number[batch.puts_family], batch.puts,
        )  # fmt: skip

    def append_job(self, batch: UnitBatch) -> _append.AppendJob | None:
        """Return the job for a batch, unless RocksDB encodes a write in another form."""
        return append_job(batch) if self._builds_batches else None

    @gated
    def append(
        self, job: _append.AppendJob, put: tuple[bytes, bytes], others: EngineBatch | None = None
    ) -> None:
        """Build the write in RocksDB's own format, and apply it without the WAL."""
        columns = None if others is None else self._columns(others)
        with self.write_lock.entry():
            self._writable()
            job.write(self._database, self._number[Family.OFFSET], *put, columns)

    @gated
    def flush(self) -> None:
        """Flush all families at once; if the library cannot, one by one, units first."""
        self._writable()
        self._flush()

    def _flush(self) -> None:
        if not self._database.flush_all():
            with self.write_lock.entry():
                for number in self._number.values():  # units first, see RocksdictEngine.flush
                    self._database.flush(number)

    @gated
    def compact(self, family: str) -> None:
        """Compact a whole family, with its last level; ends early after ``cancel_compaction``."""
        self._writable()
        self._database.compact(self._number[family], None, None)

    @gated
    def cancel_compaction(self) -> bool:
        """Make running ``compact`` calls return, and wait until they have."""
        self._database.cancel_compaction()
        self._database.allow_compaction()
        return True

    def expire_below(self, min_phy_offset: int) -> None:
        """Make later compactions drop units below ``min_phy_offset``; never lowers it."""
        self._database.filter.raise_minimum(min_phy_offset)

    @property
    def dropped_units(self) -> int:
        """Return how many units compactions have dropped since the database was opened."""
        dropped: int = self._database.filter.dropped
        return dropped

    # ---- table files

    @gated
    def table_writer(self, family: str, path: Path) -> TableWriter:
        """Begin a table file at ``path``, for ``ingest``."""
        return _table_writer.NativeTableWriter(os.fsencode(path), self._objects.families[family])

    @gated
    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Ingest table files, all or none; they are moved if the file system allows it."""
        self._writable()
        self._database.ingest(self._number[family], [os.fsencode(path) for path in paths])

    # ---- reading

    @gated
    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``."""
        value: bytes | None = self._database.get(self._number[family], key)
        return value

    @gated
    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of ``keys``."""
        values: list[bytes | None] = self._database.multi_get(self._number[family], list(keys))
        return values

    @gated
    def search(
        self, prefix: bytes, ends: tuple[int, int], timestamp: int, log: tuple[int, int],
        *, upper: bool,
    ) -> int | None:  # fmt: skip
        """Search by time, see ``RocksEngine``."""
        if not -_MAX_TIME <= timestamp < _MAX_TIME:
            return None
        found: int = self._database.search(prefix, *ends, timestamp, upper, *log)
        return found

    @gated
    def scan_units(self, prefix: bytes, queue_offset: int, count: int) -> PackedUnits:
        """Return consecutive units, see ``RocksEngine``."""
        if count <= _FIRST_UNITS:
            data, stop, following = self._database.scan_units(prefix, queue_offset, count)
        else:  # may be far more than exist: do not allocate for all
            data, stop, following = self._scan_long(prefix, queue_offset, count)
        _check_length(stop, prefix, following)
        return PackedUnits(data, _STOPS[stop], following)

    def _scan_long(self, prefix: bytes, queue_offset: int, count: int) -> tuple[bytes, int, int]:
        """Scan like ``scan_units``, in steps that double, so that memory follows the result."""
        parts, size, at = list[bytes](), _FIRST_UNITS, queue_offset
        while True:
            size = min(size, queue_offset + count - at)
            data, stop, following = self._database.scan_units(prefix, at, size)
            parts.append(data)
            at += len(data) // QUEUE_UNIT.size
            if stop or at >= queue_offset + count:
                return b"".join(parts), stop, following
            size = min(2 * size, _MAX_UNITS)

    @gated
    def scan_into(
        self, prefix: bytes, queue_offset: int, target: NDArray[np.uint8]
    ) -> tuple[int, BlockStop, int]:
        """Fill ``target``, see ``RocksEngine``."""
        rows, stop, following = self._database.scan_into(prefix, queue_offset, target)
        _check_length(stop, prefix, following)
        return rows, _STOPS[stop], following

    def first_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Return offset and value of the queue's first unit from ``queue_offset`` on."""
        return self._neighbour(prefix, queue_offset, forward=True)

    def last_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Return offset and value of the queue's last unit up to ``queue_offset``."""
        return self._neighbour(prefix, queue_offset, forward=False)

    @gated
    def _neighbour(
        self, prefix: bytes, queue_offset: int, *, forward: bool
    ) -> tuple[int, bytes] | None:
        """Return offset and value of the next unit at ``queue_offset`` or beyond; ``None``: none.

        ``forward``: towards higher offsets.
        """
        found: tuple[int, bytes] | None = self._database.neighbour(prefix, queue_offset, forward)
        if found is not None and len(found[1]) < QUEUE_UNIT.size:
            _check_length(_TOO_SHORT, prefix, found[0])
        return found

    @gated
    def scan(self, family: str, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return entries of a range."""
        rows: list[tuple[bytes, bytes]] = self._database.scan(
            self._number[family], start, end, limit
        )
        return rows

    @contextmanager
    def snapshot(self) -> Iterator["NativeSnapshot"]:
        """Yield the database as of now; ``close`` waits until the block is left."""
        with self._gate.lock():
            if self._gate.shut:
                self._gate.refuse()
            try:
                held = Snapshot(self._database)
            except _capi.Error as exc:
                self._gate.raise_closed(exc)
                raise
            try:
                yield NativeSnapshot(held, self._gate, self._number)
            finally:
                held.release()

    # ---- facts

    @gated
    def property_value(self, family: str, name: str) -> str | None:
        """Return a property of RocksDB."""
        value: str | None = self._database.property_value(self._number[family], name.encode())
        return value

    @gated
    def approximate_size(self, family: str, start: bytes, end: bytes) -> int:
        """Return the approximate size of a range in table files, in bytes."""
        size: int = self._database.approximate_size(self._number[family], start, end)
        return size

    @gated
    def live_files(self) -> list[LiveFile]:
        """Return the table files."""
        rows = self._database.live_files()
        return [
            LiveFile(name.lstrip("/"), size, level, entries, deletions, family)
            for name, size, level, entries, deletions, family in rows
        ]

    def versions(self) -> dict[str, str]:
        """Return the library, its version, and missing functions."""
        lacking = sorted({*_LoadedLibrary.lacking, *self._objects.lacking})
        return {
            "RocksDB": self._version(),
            "RocksDB library": self._library.source,
            "the library lacks": ", ".join(lacking) or "no function that is used",
        }

    def _version(self) -> str:
        """Return the version from the head of RocksDB's own log; the C API does not report it.

        A read-only open may not have written it yet: then return the version in the library's name.
        """
        logs = sorted(matching(self._log_folder, "*LOG"), key=lambda path: path.stat().st_mtime_ns)
        for path in reversed(logs):
            with reading(path) as log:
                found = _VERSION.search(log.read(_LOG_HEAD))
            if found:
                return found[1].decode()
        named = _VERSION_IN_NAME.search(f"{self._library.source} {self._library.path.resolve()}")
        return named[1] if named else "unknown"

    def close(self, *, flush: bool = True) -> None:
        """Close the database; the private folder of a read-only open is removed.

        Raises:
            NestedCallError: this thread is in the middle of a call or a write; nothing was done.
            RocksDBError: the flush failed; the database is closed.
        """
        self.write_lock.entry()  # refuses a close within a write of this thread
        if self._gate.is_inside and self._database.snapshots:
            raise NestedCallError(
                "cannot close the RocksDB queues: this thread is inside a call to them, and other"
                " threads may be reading from an open snapshot"
            )
        last = self._flush if flush and not self._read_only else None
        self._gate.close(last, self._close_database, self._held.release)

    def _close_database(self) -> None:
        if "_database" in self.__dict__:  # it was opened
            self._database.close()

    # ---- inside

    def _writable(self) -> None:
        """Refuse to write to a database that was opened read-only.

        Raises:
            ReadOnlyStoreError: the database is read-only.
        """
        if self._read_only:
            raise ReadOnlyStoreError("the RocksDB queues are open read-only", path=self.folder)


class NativeSnapshot:
    """The database as of one moment, see ``EngineSnapshot``."""

    def __init__(self, held: Snapshot, gate: CallGate, number: Mapping[str, int]) -> None:
        self._held, self._gate, self._number = held, gate, number

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``."""
        with self._gate.translation():
            value: bytes | None = self._held.get(self._number[family], key)
        return value

    def scan_into(
        self, prefix: bytes, queue_offset: int, target: NDArray[np.uint8]
    ) -> tuple[int, BlockStop, int]:
        """Fill ``target`` with consecutive units, as ``NativeEngine.scan_into``."""
        with self._gate.translation():
            rows, stop, following = self._held.scan_into(prefix, queue_offset, target)
        _check_length(stop, prefix, following)
        return rows, _STOPS[stop], following


def _builds_batches(database: Database, family: int) -> bool:
    """Return whether this RocksDB encodes a write in the same bytes as a job does."""
    batch = UnitBatch()
    batch.add(QueueKey("t" * MAX_TOPIC_BYTES, 1), 0, 1, 2, 3, 4)
    prefix = queue_prefix(*batch.queues[0])
    units = [(unit_key(prefix, 0), bytes(batch.units))]
    puts = [(max_key(prefix), OFFSET_ENTRY.pack(OffsetEntry(1, 0))), (b"key", b"value")]
    job = append_job(batch)
    return job.built(database, family, *puts[1]) == _append.batch_bytes(
        database, family, units, puts
    )


def _check_length(stop: int, prefix: bytes, queue_offset: int) -> None:
    """Raise an error if a scan ended at a unit whose value is too short.

    Raises:
        CorruptionError: the scan ended at such a unit.
    """
    if stop == _TOO_SHORT:
        raise CorruptionError(
            f"the value of unit {queue_offset} of queue {prefix.hex()} is too short",
            expected=f"{QUEUE_UNIT.size} bytes", got="fewer",
        )  # fmt: skip
