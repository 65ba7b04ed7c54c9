"""The options of a database as rocksdict's objects."""

from pathlib import Path

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

from cq_rocksdb.engine import Family
from cq_rocksdb.options import Compression, DatabaseOptions, FamilyOptions


def family_options(options: DatabaseOptions, log_folder: Path) -> dict[Family, Options]:
    """Return the options of both families; those of ``DEFAULT`` are the database's too."""
    cache = Cache(options.block_cache_bytes)
    default = _family_options(options.default, cache)
    _set_database_options(default, options, log_folder)
    return {Family.DEFAULT: default, Family.OFFSET: _family_options(options.offset, cache)}


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
    target.set_stats_dump_period_sec(options.stats_dump_seconds)
    target.enable_statistics()


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
