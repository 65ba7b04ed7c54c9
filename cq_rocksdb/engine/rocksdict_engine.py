"""RocksEngine on rocksdict: the only module that imports it.

rocksdict raises bare ``Exception`` with RocksDB's status text. It has no compaction filter.

Invariants: no object of rocksdict (iterator, family handle) outlives the call or the engine,
because it would keep the database's LOCK after ``close``; and no iterator outlives its
``ReadOptions``, because it reads the upper bound in their memory.
"""

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from importlib.metadata import version
from itertools import islice, repeat
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rocksdict import (
    AccessType,
    ColumnFamily,
    DbClosedError,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from cqstore.cq_rocksdb.engine._append import AppendJob
from cqstore.cq_rocksdb.engine.call_gate import CallGate, gated
from cqstore.cq_rocksdb.engine.database_options import DatabaseOptions
from cqstore.cq_rocksdb.engine.errors import is_rocksdicts
from cqstore.cq_rocksdb.engine.open_databases import Claim, HeldResources, Library, opening
from cqstore.cq_rocksdb.engine.private_folder import PrivateFolder
from cqstore.cq_rocksdb.engine.rocks_engine import (
    EngineBatch,
    EngineSnapshot,
    LiveFile,
    PackedUnits,
    append_job,
    job_batch,
    row_bytes,
    unit_columns,
)
from cqstore.cq_rocksdb.engine.rocksdict_options import check_compressions, family_options
from cqstore.cq_rocksdb.folders import as_text
from cqstore.cq_rocksdb.keys import UNIT_PLACE, unit_key
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import (
    CorruptionError,
    ReadOnlyStoreError,
    StoreError,
    UnsupportedFormatError,
    os_errors,
)
from cqstore.store.files import make_folder
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, UnitBatch

_LARGEST_OFFSET = LONG_MAX
_ROCKSDB_INSIDE = {"0.3.29": "9.8.4"}
"""RocksDB version, which rocksdict does not report; a test compares it with RocksDB's log."""


def _is_rocksdicts(exc: BaseException) -> bool:
    return is_rocksdicts(exc) or isinstance(exc, DbClosedError)


class RocksdictEngine:
    """An open database; see ``RocksEngine`` for the guarantees."""

    name: ClassVar[str] = "rocksdict"
    filters_expired: ClassVar[bool] = False

    def __init__(
        self, folder: Path, options: DatabaseOptions, log_folder: Path,
        *, read_only: bool, is_empty: bool = False,
    ) -> None:  # fmt: skip
        """Open the database in ``folder``; read-write: create it if it is missing.

        RocksDB's own log is written to ``log_folder`` (RocketMQ also keeps it out of the database).
        A read-only open neither writes nor locks anything in ``folder``, and treats a ``folder``
        without a database, or with ``is_empty``, as an empty database.

        Raises:
            StoreLockedError: the database is open read-write in this or another process.
            RocksDBError: RocksDB cannot open the database.
        """
        self.folder = folder
        self._read_only = read_only
        self._gate = CallGate(folder, _is_rocksdicts)
        # No write may happen between the flushes of two families.
        self.write_lock = CheckedLock("a write to the RocksDB queues")
        self._held = HeldResources()
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily | None] = {}
        self._write_options = WriteOptions()
        # The type stub declares a method, but it is a property.
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        _engines.add(self)
        try:
            self._open(options, log_folder, is_empty=is_empty)
        except BaseException:  # also asynchronous ones, whose frames keep this object
            with suppress(StoreError):
                self.close(flush=False)
            raise

    def _open(self, options: DatabaseOptions, log_folder: Path, *, is_empty: bool) -> None:
        """Open the database; read-only: a private folder of links to its files."""
        check_compressions(options)
        folder, opened, access = self.folder, self.folder, AccessType.read_write()
        if self._read_only:
            self._held.private = private = PrivateFolder(folder, is_empty=is_empty)
            opened = log_folder = private.path
            if private.holds_database:
                access = AccessType.read_only(False)  # noqa: FBT003 - "error if a WAL exists"
        else:
            for each in (folder, log_folder):
                as_text(each)
                with os_errors("create the folder", each):
                    make_folder(each)
            self._held.claim = Claim(folder)
        with self._gate.translation(), opening(folder, Library.ROCKSDICT):
            self._table_options = family_options(options, log_folder)
            self._default = _open(opened, self._table_options, access)
            first, *others = self._table_options
            self._families[first], self._handles[first] = self._default, None
            for name in others:
                self._families[name] = self._default.get_column_family(name)
                self._handles[name] = self._default.get_column_family_handle(name)

    # ---- writing

    @gated
    def write(self, batch: EngineBatch) -> None:
        """Apply ``batch`` without the WAL."""
        self._write([batch])

    def append_job(self, batch: UnitBatch) -> AppendJob:
        """Return the job for a batch."""
        return append_job(batch)

    @gated
    def append(
        self, job: AppendJob, put: tuple[bytes, bytes], others: EngineBatch | None = None
    ) -> None:
        """Write the units and entries of ``job`` with ``put`` and ``others``."""
        batch = job_batch(job)
        batch.puts.append(put)
        self._write([batch] if others is None else [batch, others])

    def _write(self, batches: list[EngineBatch]) -> None:
        self._writable()
        writes = WriteBatch(raw_mode=True)
        put = writes.put
        for batch in batches:
            for family, start, end in batch.delete_ranges:
                writes.delete_range(start, end, self._handles[family])
            for family, key in batch.deletes:
                writes.delete(key, self._handles[family])
            for keys, values in unit_columns(batch):
                deque(map(put, keys, values), maxlen=0)
            if batch.puts:
                entries = zip(*batch.puts, strict=True)
                deque(map(put, *entries, repeat(self._handles[batch.puts_family])), maxlen=0)
        with self.write_lock.entry():
            self._default.write(writes, self._write_options)

    @gated
    def flush(self) -> None:
        """Flush one family after the other, in order.

        A manual flush flushes a single family, even with ``atomic_flush`` (automatic flushes take
        all). So units are flushed first, and the entries that refer to them, including the
        checkpoint entry, last: after a crash in between, units are replayed, not missing. Writes
        wait meanwhile: an entry written in between would refer to a unit that is not flushed.
        """
        self._writable()
        self._flush()

    def _flush(self) -> None:
        with self.write_lock.entry():
            for family in self._families.values():
                family.flush(wait=True)

    @gated
    def compact(self, family: str) -> None:
        """Compact a family from its first key to its last."""
        self._writable()
        self._families[family].compact_range(None, None)

    def cancel_compaction(self) -> bool:
        """Return False: rocksdict has no call that cancels a compaction."""
        return False

    def expire_below(self, min_phy_offset: int) -> None:
        """Do nothing: there is no compaction filter."""

    @property
    def dropped_units(self) -> int:
        """Return 0: rocksdict has no compaction filter, so compactions drop no unit."""
        return 0

    # ---- table files

    @gated
    def table_writer(self, family: str, path: Path) -> "_TableWriter":
        """Return the writer of a new table file at ``path``."""
        return _TableWriter(path, self._table_options[family])

    @gated
    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Move table files into the database."""
        moved = IngestExternalFileOptions()
        moved.set_move_files(True)
        self._writable()
        self._families[family].ingest_external_file([str(path) for path in paths], moved)

    # ---- reading

    def snapshot(self) -> AbstractContextManager[EngineSnapshot]:
        """Refuse: iterators of rocksdict's snapshots see later writes (0.3.29).

        Raises:
            UnsupportedFormatError: always.
        """
        raise UnsupportedFormatError(
            "the rocksdict engine does not support snapshots: use the native one"
        )

    @gated
    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``."""
        value: bytes | None = self._families[family].get(key)
        return value

    @gated
    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of ``keys``."""
        if not keys:
            return []
        values: list[bytes | None] = self._families[family].get(list(keys))  # type: ignore[assignment]
        return values

    def search(
        self, prefix: bytes, ends: tuple[int, int], timestamp: int, log: tuple[int, int],
        *, upper: bool,
    ) -> None:  # fmt: skip
        """Return ``None``: the caller searches, as each step is a call of rocksdict anyway."""

    @gated
    def scan_units(self, prefix: bytes, queue_offset: int, count: int) -> PackedUnits:
        """Return consecutive units, see ``RocksEngine``."""
        end = min(queue_offset + count, _LARGEST_OFFSET)
        # The range contains at most `count` keys, so `count` values are those of consecutive
        # offsets, and Python need not read the keys. (Measured for 32 units: this 13 us, RdictIter
        # 14, items 17, multi-get 36.)
        bound = ReadOptions()
        bound.set_iterate_upper_bound(unit_key(prefix, end))
        start = unit_key(prefix, queue_offset)
        data = b"".join(self._default.values(from_key=start, read_opt=bound))
        if len(data) == count * QUEUE_UNIT.size:
            return PackedUnits(data, BlockStop.LIMIT, end)
        return _scan_carefully(self._default.iter(), prefix, queue_offset, count)

    def scan_into(
        self, prefix: bytes, queue_offset: int, target: NDArray[np.uint8]
    ) -> tuple[int, BlockStop, int]:
        """Fill ``target`` from ``scan_units``, with one more copy than in the native engine."""
        if not len(target):
            return 0, BlockStop.LIMIT, queue_offset
        return _copy_into(target, self.scan_units(prefix, queue_offset, len(target)))

    @gated
    def first_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Return the first unit from ``queue_offset`` on: an iterator seeks forward."""
        return _first_unit(self._default.iter(), prefix, queue_offset)

    @gated
    def last_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Return the last unit up to ``queue_offset``: an iterator seeks backward."""
        return _last_unit(self._default.iter(), prefix, queue_offset)

    @gated
    def scan(self, family: str, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return entries of a range."""
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end)
        database = self._families[family]
        rows: list[tuple[bytes, bytes]] = list(
            islice(database.items(from_key=start, read_opt=bound), limit)  # type: ignore[arg-type] # raw mode
        )
        if len(rows) < limit:
            # These iterators end at an unreadable block as at the end of the data.
            _check_readable(database.iter(), rows[-1][0] + b"\0" if rows else start)
        return rows

    @gated
    def property_value(self, family: str, name: str) -> str | None:
        """Return a property of RocksDB."""
        return self._families[family].property_value(name)

    def approximate_size(self, family: str, start: bytes, end: bytes) -> int | None:
        """Return ``None``: rocksdict has no such call."""
        _ = family, start, end
        return None

    @gated
    def live_files(self) -> list[LiveFile]:
        """Return the table files."""
        return [
            LiveFile(
                file["name"].lstrip("/"),
                file["size"],
                file["level"],
                file["num_entries"],
                file["num_deletions"],
                None,
            )
            for file in self._default.live_files()
        ]

    def versions(self) -> dict[str, str]:
        """Return the versions of rocksdict and of the RocksDB inside it."""
        binding = version("rocksdict")
        return {"rocksdict": binding, "RocksDB": _ROCKSDB_INSIDE.get(binding, "unknown")}

    def close(self, *, flush: bool = True) -> None:
        """Close the database; the private folder of a read-only open is removed."""
        self.write_lock.entry()  # refuses a close within a write of this thread
        last = self._flush if flush and not self._read_only else None
        self._gate.close(last, self._close_families, self._held.release)

    def _close_families(self) -> None:
        """Close all families; a family that cannot be closed is released with its last reference.

        rocksdict flushes a family when it closes it. After a failed flush, nothing is flushed yet,
        so here, too, the units must come before the entries that refer to them.
        """
        self._handles.clear()
        self.__dict__.pop("_default", None)
        fault: Exception | None = None
        for name in [*self._families]:
            try:
                self._families[name].close()
            except DbClosedError:
                pass
            except Exception as exc:  # noqa: BLE001 - the caller translates it
                fault = fault or exc
            del self._families[name]
        if fault is not None:
            raise fault

    # ---- inside

    def _writable(self) -> None:
        if self._read_only:
            raise ReadOnlyStoreError("the RocksDB queues are open read-only", path=self.folder)

    def leave_to_parent(self) -> None:
        """Prevent a child of the process that opened the database from closing it.

        rocksdict closes a database without references: that would wait for threads that the fork
        did not copy, and write into the parent's folder.
        """
        for held in (*self._families.values(), *self._handles.values()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


_engines: "weakref.WeakSet[RocksdictEngine]" = weakref.WeakSet()


def _after_fork() -> None:
    for engine in _engines:
        engine.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


class _TableWriter:
    """Writes one table file, one entry per call."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path = path
        self._writer = SstFileWriter(options)
        self._writer.open(str(path))

    def put(self, key: bytes, value: bytes) -> None:
        """Add one entry."""
        self._writer[key] = value

    def put_units(self, prefix: bytes, queue_offset: int, units: NDArray[np.uint8]) -> None:
        """Add consecutive units of one queue."""
        for place, unit in enumerate(row_bytes(units)):
            self._writer[unit_key(prefix, queue_offset + place)] = unit

    def finish(self) -> int:
        """Complete the file and sync it; return its bytes."""
        self._writer.finish()
        return self._path.stat().st_size


def _copy_into(target: NDArray[np.uint8], scan: PackedUnits) -> tuple[int, BlockStop, int]:
    rows = np.frombuffer(scan.data, np.uint8).reshape(-1, QUEUE_UNIT.size)
    target[: len(rows)] = rows
    return len(rows), scan.stop, scan.next_offset


def _scan_carefully(units: RdictIter, prefix: bytes, queue_offset: int, count: int) -> PackedUnits:
    """Scan key by key, after a unit was missing, had a wrong size, or could not be read."""
    data = bytearray()
    wanted = queue_offset
    units.seek(unit_key(prefix, queue_offset))
    while wanted < queue_offset + count:
        unit = _unit_at(units, prefix, step=units.next)
        if unit is None:
            return PackedUnits(bytes(data), BlockStop.END, wanted)
        if unit[0] != wanted:
            return PackedUnits(bytes(data), BlockStop.HOLE, unit[0])
        data += unit[1][: QUEUE_UNIT.size]
        wanted += 1
        units.next()
    return PackedUnits(bytes(data), BlockStop.LIMIT, wanted)


def _first_unit(units: RdictIter, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
    units.seek(unit_key(prefix, queue_offset))
    return _unit_at(units, prefix, step=units.next)


def _last_unit(units: RdictIter, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
    units.seek_for_prev(unit_key(prefix, queue_offset))
    return _unit_at(units, prefix, step=units.prev)


def _check_readable(rest: RdictIter, key: bytes) -> None:
    rest.seek(key)
    rest.status()


def _unit_at(units: RdictIter, prefix: bytes, step: Callable[[], None]) -> tuple[int, bytes] | None:
    """Return the unit at the position of ``units``; ``step`` skips other keys.

    Raises:
        CorruptionError: the value is shorter than a unit.
    """
    size = len(prefix) + UNIT_PLACE.size
    while units.valid():
        key: bytes = units.key()
        if not key.startswith(prefix):
            return None
        if len(key) == size:
            (queue_offset,) = UNIT_PLACE.unpack_from(key, len(prefix))
            value: bytes = units.value()
            if len(value) < QUEUE_UNIT.size:
                raise CorruptionError(
                    f"the value of unit {key.hex()} is too short",
                    expected=f"{QUEUE_UNIT.size} bytes", got=f"{len(value)} bytes",
                )  # fmt: skip
            return queue_offset, value
        step()
    units.status()
    return None


def _open(folder: Path, options: dict[str, Options], access: AccessType) -> Rdict:
    """Open the database with all families; options stored in the folder are never used."""
    return Rdict(str(folder), next(iter(options.values())), dict(options), access)
