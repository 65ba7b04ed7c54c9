"""ReplicaConfig: the settings for replicas that a put waits for.

Source: RocketMQ ``MessageStoreConfig``, ``CommitLog.needHandleHA``.
"""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_KEYS = {
    "rocksdb_cq_double_write_enable": "rocksdbCQDoubleWriteEnable",
    "combine_cq_loading_cq_types": "combineCQLoadingCQTypes",
    "combine_cq_prefer_cq_type": "combineCQPreferCQType",
    "combine_assign_offset_cq_type": "combineAssignOffsetCQType",
    "combine_cq_use_rocksdb_for_lmq": "combineCQUseRocksdbForLmq",
    "rocksdb_cq_selective_double_write_enable": "rocksdbCQSelectiveDoubleWriteEnable",
    "stat_rocksdb_cq_interval_sec": "statRocksDBCQIntervalSec",
    "use_separate_store_path_for_rocksdb_cq": "useSeparateStorePathForRocksdbCQ",
    "enable_dledger_commit_log": "enableDLegerCommitLog",
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
    "check_crc_on_recover": "checkCRCOnRecover",
    "check_crc_on_pull": "checkCRCOnPull",
    "warm_mapped_file_enable": "warmMapedFileEnable",
    "flush_least_pages_when_warm": "flushLeastPagesWhenWarmMapedFile",
    "single_metadata": "useSingleRocksDBForAllConfigs",
}
"""RocketMQ's keys that differ from the Python name in camel case.

Not given as ``Field(alias=…)``, because type checkers would then accept only the alias.
"""


def rocketmq_key(name: str) -> str:
    """Return RocketMQ's key for a setting."""
    return _KEYS.get(name) or to_camel(name)


class BrokerRole(StrEnum):
    """Role of the broker; a slave accepts no puts."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class ReplicaConfig(BaseModel):
    """The part of ``StoreConfig`` that configures replicas."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=rocketmq_key,
        populate_by_name=True,
        extra="forbid",
        defer_build=True,  # build when settings are first created, to keep imports fast
    )

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    """Role of the broker. A slave's store is opened read-only, and so is a synchronous master's
    store unless it serves its followers."""
    in_sync_replicas: int = Field(default=1, ge=1)
    """Under ``SYNC_MASTER``: number of replicas, including the master, that must have a message
    before its put returns. If not given, it counts as 2: RocketMQ's 1 would wait for no replica."""
    min_in_sync_replicas: int = Field(default=1, ge=1)
    """Under ``SYNC_MASTER``: minimum number of in-sync replicas, including the master; with fewer,
    puts are refused."""
    slave_timeout: int = Field(default=3_000, ge=1)
    """Milliseconds that a put waits for replicas."""
    ha_max_gap_not_in_sync: int = Field(default=256 << 20, ge=1)
    """Lag in bytes from which a follower is not in sync."""
    all_ack_in_sync_state_set: bool = False
    """Wait for every replica of a controller's set: refused, because there is no controller."""
    enable_auto_in_sync_replicas: bool = False
    """Wait for fewer replicas if fewer are connected: refused under ``SYNC_MASTER``."""

    @property
    def awaited_followers(self) -> int:
        """Return how many followers must have a message before its put returns."""
        if self.broker_role is not BrokerRole.SYNC_MASTER:
            return 0
        return self.in_sync_replicas - 1 if "in_sync_replicas" in self.model_fields_set else 1

    @property
    def replica_promises(self) -> list[str]:
        """Return the settings that promise replicas of acknowledged messages, as ``key=value``.

        With such settings, puts are refused unless the store serves followers.
        """
        promises = {
            f"brokerRole={self.broker_role}": self.broker_role is BrokerRole.SYNC_MASTER,
            f"inSyncReplicas={self.in_sync_replicas}": self.in_sync_replicas > 1,
            f"minInSyncReplicas={self.min_in_sync_replicas}": self.min_in_sync_replicas > 1,
            "allAckInSyncStateSet=true": self.all_ack_in_sync_state_set,
        }
        return [promise for promise, given in promises.items() if given]

    @property
    def unkept_promises(self) -> list[str]:
        """Return a sentence for each replica setting that this store cannot fulfil."""
        is_sync = self.broker_role is BrokerRole.SYNC_MASTER
        sentences = []
        if self.all_ack_in_sync_state_set:
            sentences.append(
                "allAckInSyncStateSet=true is not supported: without a controller there is no set"
                " of in-sync replicas. Use inSyncReplicas to set how many must have a message"
            )
        if self.enable_auto_in_sync_replicas and is_sync:
            sentences.append(
                "enableAutoInSyncReplicas=true is not supported: whenever fewer replicas are"
                " connected, a put would wait for fewer than inSyncReplicas"
            )
        counts = [word for word in self.replica_promises if "nSyncReplicas" in word]
        if counts and not is_sync:
            sentences.append(
                f"{', '.join(counts)}: puts wait for replicas only under brokerRole=SYNC_MASTER"
            )
        return sentences

    def as_master(self) -> Self:
        """Return the settings with a slave's role changed to master, for readers and followers."""
        if self.broker_role is not BrokerRole.SLAVE:
            return self
        return self.model_copy(update={"broker_role": BrokerRole.ASYNC_MASTER})

    def without_replicas(self) -> Self:
        """Return the settings without ``replica_promises``, for work without acknowledgements."""
        role = {"broker_role": BrokerRole.ASYNC_MASTER} if self.broker_role == "SYNC_MASTER" else {}
        return self.model_copy(update={
            "in_sync_replicas": 1, "min_in_sync_replicas": 1, "all_ack_in_sync_state_set": False,
            **role,
        })  # fmt: skip
