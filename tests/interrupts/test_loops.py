"""A signal's handler raises inside a loop that feeds or follows: the loop ends, and both stores.

``KeyboardInterrupt`` and what is like it leaves the loop at once, whatever its tasks are at. Then
nothing waits for ever: neither the loop nor a close; and the next call follows to the end.
"""

import asyncio
import gc
import logging
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest

import cqstore.replication
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.followers import Followers
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit import interrupts
from tests.kit.descriptors import descriptors_of
from tests.kit.interrupts import first_places, run_interrupted
from tests.kit.log_bytes import log_of
from tests.kit.mutations import in_time
from tests.kit.share import SomePlaces

R = TypeVar("R")
SECONDS = 60
SHARE, MOST = 5, 500
CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip
SYNC = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
"""A follower's blocking calls are made in threads then."""
QUICK = FeedSettings(ha_send_heartbeat_interval=10, ha_transfer_batch_size=300)
FAST = Timing(report=0.05, first_retry=0.001, last_retry=0.004, quiet=0.01, stopping=0.1)


class Stopped(KeyboardInterrupt):
    """What the handler raises."""


def stop() -> None:
    raise Stopped


class Pair:
    """A store that is fed, and one that follows it, in one loop of the main thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with MessageStore.open(folder / "first", CONFIG) as store:
            for number in range(40):
                message = Message("t", b"x" * 150, number % 2, {"KEYS": f"k{number}"})
                assert store.put_message(message).ok
            self.log = log_of(store)

    def run(self, number: int, config: StoreConfig) -> int:
        """Interrupt at place ``number``, then follow to the end; return how many places."""
        for name in ("master", "own"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        shutil.copytree(self.folder / "first", self.folder / "master")
        before = {*threading.enumerate()}
        places = 0
        with in_time(SECONDS):
            with suppress(Stopped):
                places = self.follow(config, lambda step: run_interrupted(step, number, stop))
            gc.collect()  # what the interrupt left in frames
            assert {*threading.enumerate()} <= before, number
            assert descriptors_of(self.folder) == [], number
            self.follow(config, lambda step: step())
        with MessageStore.open(self.folder / "own", config, read_only=True) as own:
            assert log_of(own) == self.log, number
            assert [own.max_offset("t", queue) for queue in range(2)] == [20, 20]
            assert not any(finding.damage for finding in own.check()), number
        return places

    def follow(self, config: StoreConfig, run: Callable[[Callable[[], None]], R]) -> R:
        """Follow to the end; close both stores, however that ends."""
        with ExitStack() as closing:
            followers = Followers()
            master = MessageStore.open(self.folder / "master", CONFIG, replicas=followers)
            closing.callback(self.close, master)
            own = MessageStore.open(self.folder / "own", config)
            closing.callback(self.close, own)
            return run(lambda: asyncio.run(self.story(master, own, followers)))

    def close(self, store: MessageStore) -> None:
        with suppress(StoreError):
            store.close()
        store.close()

    async def story(self, master: MessageStore, own: MessageStore, followers: Followers) -> None:
        async with Feeder(master, followers, settings=QUICK) as feeder:
            follower = Follower(own, "127.0.0.1", feeder.port, timing=FAST)
            await follower.run(lambda progress: progress.end >= len(self.log))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    made = Pair(tmp_path)
    # What pytest kept of them would keep frames, and what these hold.
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(interrupts, "_OURS", (f"{cqstore.replication.__path__[0]}/",))
    yield made
    gc.collect()


CONFIGS = pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])


def places_of(pair: Pair, config: StoreConfig) -> list[int]:
    """Return the numbers of the places, of a loop those of its first round."""
    shutil.copytree(pair.folder / "first", pair.folder / "master")
    found = pair.follow(config, first_places)
    assert len(found) > 200
    return found


@CONFIGS
@pytest.mark.slow
def test_a_loop_that_is_interrupted_ends_and_the_next_follows_on(
    pair: Pair, config: StoreConfig, some_places: SomePlaces
) -> None:
    found = places_of(pair, config)
    for at in some_places(len(found), SHARE, MOST):
        pair.run(found[at - 1], config)
