"""Settings: RocketMQ's keys, bounds, and what is said of the rest."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from migration.preflight.broker_keys import broker_keys
from store.config import FlushDiskType, StoreConfig, odd_keys, read_broker_conf
from store.errors import StoreConfigError, StoreIOError

ROCKETMQS_KEYS = [
    "storeType",
    "rocksdbCQDoubleWriteEnable",
    "useSeparateStorePathForRocksdbCQ",
    "storePathCommitLog",
    "enableDLegerCommitLog",
    "brokerRole",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "maxMessageSize",
    "autoMessageVersionOnTopicLen",
    "enabledAppendPropCRC",
    "forceVerifyPropCRC",
    "checkCRCOnRecover",
    "duplicationEnable",
    "flushDiskType",
    "flushIntervalCommitLog",
    "flushConsumeQueueThoroughInterval",
    "syncFlushTimeout",
    "enableLmq",
    "enableMultiDispatch",
    "enableConsumeQueueExt",
    "messageDelayLevel",
    "messageIndexEnable",
    "maxFilterMessageSize",
    "maxMsgsNumBatch",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    "accessMessageInMemoryMaxRatio",
    "maxConsumeQueueScan",
    "sampleCountThreshold",
    "enableControllerMode",
]


def test_rocketmqs_keys_are_known_by_their_own_spelling() -> None:
    assert set(ROCKETMQS_KEYS) <= StoreConfig.known_keys().keys()


def test_defaults_are_rocketmqs() -> None:
    config = StoreConfig()
    assert config.mapped_file_size_commit_log == 1073741824
    assert config.mapped_file_size_consume_queue == 6000000
    assert (config.max_hash_slot_num, config.max_index_num) == (5000000, 20000000)
    assert config.max_message_size == 4194304
    assert config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert config.units_per_file == 300000


def test_a_queue_file_is_rounded_up_to_whole_units() -> None:
    assert StoreConfig(mapped_file_size_consume_queue=1001).units_per_file == 51


def test_a_broker_conf_is_read_and_what_is_not_ours_is_named(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "# a comment\nstoreType = defaultRocksDB\nflushDiskType=SYNC_FLUSH\n"
        "mappedFileSizeCommitLog : 65536\nenableLmq=true\nbrokerName=\\u00e9\n"
        "rocksdbCQWriteEnable=true\n"
    )
    config, unknown = read_broker_conf(conf)
    assert (config.store_type, config.flush_disk_type.value) == ("defaultRocksDB", "SYNC_FLUSH")
    assert (config.mapped_file_size_commit_log, config.enable_lmq) == (65536, True)
    assert unknown == {"brokerName": "é", "rocksdbCQWriteEnable": "true"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("mappedFileSizeCommitLog=big", "mappedFileSizeCommitLog"),
        ("flushDiskType=SOMETIMES", "flushDiskType"),
        ("maxMessageSize=-1", "maxMessageSize"),
        ("enableLmq=perhaps", "enableLmq"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_key_and_file(
    tmp_path: Path, text: str, key: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    with pytest.raises(StoreConfigError) as caught:
        read_broker_conf(conf)
    assert key in str(caught.value)
    assert str(conf) in str(caught.value)


def test_a_missing_file_and_an_unknown_key_are_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreIOError):
        read_broker_conf(tmp_path / "none")
    with pytest.raises(StoreConfigError, match="colour"):
        StoreConfig.from_mapping({"colour": 1})


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValidationError):
        StoreConfig().enable_lmq = True  # type: ignore[misc]


def test_light_queues_are_trusted_unless_switched_off() -> None:
    assert StoreConfig().replays_lmq
    assert StoreConfig(enable_lmq=True).replays_lmq
    assert not StoreConfig(enable_lmq=False).replays_lmq


@pytest.mark.parametrize(
    "key",
    ["mappedFileSizeCommitLog", "maxMessageSize", "syncFlushTimeout", "maxLmqConsumeQueueNum"],
)
def test_what_javas_int_cannot_hold_is_refused(key: str) -> None:
    """A file of more than 2 GiB has no blank record; a wait of so many ms is no wait in Python."""
    with pytest.raises(StoreConfigError, match=key):
        StoreConfig.from_mapping({key: 1 << 31})
    assert StoreConfig(rocksdb_memory_bytes=8 << 30).rocksdb_memory_bytes == 8 << 30


@pytest.mark.parametrize(
    ("given", "promises"),
    [
        ({}, []),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1, "minInSyncReplicas": 1}, []),
        ({"brokerRole": "SLAVE"}, []),
        ({"brokerRole": "SYNC_MASTER"}, ["brokerRole=SYNC_MASTER"]),
        ({"inSyncReplicas": 2}, ["inSyncReplicas=2"]),
        ({"minInSyncReplicas": 3}, ["minInSyncReplicas=3"]),
        ({"allAckInSyncStateSet": "true"}, ["allAckInSyncStateSet=true"]),
    ],
)
def test_what_promises_replicas_is_named(given: dict[str, object], promises: list[str]) -> None:
    config = StoreConfig.from_mapping(given)
    assert config.replica_promises == promises
    without = config.without_replicas()
    assert without.replica_promises == []
    assert without == (StoreConfig() if promises else config)


def test_keys_that_are_nearly_ours_are_told_from_rocketmqs_own() -> None:
    assert odd_keys(["haListenPort", "enableScheduleMessage"]) == {}
    assert odd_keys(["flushDisktype", "maxMesageSize"]) == {
        "flushDisktype": "is flushDiskType meant?", "maxMesageSize": "is maxMessageSize meant?",
    }  # fmt: skip
    assert "read" in odd_keys(["readOnlyCommitLogStorePaths"])["readOnlyCommitLogStorePaths"]
    others = broker_keys().keys() - StoreConfig.known_keys().keys()
    assert odd_keys(others).keys() == {"readOnlyCommitLogStorePaths"}
