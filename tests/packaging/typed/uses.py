# pyright: strict
"""A program that uses the public names; checked with the installed wheel, and never run."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import assert_type

import cqstore
from cqstore import (
    Arrival,
    ArrivalBatch,
    BoundaryType,
    BrokerRole,
    CheckFinding,
    CommitLogDispatcher,
    Compared,
    DiskDemand,
    DispatchRequest,
    EmbeddedLog,
    ExpiryReport,
    FileOutlook,
    FlushDiskType,
    GetMessageResult,
    GetMessageStatus,
    Host,
    LogMessage,
    LoopWait,
    Message,
    MessageStore,
    MetricsSnapshot,
    PutMessageHook,
    PutMessageResult,
    PutMessageStatus,
    QueryMessageResult,
    QueueKey,
    QueueSpan,
    ReadOnlyTail,
    Rebuild,
    RebuildReport,
    RecoveryOptions,
    RecoveryReport,
    Replicas,
    RocksDBEngine,
    Scan,
    StoreCheck,
    StoreConfig,
    StoredMessage,
    StoreError,
    StoreHooks,
    StoreMetrics,
    TagFilter,
    Tail,
    TailMessage,
    TopicDamage,
    TopicMessage,
    read_broker_conf,
    read_topic,
    scan,
)  # fmt: skip
from cqstore.metrics import BrokerLabels, Followed, StoreCollector, register
from cqstore.migration import (
    DeletedTopicPolicy,
    LogPlanReport,
    PreflightFinding,
    PreflightReport,
    RunReport,
    Severity,
    SwitchReport,
    VerifyReport,
    Workspace,
    finish_migration,
    make_log_plan,
    make_plan,
    migration_status,
    roll_back,
    run_plan,
    run_preflight,
    switch_store,
    verify_migration,
)  # fmt: skip
from cqstore.replication import Feeder, Followers, feeding

ROOT = Path("store")


class Hook:
    """A put hook."""

    hook_name = "hook"

    def execute_before_put_message(self, message: Message) -> PutMessageResult | None:
        """Refuse an empty message."""
        if message.body:
            return None
        return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason="empty")


class Taker:
    """A dispatcher."""

    def dispatch(self, request: DispatchRequest) -> None:
        """Take one record."""
        assert_type(request.message(), StoredMessage)
        assert_type(request.topic, str)


class NoReplicas:
    """Replicas that never have anything."""

    def in_sync(self, phy_offset: int, gap: int) -> int:
        """Return none."""
        return 0 * phy_offset * gap

    def reached(self, followers: int) -> int:
        """Return nothing."""
        return -1 * followers

    def wait(self, phy_offset: int, followers: int, deadline: float) -> bool:
        """Return at once."""
        return phy_offset + followers + deadline < 0


def config() -> StoreConfig:
    """Return settings, of a program and of a file."""
    read, unknown = read_broker_conf(Path("broker.conf"))
    assert_type(read, StoreConfig)
    assert_type([*unknown], list[str])
    assert_type(StoreConfig(enable_schedule_message_service=True), StoreConfig)
    assert_type(StoreConfig(mapped_file_size_commit_log=1 << 20), StoreConfig)
    return StoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, rocksdb_engine=RocksDBEngine.AUTO,
        broker_role=BrokerRole.ASYNC_MASTER, store_path_commit_log=None,
    )  # fmt: skip


def opened(replicas: Replicas) -> MessageStore:
    """Open a store with every option."""
    hook: PutMessageHook = Hook()
    taker: CommitLogDispatcher = Taker()
    return MessageStore.open(
        ROOT, config(), backend="rocksdb", read_only=False, housekeeping=True, replicas=replicas,
        recovery=RecoveryOptions(cut_at=None, pass_over=[1], rebuild=Rebuild.QUEUES),
        hooks=StoreHooks(put_hooks=[hook], dispatchers=[taker], installed=False), progress=print,
    )  # fmt: skip


async def put(store: MessageStore) -> None:
    """Put in each way."""
    message = Message("topic", b"body", 0, {"KEYS": "k"})
    assert_type(store.put_message(message), PutMessageResult)
    assert_type(await store.put_message_async(message), PutMessageResult)
    assert_type(store.put_message_future(message), Future[PutMessageResult])
    (one,) = store.put_messages([message])
    assert_type(store.put_client_batch(message), list[PutMessageResult])
    assert_type(one.ok, bool)
    assert_type(one.status, PutMessageStatus)
    assert_type(one.store_host, Host | None)


async def read(store: MessageStore) -> None:
    """Read in each way."""
    found = store.get_message("topic", 0, 0, 32, TagFilter("a || b"))
    assert_type(found, GetMessageResult)
    assert_type(found.status, GetMessageStatus)
    for message in found.messages():
        assert_type(message, StoredMessage)
        assert_type(bytes(message.body), bytes)
    assert_type(store.offset_by_time("topic", 0, 0, BoundaryType.UPPER), int)
    assert_type(store.query_message("topic", "k"), QueryMessageResult)
    assert_type(store.queue_keys(), Iterator[QueueKey])
    assert_type(next(store.queue_spans()), QueueSpan)
    with store.loop_wait({QueueKey("topic", 0): 1}) as wait:
        assert_type(wait, LoopWait)
        assert_type(await store.wait_for_async("topic", 0, 1), bool)

    def on_damage(damage: TopicDamage) -> None:
        assert_type(damage.reason, str)

    for each in read_topic(store, "topic", on_damage=on_damage):
        assert_type(each, TopicMessage)


def listen(store: MessageStore) -> None:
    """Listen for arrivals."""

    def listener(batch: ArrivalBatch) -> None:
        for each in batch:
            assert_type(each, Arrival)

    store.add_arrival_listener(listener).close()


def look(store: MessageStore) -> None:
    """Use what openings, checks and deletions return."""
    assert_type(store.report, RecoveryReport)
    assert_type(store.config, StoreConfig)
    assert_type(store.root, Path)
    assert_type(store.metrics, StoreMetrics)
    assert_type(store.metrics.snapshot(), MetricsSnapshot)
    assert_type(store.min_phy_offset() + store.max_phy_offset() + store.flushed_phy_offset(), int)
    assert_type(store.checker(), StoreCheck)
    assert_type(store.check(), Iterator[CheckFinding])
    assert_type(store.verify(), Compared)
    assert_type(store.delete_expired_files(0), ExpiryReport)
    assert_type(store.rebuild_queues("topic"), RebuildReport)
    assert_type(store.expiring_files(), tuple[DiskDemand, list[FileOutlook]])


async def embedded() -> None:
    """Use an embedded log."""
    with cqstore.open("log", StoreConfig(), hooks=StoreHooks(), queues=3) as log:
        assert_type(log, EmbeddedLog)
        assert_type(log.put("topic", b"body", key="k"), PutMessageResult)
        assert_type(await log.put_async("topic", b"body"), PutMessageResult)
        async with log.tail("topic", group="g") as tail:
            assert_type(tail, Tail)
            async for message in tail:
                assert_type(message, TailMessage)
                message.commit()
        assert_type(log.tail("topic"), ReadOnlyTail)
        for each in log.read("topic"):
            assert_type(each, LogMessage)
    assert_type(scan("log", "topic"), Scan)


def watched(store: MessageStore, followed: Followed) -> StoreCollector:
    """Register for Prometheus."""
    return register(store, followers=[followed], brokers={store: BrokerLabels("broker-a")})


def fed(store: MessageStore) -> None:
    """Feed followers."""
    with feeding(Feeder(store, Followers(), port=10912)) as feeder:
        assert_type(feeder, Feeder)


def moved() -> None:
    """Move a store."""
    found: PreflightReport = run_preflight(ROOT)
    for each in found.findings:
        assert_type(each, PreflightFinding)
        assert_type(each.severity, Severity)
    space: Workspace | None = None
    assert_type(make_plan(ROOT, target="rocksdb", workspace=space).source, str)
    assert_type(make_log_plan(ROOT), LogPlanReport)
    assert_type(run_plan(ROOT, master="none"), RunReport)
    assert_type(verify_migration(ROOT, master="none"), VerifyReport)
    assert_type(switch_store(ROOT), SwitchReport)
    assert_type(roll_back(ROOT, returning=next(iter(DeletedTopicPolicy))), SwitchReport | None)
    assert_type(finish_migration(ROOT), dict[str, int])
    assert_type(migration_status(ROOT), dict[str, object])


if __name__ == "__main__":
    try:
        with opened(NoReplicas()) as a_store:
            asyncio.run(put(a_store))
            asyncio.run(read(a_store))
    except StoreError as exc:
        assert_type(exc.reason, str)
        assert_type(exc.path, Path | None)
