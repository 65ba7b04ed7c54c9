"""Options that the operator gives, as RocksDB wrote them down; and those that make no sense."""

import re
from pathlib import Path

import numpy as np
import pytest

from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.errors import RocksDBDamagedError
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.store.errors import StoreConfigError, UnsupportedFormatError
from cqstore.store.queue.backends import backend
from cqstore.store.queue.units import QUEUE_UNIT
from cqstore.store.settings.broker_conf import read_broker_conf
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.cq_rocksdb.engine.test_rocksdb_options import written
from tests.kit.engines import ENGINES

UNITS, TABLE = 'CFOptions "default"', 'TableOptions/BlockBasedTable "default"'


@pytest.mark.parametrize("engine", ENGINES)
def test_given_options_reach_the_family_of_the_units_and_no_other(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    given = (
        "block_size=4096; compression=zstd;bottommost_compression=none;compaction_style=level;"
        "write_buffer_size=1048576;max_write_buffer_number=3;target_file_size_base=2097152;"
        "max_bytes_for_level_base=4194304;optimize_filters_for_hits=false;max_background_jobs=2"
    )
    config = StoreConfig(rocksdb_engine=engine)
    for name, options in (("plain", None), ("given", given)):
        ours = config.model_copy(update={"rocksdb_options": options})
        open_engine(tmp_path / name, ours, tmp_path / "log", read_only=False)[0].close()
    plain, found = written(tmp_path / "plain"), written(tmp_path / "given")
    changed = {name: found[name] for name in found if found[name] != plain.get(name)}
    expected = {
        (TABLE, "block_size"): "4096",
        (UNITS, "compression"): "kZSTD",
        (UNITS, "bottommost_compression"): "kNoCompression",
        (UNITS, "compaction_style"): "kCompactionStyleLevel",
        (UNITS, "write_buffer_size"): "1048576",
        (UNITS, "max_write_buffer_number"): "3",
        (UNITS, "target_file_size_base"): "2097152",
        (UNITS, "max_bytes_for_level_base"): "4194304",
        (UNITS, "optimize_filters_for_hits"): "false",
        ("DBOptions", "max_background_jobs"): "2",
    }
    assert {name: changed.get(name) for name in expected} == expected
    assert {section for section, _ in changed} <= {UNITS, TABLE, "DBOptions"}


NAMES = {
    "none": "kNoCompression", "snappy": "kSnappyCompression", "z": "kZlibCompression",
    "bzip2": "kBZip2Compression", "lz4": "kLZ4Compression", "lz4hc": "kLZ4HCCompression",
    "zstd": "kZSTD",
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_of_a_broker_conf_reach_rocksdb(tmp_path: Path, engine: RocksDBEngine) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"rocksdbEngine={engine.value}\nrocksdbCompressionType=zstd\n"
        "bottomMostCompressionTypeForConsumeQueueStore=lz4hc\n"
        "rocksdbMaxSizeAmplificationPercent=40\nstatRocksDBCQIntervalSec=17\n"
    )
    config, _ = read_broker_conf(conf)
    for name, ours in (("plain", StoreConfig(rocksdb_engine=engine)), ("given", config)):
        open_engine(tmp_path / name, ours, tmp_path / "log", read_only=False)[0].close()
    plain, found = written(tmp_path / "plain"), written(tmp_path / "given")
    assert {name: found[name] for name in found if found[name] != plain.get(name)} == {
        (UNITS, "compression"): "kZSTD",
        (UNITS, "bottommost_compression"): "kLZ4HCCompression",
        (UNITS, "universal.max_size_amplification_percent"): "40",
        ("DBOptions", "stats_dump_period_sec"): "17",
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ENGINES)
def test_each_compression_of_rocketmq_writes_tables_that_can_be_read(
    tmp_path: Path, engine: RocksDBEngine, name: str
) -> None:
    given: dict[str, object] = {
        "rocksdbCompressionType": name,
        "bottomMostCompressionTypeForConsumeQueueStore": name,
        "rocksdbEngine": engine.value,
    }
    config = StoreConfig.from_mapping(given)
    if (engine, name) == (RocksDBEngine.ROCKSDICT, "z"):
        with pytest.raises(UnsupportedFormatError, match="does not support the compression zlib"):
            open_engine(tmp_path / "db", config, tmp_path / "log", read_only=False)
        assert not (tmp_path / "db").exists()
        return
    opened, _ = open_engine(tmp_path / "db", config, tmp_path / "log", read_only=False)
    offsets = np.arange(1000)
    units = np.zeros((1000, QUEUE_UNIT.size), np.uint8)
    opened.write(EngineBatch([b"queue"], np.zeros(1000, np.int64), offsets, units))
    opened.flush()
    properties = opened.property_value(Family.DEFAULT, "rocksdb.aggregated-table-properties")
    opened.close()
    found = written(tmp_path / "db")
    assert found[UNITS, "compression"] == found[UNITS, "bottommost_compression"] == NAMES[name]
    raw, stored = (
        int(*re.findall(rf"{kind} size=(\d+)", properties or ""))
        for kind in ("raw value", "data block")
    )
    assert raw == units.size
    assert (stored < raw) == (name != "none")
    keys = [b"queue" + int(at).to_bytes(8, "big") for at in offsets]
    for reader in ENGINES:
        config = StoreConfig(rocksdb_engine=reader)
        if (reader, name) == (RocksDBEngine.ROCKSDICT, "z"):
            with pytest.raises(RocksDBDamagedError, match="the rocksdict engine cannot read zlib"):
                open_engine(tmp_path / "db", config, tmp_path / "log", read_only=True)
            continue
        opened, _ = open_engine(tmp_path / "db", config, tmp_path / "log", read_only=True)
        assert opened.multi_get(Family.DEFAULT, keys) == [bytes(QUEUE_UNIT.size)] * 1000
        opened.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_options_by_rocksdbs_names_override_rocketmqs_keys(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    config = StoreConfig(
        rocksdb_engine=engine, rocksdb_compression_type="zstd", rocksdb_options="compression=bzip2"
    )
    open_engine(tmp_path / "db", config, tmp_path / "log", read_only=False)[0].close()
    assert written(tmp_path / "db")[UNITS, "compression"] == "kBZip2Compression"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("block_size", "invalid option 'block_size': expected name=value"),
        ("blok_size=4096", "unknown option 'blok_size' (did you mean block_size?)"),
        (
            "block_size=4k",
            "block_size: invalid value '4k': expected a number from 1024 to 16777216",
        ),
        ("block_size=1", "block_size: invalid value '1': expected a number from 1024"),
        ("compression=gzip", "compression: invalid value 'gzip': expected one of none, snappy"),
        ("hash_index=yes", "hash_index: invalid value 'yes': expected true or false"),
        ("compaction_style=fifo", "invalid value 'fifo': expected universal or level"),
        ("block_size=4096;block_size=8192", "block_size is given twice"),
        ("max_background_jobs=1;max_background_jobs=2", "max_background_jobs is given twice"),
    ],
)
def test_an_option_that_makes_no_sense_is_named_before_a_file_is_made(
    tmp_path: Path, given: str, sentence: str
) -> None:
    config = StoreConfig(rocksdb_options=given)
    with pytest.raises(StoreConfigError, match="rocksdbOptions") as reported:
        backend("rocksdb").check_settings(config)
    assert sentence in str(reported.value)
    with pytest.raises(StoreConfigError):
        open_engine(tmp_path / "db", config, tmp_path / "log", read_only=False)
    assert not (tmp_path / "db").exists()
