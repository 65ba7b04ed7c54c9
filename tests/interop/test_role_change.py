"""A follower of RocketMQ becomes the master, and RocketMQ's own store comes back and follows it."""

import asyncio
from pathlib import Path

import pytest

from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.ha.fetched import Master as MasterAddress
from cqstore.replication.ha.ha_check import CheckScope, checked
from cqstore.replication.ha.rejoin import rejoin
from cqstore.store.service.message_store import MessageStore
from tests.interop.rocketmq import RocketMQ
from tests.interop.test_following import file_bytes
from tests.interop.test_interop import CONFIG, KINDS, QUEUES, SIZES, compare, put
from tests.kit.log_bytes import log_of

pytestmark = pytest.mark.interop
MASTER = {**SIZES, "haSendHeartbeatInterval": 700}
FAST = Timing(first_retry=0.01, last_retry=0.05)
LIMIT_SECONDS = 200


def follow(root: Path, port: int, backend: str, end: int) -> None:
    """Follow until the log here ends at ``end`` and the master has nothing more."""

    async def story() -> None:
        with MessageStore.open(root, CONFIG, backend=backend) as store:
            follower = Follower(store, "127.0.0.1", port, timing=FAST)
            async with asyncio.timeout(LIMIT_SECONDS):
                await follower.run(lambda progress: progress.caught_up and progress.end >= end)

    asyncio.run(story())


def sound(root: Path) -> int:
    """Check the store as a whole; return where its log ends."""
    with MessageStore.open(root, CONFIG) as store:
        assert [finding for finding in store.check() if finding.damage] == []
        return store.max_phy_offset()


@pytest.mark.parametrize("backend", list(KINDS))
def test_a_follower_becomes_the_master_and_the_former_one_comes_back(
    tmp_path: Path, rocketmq: RocketMQ, backend: str
) -> None:
    former, own, kind = tmp_path / "former", tmp_path / "own", KINDS[backend]
    with rocketmq.serving(former, kind, QUEUES, **MASTER) as master:
        end = master.put(1)["end"]
        follow(own, master.port, backend, end)  # from its first byte on
        end = master.put(150)["end"]
        follow(own, master.port, backend, end)
        place = MasterAddress("127.0.0.1", master.port, quiet=1.0)
        with checked(own, place, CONFIG, CheckScope(1 << 40)) as found:
            assert list(found.differences()) == []
            assert (found.common.compared, found.common.end) == (range(end), end)
        last = master.put(40)["end"]  # without a follower
        with checked(own, place, CONFIG) as found:
            assert (list(found.differences()), found.common.end) == ([], end)
            assert found.tails[1].end == last
            assert found.tails[1].records == 40 * len(QUEUES)
        master.kill()
    lost = file_bytes(former, end, last)

    with MessageStore.open(own, CONFIG) as store:  # the follower is the master now
        assert not store.report.needed
        for number in range(200):
            put(store, number)
        assert store.max_phy_offset() > end
    compare(own, rocketmq.dump(own, kind, QUEUES, **SIZES))
    rocketmq.append(own, kind, QUEUES, 30, crash=False, **SIZES)  # and RocketMQ goes on with it
    compare(own, rocketmq.dump(own, kind, QUEUES, **SIZES))
    sound(own)

    with checked(former, own, CONFIG) as found:
        assert found.common.end == end
        assert found.tails[0].records == 40 * len(QUEUES)
        assert [sentence for sentence in found.differences() if f"diverge at {end}" in sentence]
    done = rejoin(former, own, CONFIG)
    assert (done.phy_offset, done.done) == (end, True)
    assert b"".join(tail.path.read_bytes() for tail in done.saved).startswith(lost[:1000])
    assert sound(former) == end
    rows = rocketmq.dump(former, kind, QUEUES, **SIZES)
    compare(former, rows)
    assert max(row["phy"] for row in rows if row["kind"] == "message") < end

    with rocketmq.serving(own, kind, QUEUES, **MASTER) as master:
        whole = master.put(20)["end"]
        follow(former, master.port, backend, whole)
    assert sound(former) == whole
    with MessageStore.open(former, CONFIG) as store:
        assert log_of(store) == file_bytes(own, 0, whole)
    rows = rocketmq.dump(former, kind, QUEUES, **SIZES)
    compare(former, rows)
    assert rows == rocketmq.dump(own, kind, QUEUES, **SIZES)


@pytest.mark.long
@pytest.mark.parametrize("backend", list(KINDS))
def test_a_synchronous_master_counts_on_no_comparison(
    tmp_path: Path, rocketmq: RocketMQ, backend: str
) -> None:
    """Its puts time out while a log is compared with its own: nothing is acknowledged."""
    settings = {**MASTER, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 400}
    own = tmp_path / "own"
    rocketmq.append(own, KINDS[backend], QUEUES, 300, crash=False, **SIZES)

    async def while_compared(port: int, put_some: "asyncio.Future[dict[str, object]]") -> None:
        def compare_once() -> None:
            with checked(
                own, MasterAddress("127.0.0.1", port, quiet=1.0), CONFIG, CheckScope(1 << 40)
            ):
                pass

        while not put_some.done():
            await asyncio.to_thread(compare_once)

    async def story() -> None:
        with rocketmq.serving(tmp_path / "theirs", KINDS[backend], QUEUES, **settings) as master:
            puts = asyncio.ensure_future(asyncio.to_thread(master.put, 2))
            await while_compared(master.port, puts)
            assert (await puts)["statuses"] == {"FLUSH_SLAVE_TIMEOUT": 2 * len(QUEUES)}

    asyncio.run(story())
