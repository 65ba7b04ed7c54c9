"""The options of a database as objects of rocksdict."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    UniversalCompactOptions,
)

from cqstore.cq_rocksdb.engine.database_options import Compression, DatabaseOptions, FamilyOptions
from cqstore.store.errors import UnsupportedFormatError

Settings = Sequence[tuple[Any, ...]]
"""Setters and their arguments."""
_NO_ZLIB = (
    "the rocksdict engine does not support the compression zlib (rocksdbCompressionType=z): use the"
    " native one"
)
"""rocksdict 0.3.29 writes tables with zlib uncompressed, and calls compressed ones corrupt."""
_REFILL_MICROSECONDS, _FAIRNESS = 100_000, 10
"""RocksDB's own defaults of the rate limiter."""


def check_compressions(options: DatabaseOptions) -> None:
    """Refuse a compression with which rocksdict reads and writes no tables.

    Raises:
        UnsupportedFormatError: the compression of a family is zlib.
    """
    for each in options.families.values():
        if Compression.ZLIB in {each.compression, each.bottommost_compression}:
            raise UnsupportedFormatError(_NO_ZLIB)


def family_options(options: DatabaseOptions, log_folder: Path) -> dict[str, Options]:
    """Return the options of each family by name; the first also apply to the database."""
    cache = Cache(options.block_cache_bytes)
    families = {name: _family_options(each, cache) for name, each in options.families.items()}
    default = next(iter(families.values()))
    rate = options.rate_limit_bytes_per_second
    _apply([
        (default.create_if_missing, True),
        (default.create_missing_column_families, True),
        (default.set_atomic_flush, options.atomic_flush),
        (default.set_db_write_buffer_size, options.db_write_buffer_bytes),
        (default.set_max_open_files, options.max_open_files),
        (default.set_max_file_opening_threads, options.max_file_opening_threads),
        (default.set_manifest_preallocation_size, options.manifest_preallocation_bytes),
        (default.set_max_background_jobs, options.max_background_jobs),
        (default.set_max_subcompactions, options.max_subcompactions),
        (default.set_bytes_per_sync, options.bytes_per_sync),
        (default.set_compaction_readahead_size, options.compaction_readahead_bytes),
        (default.set_ratelimiter, rate, _REFILL_MICROSECONDS, _FAIRNESS),
        (default.set_paranoid_checks, options.paranoid_checks),
        (default.set_allow_concurrent_memtable_write, options.allow_concurrent_memtable_write),
        (default.set_wal_recovery_mode, DBRecoveryMode.point_in_time()),
        (default.set_db_log_dir, str(log_folder)),
        (default.set_max_log_file_size, options.info_log_bytes),
        (default.set_keep_log_file_num, options.info_logs_kept),
        (default.set_stats_dump_period_sec, options.stats_dump_seconds),
        (default.enable_statistics,),
    ])  # fmt: skip
    return families


def _family_options(options: FamilyOptions, cache: Cache) -> Options:
    """Return a family's options as rocksdict's object."""
    target = Options(raw_mode=True)
    start, slow, stop = options.level0_files
    slow_bytes, stop_bytes = options.pending_compaction_bytes
    settings: list[tuple[Any, ...]] = [
        (target.set_block_based_table_factory, _table_options(options, cache)),
        (target.set_write_buffer_size, options.write_buffer_bytes),
        (target.set_max_write_buffer_number, options.write_buffers),
        (target.set_min_write_buffer_number_to_merge, 1),
        (target.set_compression_type, _COMPRESSIONS[options.compression]),
        (target.set_num_levels, options.levels),
        (target.set_level_zero_file_num_compaction_trigger, start),
        (target.set_level_zero_slowdown_writes_trigger, slow),
        (target.set_level_zero_stop_writes_trigger, stop),
        (target.set_target_file_size_base, options.target_file_bytes),
        (target.set_target_file_size_multiplier, options.target_file_multiplier),
        (target.set_max_bytes_for_level_base, options.max_bytes_for_level_base),
        (target.set_max_bytes_for_level_multiplier, options.level_multiplier),
        (target.set_max_compaction_bytes, options.max_compaction_bytes),
        (target.set_soft_pending_compaction_bytes_limit, slow_bytes),
        (target.set_hard_pending_compaction_bytes_limit, stop_bytes),
        (target.set_optimize_filters_for_hits, options.optimize_filters_for_hits),
        (target.set_inplace_update_support, options.inplace_update_support),
    ]
    if options.bottommost_compression is not None:
        bottommost = _COMPRESSIONS[options.bottommost_compression]
        settings.append((target.set_bottommost_compression_type, bottommost))
    if options.universal_compaction:
        universal = UniversalCompactOptions()
        universal.size_ratio = options.universal_size_ratio
        universal.max_size_amplification_percent = options.universal_max_size_amplification
        settings += [
            (target.set_compaction_style, DBCompactionStyle.universal()),
            (target.set_universal_compaction_options, universal),
        ]
    _apply(settings)
    return target


def _table_options(options: FamilyOptions, cache: Cache) -> BlockBasedOptions:
    """Return the options of a family's table files as rocksdict's object."""
    table = BlockBasedOptions()
    settings: list[tuple[Any, ...]] = [
        (table.set_format_version, options.format_version),
        (table.set_block_cache, cache),
        (table.set_cache_index_and_filter_blocks, options.cache_index_and_filter_blocks),
        (table.set_pin_top_level_index_and_filter, True),
        (table.set_block_size, options.block_bytes),
        (table.set_metadata_block_size, options.metadata_block_bytes),
        (table.set_index_type, BlockBasedIndexType.binary_search()),
        (table.set_bloom_filter, options.bloom_bits_per_key, False),
    ]
    if options.hash_index:
        settings += [
            (table.set_data_block_index_type, DataBlockIndexType.binary_and_hash()),
            (table.set_data_block_hash_ratio, options.hash_index_ratio),
        ]
    _apply(settings)
    return table


def _apply(settings: Settings) -> None:
    for set_to, *values in settings:
        set_to(*values)


_COMPRESSIONS = {
    Compression.NONE: DBCompressionType.none(),
    Compression.SNAPPY: DBCompressionType.snappy(),
    Compression.BZIP2: DBCompressionType.bz2(),
    Compression.LZ4: DBCompressionType.lz4(),
    Compression.LZ4HC: DBCompressionType.lz4hc(),
    Compression.ZSTD: DBCompressionType.zstd(),
}
