"""RocketMQ is the master and ours follows it: the logs are one, and the queues answer alike."""

import asyncio
import shutil
from pathlib import Path

import pytest

from cqstore.migration.follow import move
from cqstore.migration.preflight import preflight
from cqstore.replication.errors import DivergedError
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing
from cqstore.store.service.message_store import MessageStore
from tests.interop.rocketmq import Master, RocketMQ
from tests.interop.test_interop import CONFIG, KINDS, QUEUES, SIZES, compare
from tests.kit.cutting_proxy import CuttingProxy
from tests.kit.log_bytes import log_of
from tests.kit.long_too import long_too
from tests.kit.moving import LEVEL, Moving
from tests.kit.served import served
from tests.kit.waiting import becomes
from tests.migration.preflight.kit import FakeMachine, codes

pytestmark = pytest.mark.interop
FAST = Timing(first_retry=0.01, last_retry=0.05)
PATIENT = Timing(first_retry=0.01, last_retry=0.05, quiet=1.5)
MASTER = {**SIZES, "haSendHeartbeatInterval": 700}
LIMIT_SECONDS = 200


def file_bytes(root: Path, begin: int, end: int) -> bytes:
    """Return the bytes of a log in ``root`` as its files have them."""
    files = sorted((root / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in files)
    first = int(files[0].name)
    return data[begin - first : end - first]


async def followed(
    store: MessageStore, port: int, puts: "asyncio.Future[dict[str, int]]"
) -> FollowerProgress:
    """Follow until all that was put is here, and the master says that there is no more."""
    follower = Follower(store, "127.0.0.1", port, timing=FAST)
    async with asyncio.timeout(LIMIT_SECONDS):
        await follower.run(
            lambda progress: puts.done() and progress.end >= puts.result()["end"]
            and progress.caught_up
        )  # fmt: skip
    return follower.progress


@pytest.mark.parametrize(
    ("backend", "theirs"),
    [
        ("file", "defaultRocksDB"), ("rocksdb", "default"),
        *long_too([("file", "default"), ("rocksdb", "defaultRocksDB")]),
    ],
)  # fmt: skip
def test_a_running_rocketmq_is_followed_while_connections_are_cut(
    tmp_path: Path, rocketmq: RocketMQ, backend: str, theirs: str
) -> None:
    root, own = tmp_path / "theirs", tmp_path / "own"

    async def story(master: Master) -> FollowerProgress:
        proxy = CuttingProxy(master.port, cuts=60, limit=40_000)
        with MessageStore.open(own, CONFIG, backend=backend) as store:
            async with proxy.running():
                empty = asyncio.get_running_loop().create_future()
                empty.set_result({"end": 0})
                await followed(store, proxy.port, empty)  # from its first byte on
                puts = asyncio.ensure_future(asyncio.to_thread(master.put, 900))
                progress = await followed(store, proxy.port, puts)
                assert proxy.connections > 60
                return progress

    with rocketmq.serving(root, theirs, QUEUES, **MASTER) as master:
        end = asyncio.run(story(master)).end
    assert end > 10 * SIZES["mappedFileSizeCommitLog"]
    with MessageStore.open(own, CONFIG) as store:
        assert (store.report.needed, store.min_phy_offset()) == (False, 0)
        assert log_of(store) == file_bytes(root, 0, end)
        assert [finding for finding in store.check() if finding.damage] == []
    shutil.copytree(root / "commitlog", tmp_path / "replayed" / "commitlog")
    with MessageStore.open(tmp_path / "replayed", CONFIG, backend=backend) as store:
        assert store.max_phy_offset() == end
    assert served(own) == served(tmp_path / "replayed")
    rows = rocketmq.dump(own, KINDS[backend], QUEUES, **SIZES)
    compare(own, rows)
    assert rows == rocketmq.dump(root, theirs, QUEUES, **SIZES)


@pytest.mark.long
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_synchronous_master_counts_on_what_is_acknowledged(
    tmp_path: Path, rocketmq: RocketMQ, flush: str
) -> None:
    """Its puts wait for ours; without it, or before it has proven its log, they time out."""
    settings = {**MASTER, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    config = CONFIG.from_mapping({**SIZES, "flushDiskType": flush})
    root = tmp_path / "theirs"

    async def story(master: Master) -> None:
        with MessageStore.open(tmp_path / "own", config) as store:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run())
            progress = follower.progress
            await becomes(lambda: progress.end >= alone["end"] and progress.verified)
            both = await asyncio.to_thread(master.put, 50)
            assert both["statuses"] == {"PUT_OK": 50 * len(QUEUES)}
            assert store.max_phy_offset() == both["end"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with rocketmq.serving(root, "default", QUEUES, **settings, slaveTimeout=400) as master:
        alone = master.put(1)
        assert alone["statuses"] == {"FLUSH_SLAVE_TIMEOUT": len(QUEUES)}
    with rocketmq.serving(root, "default", QUEUES, **settings, slaveTimeout=60_000) as master:
        asyncio.run(story(master))


@pytest.mark.long
def test_a_follower_that_comes_later_gets_the_last_file_and_goes_on_after_a_restart(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    root, own = tmp_path / "theirs", tmp_path / "own"

    async def story(master: Master, count: int) -> FollowerProgress:
        with MessageStore.open(own, CONFIG) as store:
            puts = asyncio.ensure_future(asyncio.to_thread(master.put, count))
            await puts
            return await followed(store, master.port, puts)

    with rocketmq.serving(root, "default", QUEUES, **MASTER) as master:
        first = asyncio.run(story(master, 300)).end
        master.kill()
    with rocketmq.serving(root, "default", QUEUES, **MASTER) as master:
        end = asyncio.run(story(master, 300)).end
    begin = first - first % SIZES["mappedFileSizeCommitLog"]
    assert begin > 0
    with MessageStore.open(own, CONFIG) as store:
        assert store.min_phy_offset() == begin
        assert log_of(store) == file_bytes(root, begin, end)
    replayed = tmp_path / "replayed"
    (replayed / "commitlog").mkdir(parents=True)
    for path in (root / "commitlog").iterdir():
        if int(path.name) >= begin:
            shutil.copy(path, replayed / "commitlog")
    MessageStore.open(replayed, CONFIG).close()
    assert served(own) == served(replayed)


@pytest.mark.long
def test_an_older_rocketmq_is_followed_too(tmp_path: Path, rocketmq_533: RocketMQ) -> None:
    root, own = tmp_path / "theirs", tmp_path / "own"

    async def story(master: Master) -> FollowerProgress:
        proxy = CuttingProxy(master.port, cuts=10, limit=20_000)
        with MessageStore.open(own, CONFIG) as store:
            async with proxy.running():
                puts = asyncio.ensure_future(asyncio.to_thread(master.put, 60))
                return await followed(store, proxy.port, puts)

    with rocketmq_533.serving(root, "default", QUEUES, **MASTER) as master:
        end = asyncio.run(story(master)).end
    with MessageStore.open(own, CONFIG) as store:
        begin = store.min_phy_offset()
        assert log_of(store) == file_bytes(root, begin, end)
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.long
def test_a_former_master_with_a_longer_log_is_told_by_a_real_one(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    """RocketMQ's own slave ends with a log of the same length and other bytes."""
    own = tmp_path / "own"
    rocketmq.append(own, "default", QUEUES, 20, crash=False, **SIZES)
    with MessageStore.open(own, CONFIG) as store:
        before, ends = log_of(store), store.max_phy_offset()

    async def refused(master: Master) -> str:
        with MessageStore.open(own, CONFIG) as store:
            with pytest.raises(DivergedError) as caught:
                async with asyncio.timeout(LIMIT_SECONDS):
                    await Follower(store, "127.0.0.1", master.port, timing=FAST).run()
            assert log_of(store) == before
            return str(caught.value)

    with rocketmq.serving(tmp_path / "theirs", "default", QUEUES, **MASTER) as master:
        empty = asyncio.run(refused(master))
        assert f"this log ends at {ends}, but the master's ends at 0;" in empty
        assert master.put(1)["end"] < ends
        assert f"differs from this log, which ends at {ends}" in asyncio.run(refused(master))
        assert master.put(50)["end"] > ends
        assert f"differs from this log, which ends at {ends}" in asyncio.run(refused(master))


def test_a_running_rocketmq_is_moved_to_rocksdb_and_goes_on_there(
    tmp_path: Path, rocketmq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "_LEVEL_SECONDS", 0.0)  # level is who has all
    root, own = tmp_path / "theirs", tmp_path / "own"
    with rocketmq.serving(root, "default", QUEUES, **MASTER) as master:
        master.put(300)
        moving = Moving(root, master.port, own, CONFIG, timing=PATIENT).start()
        moving.wait_for(LEVEL)
        seen = preflight(root, CONFIG, machine=FakeMachine(), running=True)
        assert (codes(seen.refusals), seen.units) == ([], 300 * len(QUEUES))
        assert seen.find("in-use") is not None
        end = master.put(200)["end"]
    report = moving.end()
    assert (report.stopped, report.queues, report.end) == (True, len(QUEUES), end)
    assert 0 < report.verified_to < end
    assert report.units == 300 * len(QUEUES)
    rows = rocketmq.dump(root, "default", QUEUES, **SIZES)
    assert rocketmq.dump(own, "defaultRocksDB", QUEUES, **SIZES) == rows
    compare(own, rows)
    rocketmq.append(own, "defaultRocksDB", QUEUES, 5, crash=False, **SIZES)
    with MessageStore.open(own, CONFIG) as store:
        assert [store.max_offset(*queue) for queue in QUEUES] == [505] * len(QUEUES)
