"""Options that the operator gives, as RocksDB wrote them down; and those that make no sense."""

from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.store.errors import StoreConfigError
from cqstore.store.queue.backends import backend
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
        ("compression=gzip", "compression: invalid value 'gzip': expected one of none, lz4, zstd"),
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
