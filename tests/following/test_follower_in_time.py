"""How long a follower waits for its master, in a loop that has a time of its own."""

import asyncio
from pathlib import Path

from replication.following import default_talk, session
from replication.following.follower import Follower, Standing, Timing, Until
from store.service.message_store import MessageStore
from tests.following.conftest import CONFIG, Led
from tests.kit.log_bytes import log_of
from tests.kit.sim_loop import SimLoop
from tests.kit.wire_master import WireMaster

TIMING = Timing(report=5.0, housekeeping=20.0)
LIMIT_SECONDS = 10_000.0
"""Of the loop's own time."""


def follow(root: Path, master: WireMaster, until: Until, told: list[str] | None = None) -> Standing:
    """Follow ``master`` into ``root`` until ``until`` says so."""
    loop = SimLoop(1)

    async def story() -> Standing:
        with MessageStore.open(root, CONFIG, housekeeping=False) as store:
            async with master, asyncio.timeout(LIMIT_SECONDS):
                tell = [] if told is None else told
                follower = Follower(
                    store, "127.0.0.1", master.port, timing=TIMING, tell=tell.append
                )
                await follower.run(until)
                return follower.standing

    with (
        loop.clock_of(default_talk, session),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(story())


def log_in(root: Path) -> bytes:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        return log_of(store)


def test_a_master_that_says_nothing_is_left_and_found_again(led: Led, tmp_path: Path) -> None:
    class Silent(WireMaster):
        """Says nothing on its first connection."""

        async def _send(self, out: object, asked: int) -> None:
            self.instead = b"" if len(self.requests) < 2 else None
            await super()._send(out, asked)  # type: ignore[arg-type]

    told, master = list[str](), Silent(led.log)
    standing = follow(tmp_path / "own", master, lambda standing: standing.caught_up, told)
    assert "silent for 20 s (no frame came" in told[1]
    assert standing.connections == 2
    assert log_in(tmp_path / "own") == led.log[len(led.log) - len(led.log) % 4096 :]


def test_a_master_that_sends_a_byte_now_and_then_is_given_up(led: Led, tmp_path: Path) -> None:
    """Each byte comes long before the time is over, a whole frame or 64 KiB never do."""
    told, master = list[str](), WireMaster(led.log, batch=3000, pace=(1, 1.0))
    follow(tmp_path / "own", master, lambda standing: standing.connections == 3, told)
    assert any("bytes of a frame for 20 s" in sentence for sentence in told)
    assert [sentence for sentence in told if "silent" in sentence] == []


def test_a_slow_master_whose_frames_end_in_time_is_kept(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log[: led.starts[20]])
    master = WireMaster(led.log, batch=200, pace=(212, 15.0))  # it takes many times 20 s
    end = len(led.log)
    standing = follow(tmp_path / "own", master, lambda standing: standing.end == end)
    assert standing.connections == 1
    assert log_in(tmp_path / "own") == led.log
