"""How the database is tuned, as RocksDB wrote it down, against what RocketMQ's own wrote down."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES, hold_compactions, put_raw

Options = dict[tuple[str, str], str]
MIB, GIB = 1 << 20, 1 << 30
FAMILIES = ("default", "offset")
OF_THE_DATABASE = (
    "atomic_flush", "allow_concurrent_memtable_write", "bytes_per_sync",
    "compaction_readahead_size", "create_if_missing", "create_missing_column_families",
    "db_write_buffer_size", "delayed_write_rate", "keep_log_file_num", "max_background_jobs",
    "manifest_preallocation_size", "max_log_file_size", "max_open_files", "max_subcompactions",
    "paranoid_checks", "stats_dump_period_sec", "wal_recovery_mode",
)  # fmt: skip
OF_A_FAMILY = (
    "bottommost_compression", "compaction_style", "compression",
    "hard_pending_compaction_bytes_limit", "inplace_update_support",
    "level0_file_num_compaction_trigger", "level0_slowdown_writes_trigger",
    "level0_stop_writes_trigger", "max_bytes_for_level_base", "max_bytes_for_level_multiplier",
    "max_compaction_bytes", "max_write_buffer_number", "min_write_buffer_number_to_merge",
    "num_levels", "optimize_filters_for_hits", "soft_pending_compaction_bytes_limit",
    "target_file_size_base", "target_file_size_multiplier", "write_buffer_size",
    "universal.size_ratio", "universal.max_size_amplification_percent",
)  # fmt: skip
OF_A_TABLE = (
    "block_size", "cache_index_and_filter_blocks", "data_block_hash_table_util_ratio",
    "data_block_index_type", "format_version", "index_type", "metadata_block_size",
    "pin_top_level_index_and_filter",
)  # fmt: skip
DEPARTURES = {
    # Memory comes from one budget, 512 MiB if nothing is said: a quarter of it are memtables.
    ("DBOptions", "db_write_buffer_size"): 128 * MIB,
    ('CFOptions "default"', "write_buffer_size"): 64 * MIB,
    ('CFOptions "offset"', "write_buffer_size"): 32 * MIB,
    ('TableOptions/BlockBasedTable "default"', "cache_index_and_filter_blocks"): "true",
    ('TableOptions/BlockBasedTable "offset"', "cache_index_and_filter_blocks"): "true",
    # With it a put behind a range delete of its key is lost.
    ('CFOptions "offset"', "inplace_update_support"): "false",
    # Smaller machines; RocksDB takes the slowest write from the limit of flushes.
    ("DBOptions", "max_background_jobs"): 4,
    ("DBOptions", "max_subcompactions"): 2,
    ("DBOptions", "delayed_write_rate"): 100 * MIB,
    ("DBOptions", "max_log_file_size"): 16 * MIB,
    # Each opening begins a manifest: in memory, or on a disk that is nearly full, 4 MiB count.
    ("DBOptions", "manifest_preallocation_size"): 64 << 10,
    # A manual flush waits while one more file would slow writes: for ever where the disk is full.
    ('CFOptions "default"', "level0_slowdown_writes_trigger"): 1 << 30,
    ('CFOptions "default"', "level0_stop_writes_trigger"): 1 << 30,
    ('CFOptions "offset"', "level0_slowdown_writes_trigger"): 1 << 30,
    ('CFOptions "offset"', "level0_stop_writes_trigger"): 1 << 30,
    # RocketMQ sets these for one family alone; they mean nothing to the other's compaction.
    ('CFOptions "default"', "max_bytes_for_level_multiplier"): "2.000000",
    ('CFOptions "offset"', "max_compaction_bytes"): 100 * GIB,
    ('CFOptions "offset"', "soft_pending_compaction_bytes_limit"): 100 * GIB,
}


def written(folder: Path) -> Options:
    """Return by section and name what the newest file of options says, nested ones by dots."""
    found: Options = {}
    section = ""
    for line in max(folder.glob("OPTIONS-*")).read_text().splitlines():
        name, _, value = line.strip().partition("=")
        if line.startswith("["):
            section = line.strip().strip("[]")
        elif name == "compaction_options_universal":
            inner = [part.partition("=") for part in value.strip("{}").split(";") if part]
            found |= {(section, f"universal.{key}"): what for key, _, what in inner}
        elif value:
            found[section, name] = value
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_options_are_rocketmqs_save_those_that_depart_for_a_reason(
    golden: Callable[[str], Path], tmp_path: Path, engine: RocksDBEngine
) -> None:
    rocketmq = written(golden("basic-defaultRocksDB") / "consumequeue")
    config = StoreConfig(rocksdb_engine=engine, rocksdb_memory_bytes=512 * MIB)
    open_engine(tmp_path / "own", config, tmp_path / "log", read_only=False)[0].close()
    ours = written(tmp_path / "own")
    names = [("DBOptions", name) for name in OF_THE_DATABASE]
    for family in FAMILIES:
        policy = f'TableOptions/BlockBasedTable "{family}"', "filter_policy"
        assert rocketmq[policy] == f"{ours[policy]}:16:false"  # newer ones do not tell the bits
        names += [(f'CFOptions "{family}"', name) for name in OF_A_FAMILY]
        names += [(f'TableOptions/BlockBasedTable "{family}"', name) for name in OF_A_TABLE]
    assert rocketmq.keys() >= set(names)
    departed = {name: str(value) for name, value in DEPARTURES.items()}
    wanted = {name: departed.get(name, rocketmq[name]) for name in names}
    assert {name: ours.get(name) for name in names} == wanted
    assert ours["DBOptions", "db_log_dir"] == str(tmp_path / "log")


@pytest.mark.parametrize("engine", ENGINES)
def test_however_much_memory_there_is_one_memtable_is_no_larger_than_rocketmqs(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    config = StoreConfig(rocksdb_engine=engine, rocksdb_memory_bytes=4 * GIB)
    opened, _ = open_engine(tmp_path, config, tmp_path / "log", read_only=False)
    opened.close()
    ours = written(tmp_path)
    assert ours["DBOptions", "db_write_buffer_size"] == str(GIB)
    assert ours['CFOptions "default"', "write_buffer_size"] == str(128 * MIB)
    assert ours['CFOptions "offset"', "write_buffer_size"] == str(64 * MIB)


@pytest.mark.parametrize("engine", ENGINES)
def test_both_families_share_a_cache_of_what_memtables_leave_of_the_budget(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    config = StoreConfig(rocksdb_engine=engine, rocksdb_memory_bytes=16 * MIB)
    opened, _ = open_engine(tmp_path, config, tmp_path / "log", read_only=False)
    for family in Family:
        assert opened.property_value(family, "rocksdb.block-cache-capacity") == str(12 * MIB)
    usage = "rocksdb.block-cache-usage"
    before = opened.property_value(Family.DEFAULT, usage)
    opened.write(EngineBatch(puts=[(at.to_bytes(8, "big"), bytes(16)) for at in range(10_000)]))
    opened.flush()
    assert opened.multi_get(Family.OFFSET, [bytes(8)]) == [bytes(16)]
    after = opened.property_value(Family.DEFAULT, usage)
    assert after == opened.property_value(Family.OFFSET, usage) != before
    counted = opened.property_value(Family.DEFAULT, "rocksdb.options-statistics")
    assert counted is not None
    assert "rocksdb.block.cache.miss" in counted
    tables = opened.property_value(Family.OFFSET, "rocksdb.aggregated-table-properties")
    (filter_bytes,) = re.findall(r"filter block size=(\d+)", tables or "")
    assert 20_000 <= int(filter_bytes) < 20_100, "16 bits a key"
    opened.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_no_more_threads_open_tables_than_there_are_up_to_rocketmqs(
    golden: Callable[[str], Path], tmp_path: Path, engine: RocksDBEngine
) -> None:
    rocketmq = written(golden("basic-defaultRocksDB") / "consumequeue")
    assert rocketmq["DBOptions", "max_file_opening_threads"] == "16"
    config = StoreConfig(rocksdb_engine=engine, rocksdb_memory_bytes=16 * MIB)
    folder, tables = tmp_path / "own", 0
    for more in (0, 3, 15):
        opened, _ = open_engine(folder, config, tmp_path / "log", read_only=False)
        threads = int(written(folder)["DBOptions", "max_file_opening_threads"])
        assert threads == max(1, min(tables, 16))
        hold_compactions(opened)
        for number in range(more):
            put_raw(opened, b"%d" % number, bytes(28), tmp_path / f"{number}.sst")
        opened.close()
        tables = len([*folder.glob("*.sst")])
    opened, _ = open_engine(folder, config, tmp_path / "log", read_only=False)
    opened.close()
    assert (tables, written(folder)["DBOptions", "max_file_opening_threads"]) == (18, "16")
