"""Options of the database: RocketMQ's options as data, with our departures and the reasons.

Departures: memory comes from one budget instead of 1.1 GiB of cache beside 768 MiB of memtables;
index and filter blocks live in the cache, so that they are inside the budget;
``inplace_update_support`` stays off, since with it a put that follows a range delete of the same
key within one memtable is lost; fewer background jobs, for machines smaller than a broker's;
tables are opened by no more threads than there are tables; 64 KiB of disk are taken for a manifest
ahead of what is written, not 4 MiB, which a file system in memory fills each time; level-0 files
neither slow writes down nor stop them (RocketMQ: 8 and 10). A manual flush waits for
as long as one file more would, unless it is allowed a stall, as RocketMQ's is; and on a full disk
the compaction that it waits for never succeeds.

Source: RocketMQ ``RocksDBOptionsFactory``, ``ConsumeQueueRocksDBStorage``.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from cqstore.cq_rocksdb.engine.rocks_engine import Family

MIB = 1 << 20
GIB = 1 << 30
NEVER = 1 << 30
"""Files that there will not be."""


class Compression(Enum):
    """Block compressions in use."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


class FamilyOptions(NamedTuple):
    """Options of one column family."""

    write_buffer_bytes: int
    """One memtable; full ones are flushed, for both families together (``atomic_flush``)."""
    compression: Compression
    bottommost_compression: Compression | None
    """``None``: like the other levels."""
    universal_compaction: bool
    """Else levelled."""
    hash_index: bool
    """A hash index inside data blocks: point reads find a key without a binary search."""
    target_file_bytes: int
    max_bytes_for_level_base: int
    optimize_filters_for_hits: bool
    """No filter for the last level: a unit that is looked up nearly always exists."""

    # What both families share.
    format_version: int = 5
    """RocketMQ 5.3.3 and 5.5.1 refuse a whole database for one table of version 6."""
    block_bytes: int = 32 << 10
    metadata_block_bytes: int = 4 << 10
    hash_index_ratio: float = 0.75
    bloom_bits_per_key: int = 16
    write_buffers: int = 4
    levels: int = 7
    level0_files: tuple[int, int, int] = (2, NEVER, NEVER)
    """Level-0 files that start a compaction, slow writes down, stop them. Departure, see above."""
    target_file_multiplier: int = 2
    level_multiplier: float = 2.0
    max_compaction_bytes: int = 100 * GIB
    pending_compaction_bytes: tuple[int, int] = (100 * GIB, 256 * GIB)
    """Debts that slow writes down, stop them."""
    universal_size_ratio: int = 100
    universal_max_size_amplification: int = 25
    """Percent of dead weight after which everything is rewritten."""
    inplace_update_support: bool = False
    """Departure, see above."""
    cache_index_and_filter_blocks: bool = True
    """Departure: RocketMQ keeps them outside the cache, without a limit."""


class DatabaseOptions(NamedTuple):
    """Options of the database as a whole."""

    families: Mapping[str, FamilyOptions]
    """By name, in the order of flushes; the first is ``default``, as RocksDB requires."""
    db_write_buffer_bytes: int
    """All memtables of all families."""
    block_cache_bytes: int
    """One LRU cache for all families."""
    atomic_flush: bool = True
    """Without a WAL: units and the entries that speak of them reach the disk together."""
    max_open_files: int = -1
    max_file_opening_threads: int = 16
    """RocksDB starts as many with each opening, whatever there is for them to do."""
    manifest_preallocation_bytes: int = 64 << 10
    """Departure from 4 MiB: each opening begins a manifest, and a store's is small."""
    max_background_jobs: int = 4
    """Departure from 32: two cores are enough to serve a store."""
    max_subcompactions: int = 2
    bytes_per_sync: int = MIB
    compaction_readahead_bytes: int = 4 * MIB
    rate_limit_bytes_per_second: int = 100 * MIB
    """Flushes and compactions, so that they leave the disk to the commit log."""
    info_log_bytes: int = 16 * MIB
    info_logs_kept: int = 5
    stats_dump_seconds: int = 600
    """How often RocksDB writes its counters (cache hits and the like) to its own log."""
    paranoid_checks: bool = True
    allow_concurrent_memtable_write: bool = False
    """One writer; RocketMQ's choice too."""

    def of_so_many_tables(self, tables: int) -> "DatabaseOptions":
        """Return the options for a database with this many tables."""
        threads = max(min(self.max_file_opening_threads, tables), 1)
        return self._replace(max_file_opening_threads=threads)


def database_options(memory_bytes: int) -> DatabaseOptions:
    """Return the options for a budget of ``memory_bytes``: a quarter memtables, the rest cache."""
    memtables = memory_bytes // 4
    return DatabaseOptions(
        families={
            Family.DEFAULT: FamilyOptions(
                write_buffer_bytes=min(128 * MIB, memtables // 2),
                compression=Compression.LZ4,
                bottommost_compression=Compression.ZSTD,
                universal_compaction=True,
                hash_index=True,
                target_file_bytes=256 * MIB,
                max_bytes_for_level_base=256 * MIB,
                optimize_filters_for_hits=True,
            ),
            Family.OFFSET: FamilyOptions(
                write_buffer_bytes=min(64 * MIB, memtables // 4),
                compression=Compression.NONE,
                bottommost_compression=None,
                universal_compaction=False,
                hash_index=False,
                target_file_bytes=64 * MIB,
                max_bytes_for_level_base=256 * MIB,
                optimize_filters_for_hits=False,
            ),
        },
        db_write_buffer_bytes=memtables,
        block_cache_bytes=memory_bytes - memtables,
    )
