"""A synchronous master is killed at any instant: its follower has all that was answered."""

import asyncio
import random
import threading
from pathlib import Path

import pytest

from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import FlushDiskType
from tests.kit.fed_child import CONFIG, start
from tests.kit.log_bytes import log_of
from tests.kit.served import served

pytestmark = [pytest.mark.crash, pytest.mark.slow]
FAST = Timing(report=0.05, first_retry=0.001, last_retry=0.01, quiet=0.05)
ROUNDS = 5
OWN = CONFIG.without_replicas()


class Following:
    """Our follower in a thread, until the block ends."""

    def __init__(self, store: MessageStore, port: int) -> None:
        self._follower = Follower(store, "127.0.0.1", port, timing=FAST)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._follower.run())
        self._ready.set()
        await asyncio.gather(self._task, return_exceptions=True)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()


def killed_round(
    root: Path, store: MessageStore, flush: FlushDiskType, first: int, puts: int
) -> dict[int, int]:
    """Kill a master after ``puts`` answers; return all that it gave, phy offset → number."""
    answers: dict[int, int] = {}
    with start(root, flush, first) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with Following(store, port):
                for line in process.stdout:
                    phy_offset, number = map(int, line.split())
                    answers[phy_offset] = number
                    if len(answers) == puts:
                        process.kill()
        finally:
            process.kill()
    return answers


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_what_was_answered_is_at_the_follower(tmp_path: Path, flush: FlushDiskType) -> None:
    draw, answers = random.Random(flush.value), dict[int, int]()
    root, own = tmp_path / "master", tmp_path / "own"
    for number in range(ROUNDS):
        with MessageStore.open(own, OWN, housekeeping=False) as store:
            found = killed_round(root, store, flush, number * 10_000, draw.randint(1, 150))
            answers |= found
            log = components_of(store).log
            assert len(found) > 0
            for phy_offset, put in answers.items():
                assert log.message(phy_offset).body == b"%d" % put
    with MessageStore.open(root, OWN) as master, MessageStore.open(own, OWN) as store:
        ours, theirs = log_of(store), log_of(master)
        assert theirs[: len(ours)] == ours  # no record was written over another's
        assert len(ours) <= len(theirs)
        asyncio.run(_catch_up(master, store))
        assert log_of(store) == theirs
    assert served(own) == served(root)


async def _catch_up(master: MessageStore, store: MessageStore) -> None:
    end = master.max_phy_offset()
    async with Feeder(master) as feeder, asyncio.timeout(60):
        follower = Follower(store, "127.0.0.1", feeder.port, timing=FAST)
        await follower.run(lambda progress: progress.end == end)
