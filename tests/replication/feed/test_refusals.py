"""Every reason for which our feed has nothing for our follower: both ends are named, at once."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqstore.replication.errors import DivergedError, WireError
from cqstore.replication.follow.epoch_protocol import Learner
from cqstore.replication.follow.follower import Follower
from cqstore.replication.ha.fetched import Master as Running
from cqstore.replication.ha.ha_check import CheckScope, checked
from cqstore.replication.wire import FRAME_HEAD, REPORT, FrameHead, Report
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands
from tests.kit.tree import tree_digest
from tests.kit.waiting import run, until
from tests.replication.feed.conftest import CONFIG, Master, leading

SIZES = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 400}
LARGER = CONFIG.model_copy(update={"mapped_file_size_commit_log": 6000})


def fill(root: Path, count: int, body: bytes = b"x" * 150, config: StoreConfig = CONFIG) -> int:
    """Put so many messages into a store; return where its log ends."""
    with MessageStore.open(root, config) as store:
        for number in range(count):
            assert store.put_message(Message("t", body, number % 2)).ok
        return store.max_phy_offset()


def expire(master: Master) -> None:
    master.put(200)
    assert master.store.delete_expired_files(8 * 4096).min_phy_offset == 8 * 4096


@dataclass(frozen=True)
class Case:
    """What the master has and what the follower has, and what is said."""

    name: str
    master: int
    own: int
    said: str
    then: Callable[[Master], object] = lambda _: None
    config: StoreConfig = CONFIG
    """The follower's."""


CASES = [
    Case("expired", 20, 10, "the master has no byte at {asked}: its log begins at 32768", expire),
    Case("ahead", 5, 600, "the master has no byte at {asked}: its log ends at {end}"),
    Case("made anew", 60, 100, "the master's log differs from this log"),
    Case("diverged", 100, 60, "the master's log differs from this log"),
    Case("other size", 60, 0, "set mappedFileSizeCommitLog to the master's", config=LARGER),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_follower_in_a_program_ends_with_both_ends_named(tmp_path: Path, case: Case) -> None:
    """With the times that a program has by default."""
    own = tmp_path / "own"
    ended = fill(own, case.own, config=case.config) if case.own else 0

    async def story(master: Master) -> str:
        with MessageStore.open(own, case.config) as store:
            before = store.max_phy_offset()
            follower = Follower(store, "127.0.0.1", master.port)
            with pytest.raises(DivergedError) as caught:
                async with asyncio.timeout(30):
                    await follower.run()
            assert store.max_phy_offset() == before
            return str(caught.value)

    with leading(tmp_path / "master", count=case.master) as master:
        case.then(master)
        said = run(story(master))
    requested = max(ended - (64 << 10), 1)
    assert case.said.format(asked=requested, end=master.end) in said
    if ended:
        assert f"{ended}" in said


@pytest.mark.parametrize("broker_id", [1, 9, 1 << 40])
async def test_a_learner_is_refused_once_by_a_feed_without_a_controller(
    tmp_path: Path, broker_id: int
) -> None:
    """With the largest id its handshake could also be two reports of a slave."""
    with leading(tmp_path / "master", count=5) as master:
        with MessageStore.open(tmp_path / "own", CONFIG.as_learner()) as store:
            follower = Follower(store, "127.0.0.1", master.port, learner=Learner(broker_id))
            with pytest.raises(WireError, match="Any other is followed without --controller"):
                async with asyncio.timeout(30):
                    await follower.run()
            assert follower.progress.connections == 1
        if broker_id < 1 << 32:
            said = "this is a slave under a controller (cqstore follow --controller)"
            until(lambda: any(said in reported for reported in master.reported))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_command_ends_with_1(tmp_path: Path, case: Case) -> None:
    own, conf = tmp_path / "own", tmp_path / "broker.conf"
    sizes = SIZES | {"mappedFileSizeCommitLog": case.config.mapped_file_size_commit_log}
    conf.write_text("".join(f"{key}={value}\n" for key, value in sizes.items()))
    ended = fill(own, case.own, config=case.config) if case.own else 0
    with leading(tmp_path / "master", count=case.master) as master:
        case.then(master)
        before = tree_digest(own / "commitlog") if ended else None
        place = f"127.0.0.1:{master.port}"
        done = commands.run(["follow", place, str(own), "--config", str(conf), "--until-quiet"])
    assert done.returncode == 1, done.stderr
    requested = max(ended - (64 << 10), 1)
    assert case.said.format(asked=requested, end=master.end) in done.stderr
    assert "retrying" not in done.stderr
    if ended:
        assert tree_digest(own / "commitlog") == before


async def test_a_file_size_that_shows_only_when_the_master_rolls_is_named(tmp_path: Path) -> None:
    """The first file begins at 0 in both: the wire does not say how long it becomes."""
    with (
        leading(tmp_path / "master", count=5) as master,
        MessageStore.open(tmp_path / "own", LARGER) as store,
    ):
        follower = Follower(store, "127.0.0.1", master.port)
        await follower.run(lambda progress: progress.end == master.end)
        master.put(60)
        with pytest.raises(DivergedError, match="is not 6000, set it here"):
            async with asyncio.timeout(30):
                await follower.run()


def test_a_check_of_logs_that_have_no_byte_in_common_says_so(tmp_path: Path) -> None:
    fill(tmp_path / "own", 10)
    with leading(tmp_path / "master", count=20) as master:
        expire(master)
        there = Running("127.0.0.1", master.port, quiet=0.05)
        with (
            pytest.raises(DivergedError, match="its log begins at 32768"),
            checked(tmp_path / "own", there, CONFIG, CheckScope()),
        ):
            pass


def test_a_slave_of_rocketmqs_is_sent_where_the_log_begins(master: Master) -> None:
    """Its log says ``SLAVE: 1 MASTER: 32768`` then; a closed connection would say nothing."""
    expire(master)

    async def story() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
        writer.write(REPORT.pack(Report(1)))
        answer = await reader.read()
        writer.close()
        return answer

    assert run(story()) == FRAME_HEAD.pack(FrameHead(32768, 0))
