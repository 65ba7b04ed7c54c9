"""RocketMQ, under a controller, is the master; ours follows as a learner, beside its own slave."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from cqstore.replication.errors import BeyondEpochError
from cqstore.replication.follow.epoch_protocol import Learner
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.rocketmq import Master, RocketMQ
from tests.interop.test_following import FAST, LIMIT_SECONDS, MASTER, file_bytes
from tests.interop.test_interop import CONFIG, QUEUES, SIZES, compare
from tests.kit.cutting_proxy import CuttingProxy
from tests.kit.log_bytes import log_of
from tests.kit.waiting import becomes

pytestmark = pytest.mark.interop
EPOCHS = "epochFileCheckpoint"
LEARNER = CONFIG.as_learner()


def follow(
    root: Path, port: int, end: int, config: StoreConfig = LEARNER, cuts: int = 0
) -> FollowerProgress:
    """Follow to ``end``, and until the master says that there is no more."""

    async def story() -> FollowerProgress:
        with MessageStore.open(root, config) as store:
            proxy = CuttingProxy(port, cuts=cuts, limit=40_000)
            async with proxy.running(), asyncio.timeout(LIMIT_SECONDS):
                follower = Follower(
                    store, "127.0.0.1", proxy.port, timing=FAST, learner=Learner(99)
                )
                await follower.run(lambda progress: progress.end >= end and progress.caught_up)
                return follower.progress

    return asyncio.run(story())


def test_a_master_is_followed_through_its_epochs(tmp_path: Path, rocketmq: RocketMQ) -> None:
    """Its own slave, which has followed from the same byte on, has the same bytes in the end."""
    root, own, slave = tmp_path / "theirs", tmp_path / "own", tmp_path / "slave"
    with rocketmq.serving(root, "default", QUEUES, epoch=1, **MASTER) as master:
        follow(own, master.port, 0)  # from its first byte on
        follow(own, master.port, master.put(150)["end"], cuts=20)
        second = master.put(3)["end"]
        master.reign(2)
        end = master.put(150)["end"]
        progress = follow(own, master.port, end, cuts=20)
        assert progress.connections > 20
        assert (own / EPOCHS).read_bytes() == (root / EPOCHS).read_bytes()
    with rocketmq.serving(root, "default", QUEUES, epoch=5, **MASTER) as master:
        end = master.put(100)["end"]
        follow(own, master.port, end)
        with rocketmq.following(
            master.port, slave, "default", QUEUES, epoch=5, slaveId=7, **SIZES
        ) as java:
            assert java.followed(end) == end
            epochs = (slave / EPOCHS).read_bytes()
    assert epochs == (root / EPOCHS).read_bytes() == (own / EPOCHS).read_bytes()
    assert f"\n2-{second}\n5-" in epochs.decode()
    assert (own / f"{EPOCHS}.bak").read_bytes() == (slave / f"{EPOCHS}.bak").read_bytes()
    with MessageStore.open(own, LEARNER) as store:
        assert log_of(store) == file_bytes(root, 0, end) == file_bytes(slave, 0, end)
        assert [finding for finding in store.check() if finding.damage] == []
    compare(own, rocketmq.dump(root, "default", QUEUES, **SIZES))


def has_reached(progress: FollowerProgress, end: int) -> bool:
    return progress.end >= end


@pytest.mark.long
def test_a_learner_is_never_counted(tmp_path: Path, rocketmq: RocketMQ) -> None:
    """Neither in the set in sync, nor by a put that waits for two replicas."""
    settings = {**MASTER, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 400}

    async def story(master: Master) -> None:
        with MessageStore.open(tmp_path / "own", LEARNER) as store:
            port = master.port
            follower = Follower(store, "127.0.0.1", port, timing=FAST, learner=Learner(99))
            task = asyncio.create_task(follower.run())
            for _ in range(3):
                put = await asyncio.to_thread(master.put, 2)
                assert put["statuses"] == {"FLUSH_SLAVE_TIMEOUT": 2 * len(QUEUES)}
                await becomes(partial(has_reached, follower.progress, put["end"]))
                assert put["inSync"] == [1]
            assert master.put(0)["inSync"] == [1]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with rocketmq.serving(tmp_path / "theirs", "default", QUEUES, epoch=1, **settings) as master:
        asyncio.run(story(master))
        with rocketmq.following(
            master.port, tmp_path / "slave", "default", QUEUES, epoch=1, slaveId=7, **SIZES
        ) as java:  # what is no learner is counted
            java.followed(master.put(1)["end"])
            put = master.put(1)
            assert put["statuses"] == {"PUT_OK": len(QUEUES)}
            assert sorted(put["inSync"]) == [1, 7]


@pytest.mark.long
def test_a_former_master_is_told_where_a_real_one_parted_from_it(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    """What the former one had alone is of an epoch that the new one has not."""
    root, own = tmp_path / "theirs", tmp_path / "own"
    with rocketmq.serving(own, "default", QUEUES, epoch=1, **MASTER) as former:
        with rocketmq.following(
            former.port, root, "default", QUEUES, epoch=1, slaveId=7, **SIZES
        ) as java:
            common = java.followed(former.put(30)["end"])
        former.reign(2)
        end = former.put(20)["end"]
    with rocketmq.serving(root, "default", QUEUES, epoch=3, **MASTER) as master:
        there = master.put(5)["end"]
        with pytest.raises(BeyondEpochError) as caught:
            follow(own, master.port, end)
        assert caught.value.phy_offset == common
        assert (
            f"ends at {end}, the master's at {there}, but they are equal only up to {common}"
            in (str(caught.value))
        )
