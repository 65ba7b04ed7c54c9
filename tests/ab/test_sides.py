"""What ``--side`` takes, and what it refuses with a sentence."""

import pytest

from cqstore.ab.sides.side import default_sides, parse_sides
from cqstore.store.errors import StoreConfigError
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from cqstore.store.settings.replica_config import BrokerRole

BASE = StoreConfig(max_msgs_num_batch=7)


def test_backends_go_by_their_name_or_its_plural_and_the_reference_has_a_twin() -> None:
    sides = parse_sides(["files", "rocksdb"], BASE)
    assert [(side.name, side.backend, side.twin_of) for side in sides] == [
        ("files", "file", None), ("rocksdb", "rocksdb", None), ("files (twin)", "file", "files"),
    ]  # fmt: skip
    assert {side.config.max_msgs_num_batch for side in sides} == {7}
    assert not any(side.config.message_index_enable for side in sides)


def test_the_same_side_twice_has_two_names() -> None:
    assert [side.name for side in parse_sides(["files", "files"], BASE)] == [
        "files", "files (2)", "files (twin)",
    ]  # fmt: skip


def test_settings_in_either_spelling_and_options_of_the_backend_reach_its_settings() -> None:
    given = (
        "rocksdb, engine=rocksdict, rocksdbMemoryBytes=16777216, block_size=4096,compression=lz4"
    )
    side = parse_sides(["file,queue_files_max=99", given], BASE)[1]
    assert side.config.rocksdb_engine is RocksDBEngine.ROCKSDICT
    assert side.config.rocksdb_memory_bytes == 16 << 20
    assert side.config.rocksdb_options == "block_size=4096;compression=lz4"
    assert side.options == {
        "engine": "rocksdict", "rocksdbMemoryBytes": "16777216", "block_size": "4096",
        "compression": "lz4",
    }  # fmt: skip
    assert parse_sides(["file,queue_files_max=99", "file"], BASE)[0].config.queue_files_max == 99


def test_a_store_that_only_its_master_may_write_has_sides_that_can_be_written() -> None:
    slave = StoreConfig(broker_role=BrokerRole.SLAVE, store_path_commit_log="/elsewhere")
    for side in parse_sides(["file", "file"], slave):
        assert side.config.broker_role is BrokerRole.ASYNC_MASTER
        assert side.config.store_path_commit_log is None


def test_without_sides_all_backends_are_compared_that_of_the_store_first() -> None:
    assert default_sides("rocksdb")[0] == "rocksdb"
    assert set(default_sides("rocksdb")) >= {"file", "rocksdb"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["files"], "at least 2 sides, found 1"),
        (["files", "rockdb"], "no backend 'rockdb' (did you mean rocksdb?)"),
        (["files", "rocksdb,engine"], "invalid 'engine': expected SETTING=VALUE"),
        (["files", "rocksdb,engine=fast"], "rocksdb_engine: Input should be"),
        (["files", "rocksdb,engine=native,engine=rocksdict"], "engine is set twice"),
        (["files", "rocksdb,blok_size=1"], "unknown option 'blok_size' (did you mean block_size?)"),
        (
            ["files,queueFileMax=3", "rocksdb"],
            "no setting 'queueFileMax' (did you mean queueFilesMax?)",
        ),
        (["files", "rocksdb,storeType=default"], "storeType cannot be set for a side"),
        (
            ["files", "rocksdb,options=block_size=4096,block_size=1024"],
            "'block_size=1024' cannot be combined with rocksdb_options",
        ),
        (["files", "rocksdb,library=/nowhere.jar"], "/nowhere.jar"),
    ],
)
def test_a_side_that_makes_no_sense_is_refused_with_a_sentence(
    given: list[str], sentence: str
) -> None:
    with pytest.raises(Exception) as reported:  # noqa: PT011 - its class is asked below
        parse_sides(given, BASE)
    assert sentence in str(reported.value)
    assert isinstance(reported.value, StoreConfigError) or "library" in given[1]
