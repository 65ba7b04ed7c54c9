"""How long a follower waits for its master, in a loop that has a time of its own."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.replication.errors import DivergedError
from cqstore.replication.follow import default_protocol
from cqstore.replication.follow import master_session as session
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing, Until
from cqstore.store.service.message_store import MessageStore
from tests.kit.log_bytes import log_of
from tests.kit.sim_loop import SimLoop
from tests.kit.wire_master import WireMaster, frame
from tests.kit.wire_server import Cut
from tests.replication.conftest import CONFIG, Led

TIMING = Timing(report=5.0, housekeeping=20.0)
LIMIT_SECONDS = 10_000.0
"""Of the loop's own time."""


def follow(
    root: Path,
    made: WireMaster | Callable[[], WireMaster],
    until: Until,
    reported: list[str] | None = None,
) -> FollowerProgress:
    """Follow a master, made in time of the loop's if it is not yet, until ``until`` says so."""
    loop = SimLoop(1)

    async def story() -> FollowerProgress:
        master = made if isinstance(made, WireMaster) else made()
        with MessageStore.open(root, CONFIG, housekeeping=False) as store:
            async with master, asyncio.timeout(LIMIT_SECONDS):
                report = [] if reported is None else reported
                follower = Follower(
                    store, "127.0.0.1", master.port, timing=TIMING, on_event=report.append
                )
                await follower.run(until)
                return follower.progress

    with (
        loop.clock_of(default_protocol, session, sys.modules[__name__]),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(story())


def log_in(root: Path) -> bytes:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        return log_of(store)


def test_a_master_that_says_nothing_is_left_and_found_again(led: Led, tmp_path: Path) -> None:
    class Silent(WireMaster):
        """Says nothing on its first connection."""

        async def _send(self, out: Cut, requested: int) -> None:
            self.instead = b"" if len(self.requests) < 2 else None
            await super()._send(out, requested)

    reported, master = list[str](), Silent(led.log)
    progress = follow(tmp_path / "own", master, lambda progress: progress.caught_up, reported)
    assert "nothing received for 20 s (no frame received" in reported[1]
    assert progress.connections == 2
    assert log_in(tmp_path / "own") == led.log[len(led.log) - len(led.log) % 4096 :]


def test_a_master_that_sends_a_byte_now_and_then_is_given_up(led: Led, tmp_path: Path) -> None:
    """Each byte comes long before the time is over, a whole frame or 64 KiB never do."""
    reported, master = list[str](), WireMaster(led.log, batch=3000, pace=(1, 1.0))
    follow(tmp_path / "own", master, lambda progress: progress.connections == 3, reported)
    assert any("bytes of a frame received in 20 s" in sentence for sentence in reported)
    assert [sentence for sentence in reported if "nothing received" in sentence] == []


def test_a_slow_master_whose_frames_end_in_time_is_kept(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log[: led.starts[20]])
    master = WireMaster(led.log, batch=200, pace=(212, 15.0))  # it takes many times 20 s
    end = len(led.log)
    progress = follow(tmp_path / "own", master, lambda progress: progress.end == end)
    assert progress.connections == 1
    assert log_in(tmp_path / "own") == led.log


class Mute(WireMaster):
    """Sends no bytes for a while, then drops all and is itself again: RocketMQ when stopped.

    It reads nothing from the log from then on, and its connections last for three to nine seconds.
    """

    def __init__(self, log: bytes, seconds: float) -> None:
        super().__init__(log)
        self.until = time.monotonic() + seconds

    async def _send(self, out: Cut, requested: int) -> None:
        stopped = False
        while time.monotonic() < self.until:
            stopped = True
            await out.send(frame(requested or self.end - self.end % self.file_size))
            await asyncio.sleep(0.7)  # of the loop's time
        if stopped:
            raise ConnectionError
        await super()._send(out, requested)


@pytest.mark.parametrize("seconds", [3.0, 9.0])
def test_a_master_that_is_being_stopped_is_not_accused(
    led: Led, tmp_path: Path, seconds: float
) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log[: led.starts[20]])
    end = len(led.log)
    progress = follow(
        tmp_path / "own", lambda: Mute(led.log, seconds), lambda progress: progress.end == end
    )
    assert progress.connections >= 2
    assert log_in(tmp_path / "own") == led.log


def test_a_master_that_has_nothing_is_accused_when_it_cannot_be_that(
    led: Led, tmp_path: Path
) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log)
    with pytest.raises(
        DivergedError, match=f"this log ends at {len(led.log)}, but the master's ends at"
    ):
        follow(tmp_path / "own", lambda: WireMaster(b""), lambda _: False)
