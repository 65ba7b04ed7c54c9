"""Our follower behind our feeder: the logs are one, and the queues answer alike."""

import asyncio
import threading
from pathlib import Path

import pytest

from cqstore.replication.errors import DivergedError
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import FlushDiskType
from tests.kit.cutting_proxy import CuttingProxy
from tests.kit.log_bytes import log_of
from tests.kit.served import served
from tests.kit.waiting import run
from tests.replication.feed.conftest import CONFIG, QUICK, Master, leading
from tests.replication.feed.test_sync_master import PATIENT, sync

FAST = Timing(report=0.05, first_retry=0.001, last_retry=0.01, quiet=0.05)


def put_in_threads(master: Master, threads: int, count: int) -> list[threading.Thread]:
    """Put from several threads: single messages, lists, all lengths; some with keys."""

    def put(first: int) -> None:
        for number in range(first, first + count):
            properties = {"KEYS": f"k{number}", "TAGS": "a"} if number % 3 else {}
            message = Message("t", b"%d " % number * (number % 97), number % 4, properties)
            if number % 5:
                assert master.store.put_message(message).ok
            else:
                assert all(result.ok for result in master.store.put_messages([message] * 3))

    started = [threading.Thread(target=put, args=(place * count,)) for place in range(threads)]
    for thread in started:
        thread.start()
    return started


async def copied(master: Master, own: Path) -> bytes:
    """Follow the master to its end; return the log that the follower has then."""
    with MessageStore.open(own, CONFIG) as store:
        follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
        await follower.run(lambda progress: progress.end == master.end)
        return log_of(store)


@pytest.mark.slow
@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("backend", backend_names())
def test_a_log_is_followed_while_it_grows_through_cuts_at_any_byte(
    tmp_path: Path, backend: str, flush: FlushDiskType
) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": flush})

    async def story(master: Master) -> FollowerProgress:
        proxy = CuttingProxy(master.port, cuts=40, limit=30_000)
        with MessageStore.open(tmp_path / "own", CONFIG, backend=backend) as store:
            async with proxy.running():
                follower = Follower(store, "127.0.0.1", proxy.port, timing=FAST)
                await follower.run(lambda progress: progress.end > 0)  # from its first byte on
                threads = put_in_threads(master, 4, 250)
                await follower.run(
                    lambda progress: (
                        not any(thread.is_alive() for thread in threads)
                        and progress.end == master.end
                    )
                )
                assert proxy.connections > 40
                assert log_of(store) == master.log
                return follower.progress

    with leading(tmp_path / "master", config, count=1) as master:
        assert run(story(master)).end == master.end > 30 * 4096
    assert served(tmp_path / "own") == served(tmp_path / "master")
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.slow
@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_every_put_that_waited_is_at_the_follower(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    with (
        leading(tmp_path / "master", sync(flush_disk_type=flush, **PATIENT)) as master,
        MessageStore.open(tmp_path / "own", CONFIG) as store,
    ):
        follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
        task = asyncio.create_task(follower.run())
        for number in range(60):
            result = await asyncio.to_thread(
                master.store.put_message, Message("t", b"%d" % number, 0)
            )
            assert result.status is PutMessageStatus.PUT_OK
            assert result.appended is not None
            end = result.phy_offset + result.appended.size
            assert store.max_phy_offset() >= end
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_follower_of_a_follower_gets_the_same_log(tmp_path: Path) -> None:
    """A log that begins at a later file than the first, too."""
    with leading(tmp_path / "a", count=60) as master:
        begin, log = master.end - master.end % 4096, master.log
        assert run(copied(master, tmp_path / "b")) == log[begin:]
    with leading(tmp_path / "b") as master:
        assert run(copied(master, tmp_path / "c")) == log[begin:]
    assert served(tmp_path / "b") == served(tmp_path / "c")


def test_a_former_master_with_a_longer_log_is_told_at_both_ends(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        for _ in range(100):
            assert store.put_message(Message("t", b"other" * 20, 0)).ok
        longer = store.max_phy_offset()

        async def story(master: Master) -> None:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            await follower.run()

        with (
            leading(tmp_path / "master", count=60) as master,
            pytest.raises(DivergedError) as caught,
        ):
            run(story(master))
        assert f"which ends at {longer}" in str(caught.value)


def test_a_feeder_that_is_quiet_says_that_there_is_no_more(tmp_path: Path) -> None:
    settings = FeedSettings(ha_send_heartbeat_interval=20)

    async def story(master: Master) -> FollowerProgress:
        with MessageStore.open(tmp_path / "own", CONFIG) as store:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            await follower.run(lambda progress: progress.caught_up)
            return follower.progress

    with leading(tmp_path / "master", settings=settings, count=60) as master:
        assert run(story(master)).end == master.end


def test_a_batch_of_any_size_brings_the_same_log(tmp_path: Path) -> None:
    for batch in (1, 7, 1 << 20):
        settings = QUICK.model_copy(update={"ha_transfer_batch_size": batch})
        with leading(tmp_path / f"{batch}", settings=settings, count=20) as master:
            begin = master.end - master.end % 4096
            assert run(copied(master, tmp_path / f"own{batch}")) == master.log[begin:]
