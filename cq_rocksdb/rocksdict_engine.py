"""RocksEngine on rocksdict: the only module that imports it.

rocksdict raises bare ``Exception`` with RocksDB's status text. It has no compaction filter.

Invariants: nothing that rocksdict gave out (iterators, family handles) outlives the call or the
engine, because any of it would keep the database's LOCK after ``close``; and no iterator outlives
its ``ReadOptions``, because it reads the upper bound in their memory.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from itertools import islice, repeat
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DataBlockIndexType,
    DbClosedError,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from cq_rocksdb.call_gate import CallGate
from cq_rocksdb.engine import EngineBatch, Family, LiveFile, UnitScan, unit_columns
from cq_rocksdb.keys import UNIT_PLACE, unit_key
from cq_rocksdb.open_databases import claimed
from cq_rocksdb.options import Compression, DatabaseOptions, FamilyOptions
from cq_rocksdb.private_folder import PrivateFolder
from store.errors import (
    CorruptionError,
    ReadOnlyStoreError,
    os_errors,
)
from store.queue.units import QUEUE_UNIT, BlockStop

_LARGEST_OFFSET = (1 << 63) - 1
_ROCKSDB_INSIDE = {"0.3.29": "9.8.4"}
"""rocksdict does not tell; the info log of a read-write open does, and a test compares."""


def _is_rocksdicts(exc: BaseException) -> bool:
    return type(exc) is Exception or isinstance(exc, DbClosedError)


class RocksdictEngine:
    """An open database; see ``RocksEngine`` for the promises."""

    def __init__(
        self, folder: Path, options: DatabaseOptions, log_folder: Path, *, read_only: bool
    ) -> None:
        """Open the database in ``folder``; read-write: create it if it is missing.

        RocksDB's own log goes to ``log_folder`` (RocketMQ, too, keeps it out of the database).
        Read-only neither writes nor locks anything in ``folder``, and a ``folder`` without a
        database counts as an empty one.

        Raises:
            StoreLockedError: another opener, in this process or another one, has it read-write.
            RocksDBError: RocksDB cannot open it.
        """
        self.folder = folder
        self._read_only = read_only
        self._gate = CallGate(folder, _is_rocksdicts)
        with ExitStack() as undo:
            access, opened = AccessType.read_write(), folder
            if read_only:
                private = self._private = PrivateFolder(folder)  # gone when nobody holds it
                undo.callback(private.release)
                opened = log_folder = private.path
                if private.holds_database:
                    access = AccessType.read_only(False)  # noqa: FBT003 - "error if a WAL exists"
            else:
                for each in (folder, log_folder):
                    with os_errors("create the folder", each):
                        each.mkdir(parents=True, exist_ok=True)
                undo.enter_context(claimed(folder))
            with self._gate.translation():
                self._default = _open(opened, options, log_folder, access)
                self._offset = self._default.get_column_family(Family.OFFSET.value)
                self._offset_handle = self._default.get_column_family_handle(Family.OFFSET.value)
            self._undo = undo.pop_all()
        self._families = {Family.DEFAULT: self._default, Family.OFFSET: self._offset}
        self._write_options = WriteOptions()
        # The type stub calls it a method; it is a property.
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]

    # ---- writing

    def write(self, batch: EngineBatch) -> None:
        """Apply ``batch`` around the WAL."""
        with self._gate:
            self._writable()
            writes = WriteBatch(raw_mode=True)
            for family, start, end in batch.delete_ranges:
                writes.delete_range(start, end, self._handle(family))
            for family, key in batch.deletes:
                writes.delete(key, self._handle(family))
            put = writes.put
            for keys, values in unit_columns(batch):
                deque(map(put, keys, values), maxlen=0)
            if batch.puts:
                entries = zip(*batch.puts, strict=True)
                deque(map(put, *entries, repeat(self._offset_handle)), maxlen=0)
            self._default.write(writes, self._write_options)

    def flush(self) -> None:
        """Flush ``default``, then ``offset``.

        A manual flush takes one family alone, ``atomic_flush`` or not (the automatic ones take
        both). So the units go first, and the entries that speak of them, the checkpoint entry
        among them, last: after a crash in between, the units are there twice, not missing.
        """
        with self._gate:
            self._writable()
            self._flush()

    def _flush(self) -> None:
        self._default.flush(wait=True)
        self._offset.flush(wait=True)

    def compact(self, family: Family) -> None:
        """Compact a whole family."""
        with self._gate:
            self._writable()
            self._families[family].compact_range(None, None)

    # ---- reading

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of ``key``."""
        with self._gate:
            value: bytes | None = self._families[family].get(key)
            return value

    def multi_get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of ``keys``."""
        if not keys:
            return []
        with self._gate:
            values: list[bytes | None] = self._families[family].get(list(keys))  # type: ignore[assignment]
            return values

    def scan_units(self, prefix: bytes, queue_offset: int, count: int) -> UnitScan:
        """Return consecutive units, see ``RocksEngine``."""
        end = min(queue_offset + count, _LARGEST_OFFSET)
        # The upper bound leaves room for `count` keys, so `count` values are those of consecutive
        # offsets, and no key has to come to Python. (Tried, 32 units: this 13 us, RdictIter 14,
        # items 17, multi-get 36.)
        bound = ReadOptions()
        bound.set_iterate_upper_bound(unit_key(prefix, end))
        start = unit_key(prefix, queue_offset)
        with self._gate:
            data = b"".join(self._default.values(from_key=start, read_opt=bound))
        if len(data) == count * QUEUE_UNIT.size:
            return UnitScan(data, BlockStop.LIMIT, end)
        with self._gate:
            return _scan_carefully(self._default.iter(), prefix, queue_offset, count)

    def first_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Seek forward."""
        with self._gate:
            return _first_unit(self._default.iter(), prefix, queue_offset)

    def last_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Seek backward."""
        with self._gate:
            return _last_unit(self._default.iter(), prefix, queue_offset)

    def scan(
        self, family: Family, start: bytes, end: bytes, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """Return entries of a range."""
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end)
        database = self._families[family]
        with self._gate:
            rows: list[tuple[bytes, bytes]] = list(
                islice(database.items(from_key=start, read_opt=bound), limit)  # type: ignore[arg-type] # raw mode
            )
            if len(rows) < limit:
                # Such iterators end at an unreadable block as if it were the end of the data.
                _check_readable(database.iter(), rows[-1][0] + b"\0" if rows else start)
        return rows

    def property_value(self, family: Family, name: str) -> str | None:
        """Ask RocksDB for a property."""
        with self._gate:
            return self._families[family].property_value(name)

    def live_files(self) -> list[LiveFile]:
        """Return the table files."""
        with self._gate:
            return [
                LiveFile(file["name"].lstrip("/"), file["size"], file["level"], file["num_entries"])
                for file in self._default.live_files()
            ]

    def versions(self) -> dict[str, str]:
        """Return the versions of rocksdict and of the RocksDB inside it."""
        binding = version("rocksdict")
        return {"rocksdict": binding, "RocksDB": _ROCKSDB_INSIDE.get(binding, "unknown")}

    def close(self, *, flush: bool = True) -> None:
        """Close the database; the private folder of a read-only open is removed."""
        if not self._gate.close():
            return
        with self._gate.translation(), self._undo as undone:
            # Last in, first out, each also if the one before it fails.
            undone.callback(self._default.close)
            undone.callback(self._offset.close)
            self._families = {}
            del self._offset_handle
            if flush and not self._read_only:
                self._flush()

    # ---- inside

    def _writable(self) -> None:
        if self._read_only:
            raise ReadOnlyStoreError("the RocksDB queues are open read-only", path=self.folder)

    def _handle(self, family: Family) -> ColumnFamily | None:
        return self._offset_handle if family is Family.OFFSET else None


def _scan_carefully(units: RdictIter, prefix: bytes, queue_offset: int, count: int) -> UnitScan:
    """Walk key by key: something is missing, of a wrong size, or cannot be read."""
    data = bytearray()
    wanted = queue_offset
    units.seek(unit_key(prefix, queue_offset))
    while wanted < queue_offset + count:
        unit = _unit_at(units, prefix, step=units.next)
        if unit is None:
            return UnitScan(bytes(data), BlockStop.END, wanted)
        if unit[0] != wanted:
            return UnitScan(bytes(data), BlockStop.HOLE, unit[0])
        data += unit[1][: QUEUE_UNIT.size]
        wanted += 1
        units.next()
    return UnitScan(bytes(data), BlockStop.LIMIT, wanted)


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
    """Return the unit that ``units`` stands on; ``step`` passes keys that are none.

    Raises:
        CorruptionError: its value is shorter than a unit.
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


def _open(folder: Path, options: DatabaseOptions, log_folder: Path, access: AccessType) -> Rdict:
    """Open with both families named; the options stored in the folder are never used."""
    cache = Cache(options.block_cache_bytes)
    default = _family_options(options.default, cache)
    _set_database_options(default, options, log_folder)
    families = {
        Family.DEFAULT.value: default,
        Family.OFFSET.value: _family_options(options.offset, cache),
    }
    return Rdict(str(folder), default, families, access)


def _set_database_options(target: Options, options: DatabaseOptions, log_folder: Path) -> None:
    target.create_if_missing(create_if_missing=True)
    target.create_missing_column_families(create_missing_cfs=True)
    target.set_atomic_flush(options.atomic_flush)
    target.set_db_write_buffer_size(options.db_write_buffer_bytes)
    target.set_max_open_files(options.max_open_files)
    target.set_max_background_jobs(options.max_background_jobs)
    target.set_max_subcompactions(options.max_subcompactions)
    target.set_bytes_per_sync(options.bytes_per_sync)
    target.set_compaction_readahead_size(options.compaction_readahead_bytes)
    target.set_ratelimiter(options.rate_limit_bytes_per_second, 100_000, 10)
    target.set_paranoid_checks(options.paranoid_checks)
    target.set_allow_concurrent_memtable_write(options.allow_concurrent_memtable_write)
    target.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    target.set_db_log_dir(str(log_folder))
    target.set_max_log_file_size(options.info_log_bytes)
    target.set_keep_log_file_num(options.info_logs_kept)
    target.set_stats_dump_period_sec(0)


def _family_options(options: FamilyOptions, cache: Cache) -> Options:
    target = Options(raw_mode=True)
    target.set_block_based_table_factory(_table_options(options, cache))
    target.set_write_buffer_size(options.write_buffer_bytes)
    target.set_max_write_buffer_number(options.write_buffers)
    target.set_min_write_buffer_number_to_merge(1)
    target.set_compression_type(_COMPRESSIONS[options.compression])
    if options.bottommost_compression is not None:
        target.set_bottommost_compression_type(_COMPRESSIONS[options.bottommost_compression])
    target.set_num_levels(options.levels)
    start, slow, stop = options.level0_files
    target.set_level_zero_file_num_compaction_trigger(start)
    target.set_level_zero_slowdown_writes_trigger(slow)
    target.set_level_zero_stop_writes_trigger(stop)
    target.set_target_file_size_base(options.target_file_bytes)
    target.set_target_file_size_multiplier(options.target_file_multiplier)
    target.set_max_bytes_for_level_base(options.max_bytes_for_level_base)
    target.set_max_bytes_for_level_multiplier(options.level_multiplier)
    target.set_max_compaction_bytes(options.max_compaction_bytes)
    slow, stop = options.pending_compaction_bytes
    target.set_soft_pending_compaction_bytes_limit(slow)
    target.set_hard_pending_compaction_bytes_limit(stop)
    target.set_optimize_filters_for_hits(options.optimize_filters_for_hits)
    target.set_inplace_update_support(options.inplace_update_support)
    if options.universal_compaction:
        universal = UniversalCompactOptions()
        universal.size_ratio = options.universal_size_ratio
        universal.max_size_amplification_percent = options.universal_max_size_amplification
        target.set_compaction_style(DBCompactionStyle.universal())
        target.set_universal_compaction_options(universal)
    return target


def _table_options(options: FamilyOptions, cache: Cache) -> BlockBasedOptions:
    table = BlockBasedOptions()
    table.set_format_version(options.format_version)
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(options.cache_index_and_filter_blocks)
    table.set_pin_top_level_index_and_filter(True)
    table.set_block_size(options.block_bytes)
    table.set_metadata_block_size(options.metadata_block_bytes)
    table.set_index_type(BlockBasedIndexType.binary_search())
    table.set_bloom_filter(options.bloom_bits_per_key, block_based=False)
    if options.hash_index:
        table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
        table.set_data_block_hash_ratio(options.hash_index_ratio)
    return table


_COMPRESSIONS = {
    Compression.NONE: DBCompressionType.none(),
    Compression.LZ4: DBCompressionType.lz4(),
    Compression.ZSTD: DBCompressionType.zstd(),
}
