"""The options of a database as objects of RocksDB's C API.

Every setter is listed with the C type of its argument: a wrong type is undefined behaviour.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from cqstore.cq_rocksdb.engine._options import Options
from cqstore.cq_rocksdb.engine.database_options import Compression, DatabaseOptions, FamilyOptions

Settings = list[tuple[str, str, object]]
"""Name of the setter without ``rocksdb_``, C type of its argument, value."""
_COMPRESSIONS = {
    Compression.NONE: 0,
    Compression.SNAPPY: 1,
    Compression.ZLIB: 2,
    Compression.BZIP2: 3,
    Compression.LZ4: 4,
    Compression.LZ4HC: 5,
    Compression.ZSTD: 7,
}
"""``rocksdb_*_compression`` of RocksDB's ``c.h``."""
_UNIVERSAL, _LEVELLED = 1, 0
_POINT_IN_TIME = 2
_BINARY_AND_HASH = 1
_NO_FLUSH_AT_CLOSE = b"avoid_flush_during_shutdown=true"
"""Closing cqstore flushes explicitly; a store that is garbage-collected must write nothing."""


@dataclass(frozen=True, slots=True)
class DatabaseObjects:
    """The options of each family by name; those of the first also apply to the database."""

    families: dict[str, Options]
    lacking: tuple[str, ...]
    """Setters that the library does not have; their options keep RocksDB's defaults."""


def database_objects(options: DatabaseOptions, log_folder: Path) -> DatabaseObjects:
    """Create the objects; ``_capi.load`` must have been called."""
    cache = Options("cache", options.block_cache_bytes)
    made = {name: _family(each, cache) for name, each in options.families.items()}
    families = {name: target for name, (target, _) in made.items()}
    default = next(iter(families.values()))
    limiter = Options("ratelimiter", options.rate_limit_bytes_per_second)
    _apply(default, [
        ("options_set_create_if_missing", "byte", True),
        ("options_set_create_missing_column_families", "byte", True),
        ("options_set_atomic_flush", "byte", options.atomic_flush),
        ("options_set_db_write_buffer_size", "size", options.db_write_buffer_bytes),
        ("options_set_max_open_files", "int", options.max_open_files),
        ("options_set_max_file_opening_threads", "int", options.max_file_opening_threads),
        ("options_set_manifest_preallocation_size", "size", options.manifest_preallocation_bytes),
        ("options_set_max_background_jobs", "int", options.max_background_jobs),
        ("options_set_max_subcompactions", "size", options.max_subcompactions),
        ("options_set_bytes_per_sync", "size", options.bytes_per_sync),
        ("options_compaction_readahead_size", "size", options.compaction_readahead_bytes),
        ("options_set_ratelimiter", "handle", limiter),
        ("options_set_paranoid_checks", "byte", options.paranoid_checks),
        ("options_set_allow_concurrent_memtable_write", "byte",
         options.allow_concurrent_memtable_write),
        ("options_set_wal_recovery_mode", "int", _POINT_IN_TIME),
        ("options_set_db_log_dir", "text", os.fsencode(log_folder)),
        ("options_set_max_log_file_size", "size", options.info_log_bytes),
        ("options_set_keep_log_file_num", "size", options.info_logs_kept),
        ("options_enable_statistics", "on", None),
        ("options_set_stats_dump_period_sec", "int", options.stats_dump_seconds),
        ("get_options_from_string", "parsed", _NO_FLUSH_AT_CLOSE),
    ])  # fmt: skip
    lacking = [name for _, of_tables in made.values() for name in of_tables]
    return DatabaseObjects(families, (*lacking, *default.lacking))


def _family(options: FamilyOptions, cache: Options) -> tuple[Options, list[str]]:
    """Return a family's options, and the names of those that the library does not have."""
    table = _table(options, cache)
    target = Options("options")
    start, slow, stop = options.level0_files
    slow_bytes, stop_bytes = options.pending_compaction_bytes
    settings: Settings = [
        ("options_set_block_based_table_factory", "handle", table),
        ("options_set_write_buffer_size", "size", options.write_buffer_bytes),
        ("options_set_max_write_buffer_number", "int", options.write_buffers),
        ("options_set_min_write_buffer_number_to_merge", "int", 1),
        ("options_set_compression", "int", _COMPRESSIONS[options.compression]),
        ("options_set_num_levels", "int", options.levels),
        ("options_set_level0_file_num_compaction_trigger", "int", start),
        ("options_set_level0_slowdown_writes_trigger", "int", slow),
        ("options_set_level0_stop_writes_trigger", "int", stop),
        ("options_set_target_file_size_base", "size", options.target_file_bytes),
        ("options_set_target_file_size_multiplier", "int", options.target_file_multiplier),
        ("options_set_max_bytes_for_level_base", "size", options.max_bytes_for_level_base),
        ("options_set_max_bytes_for_level_multiplier", "double", options.level_multiplier),
        ("options_set_max_compaction_bytes", "size", options.max_compaction_bytes),
        ("options_set_soft_pending_compaction_bytes_limit", "size", slow_bytes),
        ("options_set_hard_pending_compaction_bytes_limit", "size", stop_bytes),
        ("options_set_optimize_filters_for_hits", "int", options.optimize_filters_for_hits),
        ("options_set_inplace_update_support", "byte", options.inplace_update_support),
        ("options_set_compaction_style", "int",
         _UNIVERSAL if options.universal_compaction else _LEVELLED),
    ]  # fmt: skip
    if options.bottommost_compression is not None:
        settings.append(
            ("options_set_bottommost_compression", "int",
             _COMPRESSIONS[options.bottommost_compression])
        )  # fmt: skip
    if options.universal_compaction:
        universal = Options("universal_compaction_options")
        _apply(universal, [
            ("universal_compaction_options_set_size_ratio", "int", options.universal_size_ratio),
            ("universal_compaction_options_set_max_size_amplification_percent", "int",
             options.universal_max_size_amplification),
        ])  # fmt: skip
        settings.append(("options_set_universal_compaction_options", "handle", universal))
    _apply(target, settings)
    return target, table.lacking


def _table(options: FamilyOptions, cache: Options) -> Options:
    """Return the options of a family's table files."""
    table = Options("block_based_options")
    bloom = Options("bloom", options.bloom_bits_per_key)
    settings: Settings = [
        ("block_based_options_set_format_version", "int", options.format_version),
        ("block_based_options_set_block_cache", "handle", cache),
        ("block_based_options_set_cache_index_and_filter_blocks", "byte",
         options.cache_index_and_filter_blocks),
        ("block_based_options_set_pin_top_level_index_and_filter", "byte", True),
        ("block_based_options_set_block_size", "size", options.block_bytes),
        ("block_based_options_set_metadata_block_size", "size", options.metadata_block_bytes),
        ("block_based_options_set_filter_policy", "handle", bloom),
    ]  # fmt: skip
    if options.hash_index:
        settings += [
            ("block_based_options_set_data_block_index_type", "int", _BINARY_AND_HASH),
            ("block_based_options_set_data_block_hash_ratio", "double", options.hash_index_ratio),
        ]
    _apply(table, settings)
    return table


def _apply(target: Options, settings: Settings) -> None:
    for name, kind, value in settings:
        target.set(name, kind, value)
