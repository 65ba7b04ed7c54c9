"""Settings: RocketMQ's keys, bounds, and what is said of the rest."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from cqstore.store.errors import StoreConfigError, StoreIOError
from cqstore.store.settings.broker_conf import read_broker_conf, unused_keys
from cqstore.store.settings.broker_keys import broker_keys
from cqstore.store.settings.config import StoreConfig

ROCKETMQS_KEYS = [
    "storeType",
    "rocksdbCQDoubleWriteEnable",
    "useSeparateStorePathForRocksdbCQ",
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "storePathRootDir",
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


ROCKETMQS_DEFAULTS = {
    "storeType": "default", "rocksdbCQDoubleWriteEnable": False,
    "combineCQLoadingCQTypes": "default;defaultRocksDB", "combineCQPreferCQType": "default",
    "combineCQUseRocksdbForLmq": False, "useSeparateStorePathForRocksdbCQ": False,
    "enableDLegerCommitLog": False, "enableControllerMode": False, "brokerRole": "ASYNC_MASTER",
    "inSyncReplicas": 1, "minInSyncReplicas": 1, "allAckInSyncStateSet": False,
    "mappedFileSizeCommitLog": 1024 * 1024 * 1024, "mappedFileSizeConsumeQueue": 300000 * 20,
    "mappedFileSizeConsumeQueueExt": 48 * 1024 * 1024,
    "mapperFileSizeBatchConsumeQueue": 300000 * 46,
    "maxHashSlotNum": 5000000, "maxIndexNum": 5000000 * 4, "maxMessageSize": 1024 * 1024 * 4,
    "autoMessageVersionOnTopicLen": True, "enabledAppendPropCRC": False,
    "forceVerifyPropCRC": False, "checkCRCOnRecover": True, "duplicationEnable": False,
    "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": 500, "flushCommitLogLeastPages": 4,
    "flushCommitLogThoroughInterval": 1000 * 10, "flushIntervalConsumeQueue": 1000,
    "flushConsumeQueueLeastPages": 2, "flushConsumeQueueThoroughInterval": 1000 * 60,
    "syncFlushTimeout": 1000 * 5, "transientStorePoolEnable": False,
    "commitIntervalCommitLog": 200, "commitCommitLogLeastPages": 4,
    "commitCommitLogThoroughInterval": 200, "warmMapedFileEnable": False,
    "flushLeastPagesWhenWarmMapedFile": 1024 // 4 * 16, "fileReservedTime": 72,
    "deleteWhen": "04", "cleanResourceInterval": 10000, "deleteCommitLogFilesInterval": 100,
    "deleteFileBatchMax": 10, "redeleteHangedFileInterval": 1000 * 120,
    "cleanFileForciblyEnable": True, "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85, "diskSpaceWarningLevelRatio": 90, "enableLmq": False,
    "enableMultiDispatch": False, "enableConsumeQueueExt": False,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "messageIndexEnable": True, "maxFilterMessageSize": 16000, "maxMsgsNumBatch": 64,
    "maxTransferBytesOnMessageInMemory": 1024 * 256, "maxTransferCountOnMessageInMemory": 32,
    "maxTransferBytesOnMessageInDisk": 1024 * 64, "maxTransferCountOnMessageInDisk": 8,
    "accessMessageInMemoryMaxRatio": 40, "maxConsumeQueueScan": 20000,
    "sampleCountThreshold": 5000,
}  # fmt: skip
"""As its ``MessageStoreConfig`` has them."""


def test_defaults_are_rocketmqs() -> None:
    config, keys = StoreConfig(), StoreConfig.known_keys()
    ours = {key: getattr(config, keys[key]) for key in ROCKETMQS_DEFAULTS}
    assert ours == ROCKETMQS_DEFAULTS
    assert config.units_per_file == 300000


MAY_BE_NOTHING = {
    "flush_commit_log_least_pages", "commit_commit_log_least_pages", "file_reserved_time",
    "delete_commit_log_files_interval", "max_lmq_consume_queue_num",
    "access_message_in_memory_max_ratio",
}  # fmt: skip
"""Whatever waits is flushed, files are old at once, one goes after the other, no light queues, and
no record counts as in memory."""
CLAMPED = {
    "disk_max_used_space_ratio", "disk_space_clean_forcibly_ratio",
    "disk_space_warning_level_ratio",
}  # fmt: skip
"""RocketMQ takes any value and keeps to its bounds."""
LEAST = {
    "mapped_file_size_consume_queue": 20, "mapper_file_size_batch_consume_queue": 46,
    "max_index_num": 2, "max_message_size": 10, "max_filter_message_size": 20,
    "mapped_file_size_commit_log": 256, "mapped_file_size_consume_queue_ext": 64,
    "mapped_files_max": 2, "queue_files_max": 16, "rocksdb_memory_bytes": 8 << 20,
}  # fmt: skip
"""A file holds one unit or entry besides what is never used; a pull looks at one unit."""
MOST = {"access_message_in_memory_max_ratio": 100, "max_message_size": (1 << 30) - 1}


def test_every_number_is_taken_from_its_least_to_its_most() -> None:
    config = StoreConfig(max_lmq_consume_queue_num=1)
    numbers = {name for name in StoreConfig.model_fields if type(getattr(config, name)) is int}
    assert MAY_BE_NOTHING | CLAMPED | LEAST.keys() | MOST.keys() <= numbers
    for name in numbers - CLAMPED:
        least = LEAST.get(name, 0 if name in MAY_BE_NOTHING else 1)
        most = MOST.get(name, (1 << 31) - 1)
        for value in (least, most):
            assert getattr(StoreConfig.from_mapping({name: value}), name) == value
        for value in (least - 1, *(() if name == "rocksdb_memory_bytes" else (most + 1,))):
            with pytest.raises(StoreConfigError):
                StoreConfig.from_mapping({name: value})


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
    assert unused_keys(["haListenPort", "enableScheduleMessage"]) == {}
    assert unused_keys(["flushDisktype", "maxMesageSize"]) == {
        "flushDisktype": "did you mean flushDiskType?",
        "maxMesageSize": "did you mean maxMessageSize?",
    }  # fmt: skip
    others = broker_keys().keys() - StoreConfig.known_keys().keys()
    assert unused_keys(others) == {}
