"""``follow --until-quiet`` ends too where the master never becomes quiet, and says why."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqstore.replication.follow.follower_progress import FollowerProgress
from cqstore.replication.follow.quiet_deadline import QuietDeadline
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.log_bytes import log_of
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import serving
from tests.replication.conftest import CONFIG, Led
from tests.replication.test_follow_command import run

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
BUSY = 0.05
"""Seconds between two pieces of the log: less than between two heartbeats."""


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Arrivals:
    """A log as far as the deadline asks: where it ends, and when its last record was stored."""

    followed_timestamp: float = 0.0

    def max_phy_offset(self) -> int:
        return 0


def over(ages: list[float], every: float = 1.0, seconds: float = 10.0) -> list[bool]:
    """Return the answers where records of these ages (seconds) arrive one after the other."""
    clock, log, progress = Clock(), Arrivals(), FollowerProgress()
    deadline = QuietDeadline(log, seconds, clock)  # type: ignore[arg-type]
    answers = []
    for age in ages:
        clock.now += every
        progress.end += 100
        log.followed_timestamp = (clock.now - age) * 1000
        answers.append(deadline.is_over(progress))
    assert deadline.is_past is answers[-1]
    return answers


def test_a_follower_that_comes_nearer_is_not_late() -> None:
    assert not any(over([1e6 - 5 * n for n in range(100)]))
    assert not any(over([1e6 - 0.11 * n for n in range(100)]))


def test_a_follower_that_comes_no_nearer_is_late_after_the_timeout() -> None:
    assert over([0.1] * 11) == [False] * 10 + [True]
    assert over([0.1, 0.9] * 6)[-1]
    assert over([-3600.0] * 11) == [False] * 10 + [True]  # the clock of the master is ahead
    assert over([5.0 + n for n in range(11)])[-1]  # the master is faster
    late = over([100.0, 50.0, *[0.0] * 11])
    assert late == [False] * 12 + [True]


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of a broker that checks half messages back."""
    with MessageStore.open(tmp_path_factory.mktemp("half") / "store", CONFIG) as store:
        for number in range(150):
            topic = "t" if number == 0 else (HALF, OP)[number % 2]
            assert store.put_message(Message(topic, b"x" * 40)).ok
        return log_of(store)


@pytest.mark.slow
def test_the_topics_that_still_come_are_named(half: bytes, tmp_path: Path, conf: Path) -> None:
    more = ("--until-quiet", "--quiet-timeout", 1.5, "--output", "json")
    master = WireMaster(half, heartbeat=0.5, pace=(300, BUSY), file_size=1 << 20)
    with serving(master):
        done = run(master, tmp_path / "own", conf, *more, code=1)
    facts = json.loads(done.stdout)
    assert facts["caughtUp"] is False
    assert 0 < facts["end"] < len(half)
    assert "the master did not become quiet within 1.5 s: it is still sending" in done.stderr
    assert f"{HALF} (" in done.stderr
    assert f"{OP} (" in done.stderr
    assert "checks open half messages again and again" in done.stderr
    assert f"The log is complete up to {facts['end']}. Use --until N" in done.stderr
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert (store.report.needed, log_of(store)) == (False, half[: facts["end"]])


@pytest.mark.slow
def test_connections_that_do_not_last_are_named(led: Led, tmp_path: Path, conf: Path) -> None:
    """Heartbeats that come less often than the settings say."""
    conf.write_text(conf.read_text() + "haHousekeepingInterval=300\nhaSendHeartbeatInterval=200\n")
    more = ("--until-quiet", "--quiet-timeout", 3)
    with serving(WireMaster(led.log, heartbeat=5.0)) as master:
        done = run(master, tmp_path / "own", conf, *more, code=1)
    assert "no connection received two heartbeats" in done.stderr
    assert "Last connection error: nothing received for 0.3 s" in done.stderr


@pytest.mark.slow
def test_a_timeout_below_two_heartbeats_is_named(led: Led, tmp_path: Path, conf: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log)
    conf.write_text(conf.read_text() + "haSendHeartbeatInterval=100\n")  # the loop turns so often
    more = ("--until-quiet", "--quiet-timeout", 0.5)
    with serving(WireMaster(led.log, heartbeat=30.0)) as master:
        done = run(master, tmp_path / "own", conf, *more, code=1)
    assert "--quiet-timeout must be longer than two intervals" in done.stderr
