"""Options of the database: RocketMQ's options as data, with the differences and their reasons.

Differences from RocketMQ: memory comes from one budget instead of 1.1 GiB of cache plus 768 MiB of
memtables; index and filter blocks are in the cache, so that the budget includes them;
``inplace_update_support`` is off, because with it a put after a range delete of the same key in one
memtable is lost; there are fewer background jobs, for machines smaller than a broker's; tables are
opened by at most as many threads as there are tables; 64 KiB instead of 4 MiB are preallocated for
a manifest, because a file system in memory fills them on each open; level-0 files neither slow down
nor stop writes (RocketMQ: 8 and 10). Otherwise a manual flush would wait as long as one more file
would stall writes, unless it allows a stall as RocketMQ's does, and on a full disk the compaction
that it waits for never succeeds.

Source: RocketMQ ``RocksDBOptionsFactory``, ``ConsumeQueueRocksDBStorage``.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from cqstore.cq_rocksdb.engine.rocks_engine import Family

MIB = 1 << 20
GIB = 1 << 30
NEVER = 1 << 30
"""A number of files that is never reached."""


class Compression(Enum):
    """Compressions of blocks, by RocksDB's names."""

    NONE = "none"
    SNAPPY = "snappy"
    ZLIB = "zlib"
    BZIP2 = "bzip2"
    LZ4 = "lz4"
    LZ4HC = "lz4hc"
    ZSTD = "zstd"


class FamilyOptions(NamedTuple):
    """Options of one column family."""

    write_buffer_bytes: int
    """Size of a memtable; full ones are flushed, both families together (``atomic_flush``)."""
    compression: Compression
    bottommost_compression: Compression | None
    """Compression of the last level; ``None``: as for the other levels."""
    universal_compaction: bool
    """Universal compaction; else levelled."""
    hash_index: bool
    """Hash index inside data blocks: point reads find a key without a binary search."""
    target_file_bytes: int
    max_bytes_for_level_base: int
    optimize_filters_for_hits: bool
    """No filter for the last level: a unit that is looked up nearly always exists."""

    # The same for both families.
    format_version: int = 5
    """RocketMQ 5.3.3 and 5.5.1 refuse a whole database for one table of version 6."""
    block_bytes: int = 32 << 10
    metadata_block_bytes: int = 4 << 10
    hash_index_ratio: float = 0.75
    bloom_bits_per_key: int = 16
    write_buffers: int = 4
    levels: int = 7
    level0_files: tuple[int, int, int] = (2, NEVER, NEVER)
    """Level-0 files that start a compaction, slow down and stop writes. Difference, see above."""
    target_file_multiplier: int = 2
    level_multiplier: float = 2.0
    max_compaction_bytes: int = 100 * GIB
    pending_compaction_bytes: tuple[int, int] = (100 * GIB, 256 * GIB)
    """Bytes of pending compaction that slow down writes, and stop writes."""
    universal_size_ratio: int = 100
    universal_max_size_amplification: int = 25
    """Percentage of obsolete data above which everything is rewritten."""
    inplace_update_support: bool = False
    """Difference, see above."""
    cache_index_and_filter_blocks: bool = True
    """Difference: RocketMQ keeps these blocks outside the cache, without a limit."""


class DatabaseOptions(NamedTuple):
    """Options of the database as a whole."""

    families: Mapping[str, FamilyOptions]
    """Families by name, in flush order; the first is ``default``, as RocksDB requires."""
    db_write_buffer_bytes: int
    """Total size of all memtables of all families."""
    block_cache_bytes: int
    """Size of the LRU cache, shared by all families."""
    atomic_flush: bool = True
    """As there is no WAL: units and the entries that refer to them are flushed together."""
    max_open_files: int = -1
    max_file_opening_threads: int = 16
    """RocksDB starts this many threads with each open, even without work for them."""
    manifest_preallocation_bytes: int = 64 << 10
    """RocketMQ: 4 MiB. Each open begins a manifest, and a store's manifest is small."""
    max_background_jobs: int = 4
    """RocketMQ: 32. Two cores are enough to serve a store."""
    max_subcompactions: int = 2
    bytes_per_sync: int = MIB
    compaction_readahead_bytes: int = 4 * MIB
    rate_limit_bytes_per_second: int = 100 * MIB
    """Limit for flushes and compactions, so that the commit log can use the disk."""
    info_log_bytes: int = 16 * MIB
    info_logs_kept: int = 5
    stats_dump_seconds: int = 600
    """Interval at which RocksDB writes its counters (such as cache hits) to its own log."""
    paranoid_checks: bool = True
    allow_concurrent_memtable_write: bool = False
    """There is one writer; same as RocketMQ."""

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
