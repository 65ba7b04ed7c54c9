"""Tails beside puts, joins, leaves and restarts: each message once a group, in order."""

import asyncio
import random
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from cqstore import EmbeddedLog
from tests.kit.logs import BACKENDS, opened
from tests.kit.long_too import long_too
from tests.kit.waiting import run

GROUPS = ("one", "two")
PATIENCE = 0.005
"""Seconds that a consumer waits for its next message before it leaves."""


class Model:
    """What was put, and what each group was given."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.put = 0
        self.given: dict[str, list[int]] = defaultdict(list)
        self.places: dict[str, dict[int, list[int]]] = {
            group: defaultdict(list) for group in GROUPS
        }

    def fill(self, log: EmbeddedLog, count: int, lists: random.Random) -> None:
        for _ in range(count):
            number = self.put
            log.put("t", b"%d" % number, key=None if lists.random() < 0.5 else f"k{number % 5}")
            self.put += 1

    async def consume(self, log: EmbeddedLog, group: str, most: int, *, auto: bool) -> None:
        """Be a consumer for a while: at most so many messages, or until nothing comes."""
        async with log.tail("t", group=group, auto_commit=auto) as tail:
            for _ in range(most):
                try:
                    async with asyncio.timeout(PATIENCE):
                        message = await anext(tail)
                except TimeoutError:
                    return
                self.given[group].append(int(message.body))
                self.places[group][message.queue_id].append(message.queue_offset)
                if not auto:
                    message.commit()
                if self.draw.random() < 0.1:
                    await asyncio.sleep(0)

    async def session(self, log: EmbeddedLog, messages: int, consumers: int) -> None:
        """Consumers come and go while a thread puts."""
        writer = threading.Thread(
            target=self.fill, args=(log, messages, random.Random(self.draw.random()))
        )
        writer.start()
        running: set[asyncio.Task[None]] = set()
        for _ in range(consumers):
            group, most = self.draw.choice(GROUPS), self.draw.choice([1, 5, 40, 200])
            auto = self.draw.random() < 0.5
            running.add(asyncio.create_task(self.consume(log, group, most, auto=auto)))
            if len(running) > 4:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*running)
        await asyncio.to_thread(writer.join)

    async def finish(self, log: EmbeddedLog) -> None:
        for group in GROUPS:
            while sum(log.committed(group, "t").values()) < self.put:
                await self.consume(log, group, self.put, auto=True)

    def check(self) -> None:
        for group in GROUPS:
            counted = Counter(self.given[group])
            assert sorted(counted) == list(range(self.put)), group
            assert max(counted.values()) == 1, (group, counted.most_common(3))
            for queue_id, offsets in self.places[group].items():
                assert offsets == list(range(len(offsets))), (group, queue_id)


def live(root: Path, backend: str, seed: int, sessions: int, messages: int) -> None:
    model = Model(seed)
    for _ in range(sessions):

        async def story() -> None:
            with opened(root, backend) as log:
                await model.session(log, messages, 8)

        run(story())

    async def last() -> None:
        with opened(root, backend) as log:
            await model.finish(log)

    run(last())
    model.check()


@pytest.mark.parametrize(
    "seed_and_size", [[1, 3, 150], *long_too([seed, 8, 3000] for seed in range(10, 16))]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_message_once(tmp_path: Path, backend: str, seed_and_size: list[int]) -> None:
    live(tmp_path, backend, *seed_and_size)
