"""Ours is the master and RocketMQ's own slave follows it: logs and queues are one."""

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.followers import Followers
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.interop.rocketmq import RocketMQ
from tests.interop.test_following import file_bytes
from tests.interop.test_interop import CONFIG, KINDS, QUEUES, SIZES, compare
from tests.kit.cutting_proxy import CuttingProxy
from tests.kit.long_too import long_too
from tests.kit.waiting import run_threads, until

pytestmark = pytest.mark.interop
SLAVE = {**SIZES, "haSendHeartbeatInterval": 700}
SETTINGS = FeedSettings(ha_send_heartbeat_interval=700)
LIMIT_SECONDS = 200


def put(store: MessageStore, count: int) -> Counter[PutMessageStatus]:
    """Put to every queue of the peer's; return how often which status came."""
    statuses: Counter[PutMessageStatus] = Counter()
    for number in range(count):
        for topic, queue_id in QUEUES:
            properties = {"TAGS": f"tag{number % 5}", "KEYS": f"key{number % 50}"}
            if topic.startswith("%LMQ%"):
                properties["INNER_MULTI_DISPATCH"] = topic
                topic = "parent"  # noqa: PLW2901 - where a light queue's messages are put
            body = b"from python " * (number % 60)
            statuses[store.put_message(Message(topic, body, queue_id, properties)).status] += 1
    return statuses


@contextmanager
def fed(
    root: Path, config: StoreConfig = CONFIG, backend: str | None = None
) -> Iterator[tuple[MessageStore, int]]:
    followers = Followers()
    replicas = followers if config.replica_promises else None
    with (
        MessageStore.open(
            root, config, backend=backend, replicas=replicas, housekeeping=False
        ) as store,
        feeding(Feeder(store, followers, settings=SETTINGS)) as feeder,
    ):
        yield store, feeder.port


@contextmanager
def cutting(port: int, cuts: int, most: int) -> Iterator[CuttingProxy]:
    """A proxy in front of ``port``, in a thread."""
    proxy, ready, ended = CuttingProxy(port, cuts, most), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with proxy.running():
            loops.append(asyncio.get_running_loop())
            ready.set()
            await ended.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    try:
        yield proxy
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join()


def follow_while_it_grows(
    rocketmq: RocketMQ, own: Path, theirs: Path, backend: str, kind: str, cuts: int
) -> int:
    """Put in four threads while a real slave follows; return the end of both logs."""
    with fed(own, backend=backend) as (store, port), cutting(port, cuts, 60_000) as proxy:
        put(store, 1)
        with rocketmq.following(proxy.port, theirs, kind, QUEUES, **SLAVE) as slave:
            slave.followed(store.max_phy_offset())
            threads = [threading.Thread(target=put, args=(store, 120)) for _ in range(4)]
            run_threads(threads)
            end = store.max_phy_offset()
            assert slave.followed(end) == end
            assert proxy.connections > cuts
    return end


@pytest.mark.parametrize(
    ("backend", "theirs"),
    [
        ("file", "defaultRocksDB"), ("rocksdb", "default"),
        *long_too([("file", "default"), ("rocksdb", "defaultRocksDB")]),
    ],
)  # fmt: skip
def test_a_real_slave_follows_while_messages_are_put_and_connections_cut(
    tmp_path: Path, rocketmq: RocketMQ, backend: str, theirs: str
) -> None:
    own, root = tmp_path / "own", tmp_path / "theirs"
    end = follow_while_it_grows(rocketmq, own, root, backend, theirs, cuts=4)
    assert end > 5 * SIZES["mappedFileSizeCommitLog"]
    assert file_bytes(root, 0, end) == file_bytes(own, 0, end)
    rows = rocketmq.dump(root, theirs, QUEUES, **SIZES)
    compare(own, rows)
    assert rows == rocketmq.dump(own, KINDS[backend], QUEUES, **SIZES)


@pytest.mark.long
def test_an_older_slave_follows_too(tmp_path: Path, rocketmq_533: RocketMQ) -> None:
    own, root = tmp_path / "own", tmp_path / "theirs"
    end = follow_while_it_grows(rocketmq_533, own, root, "file", "default", cuts=2)
    assert file_bytes(root, 0, end) == file_bytes(own, 0, end)
    compare(own, rocketmq_533.dump(root, "default", QUEUES, **SIZES))


@pytest.mark.long
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_puts_wait_for_a_real_slave(tmp_path: Path, rocketmq: RocketMQ, flush: str) -> None:
    keys = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "flushDiskType": flush}
    hasty = CONFIG.from_mapping({**SIZES, **keys, "slaveTimeout": 300})
    patient = CONFIG.from_mapping({**SIZES, **keys, "slaveTimeout": 60_000})
    count = len(QUEUES)
    own, root = tmp_path / "own", tmp_path / "theirs"
    with fed(own, hasty) as (store, _):
        assert put(store, 1) == {PutMessageStatus.FLUSH_SLAVE_TIMEOUT: count}
    with (
        fed(own, patient) as (store, port),
        rocketmq.following(port, root, "default", QUEUES, **SLAVE) as slave,
    ):
        slave.followed(store.max_phy_offset())
        assert put(store, 31) == {PutMessageStatus.PUT_OK: 31 * count}
    with (
        fed(own, hasty) as (store, port),
        rocketmq.following(port, root, "default", QUEUES, **SLAVE) as slave,
    ):
        until(lambda: put(store, 1) == {PutMessageStatus.PUT_OK: count})
        acknowledged = store.max_phy_offset()
        slave.kill()
        assert PutMessageStatus.FLUSH_SLAVE_TIMEOUT in put(store, 1)
    log = file_bytes(own, 0, acknowledged)
    assert file_bytes(root, 0, acknowledged) == log


@pytest.mark.long
def test_a_slave_that_is_killed_and_one_that_begins_late_get_the_log(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    own, root, late = tmp_path / "own", tmp_path / "theirs", tmp_path / "late"
    with fed(own) as (store, port):
        put(store, 1)
        with rocketmq.following(port, root, "default", QUEUES, **SLAVE) as slave:
            slave.followed(store.max_phy_offset())
            put(store, 100)
            slave.followed(store.max_phy_offset() // 2)
            slave.kill()
        put(store, 100)
        end = store.max_phy_offset()
        begin = end - end % SIZES["mappedFileSizeCommitLog"]
        for each in (root, late):
            with rocketmq.following(port, each, "default", QUEUES, **SLAVE) as slave:
                assert slave.followed(end) == end
    assert file_bytes(root, 0, end) == file_bytes(own, 0, end)
    assert file_bytes(late, begin, end) == file_bytes(own, begin, end)
    assert sorted(path.name for path in (late / "commitlog").iterdir())[0] == f"{begin:020d}"


@pytest.mark.long
def test_a_former_master_that_is_longer_is_served_nothing(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    """Two of RocketMQ's end with logs of one length and different bytes."""
    root = tmp_path / "theirs"
    rocketmq.append(root, "default", QUEUES, 20, crash=False, **SIZES)
    before = shutil.copytree(root / "commitlog", tmp_path / "before")
    reported: list[str] = []
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        put(store, 1)
        with (
            feeding(Feeder(store, settings=SETTINGS, on_event=reported.append)) as feeder,
            rocketmq.following(feeder.port, root, "default", QUEUES, **SLAVE),
        ):
            until(
                lambda: any(
                    "the follower requested the log from" in sentence for sentence in reported
                )
            )
    for path in before.iterdir():
        assert (root / "commitlog" / path.name).read_bytes() == path.read_bytes()
