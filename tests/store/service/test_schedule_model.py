"""Delayed puts beside kills, restarts and a clock that goes on: each message comes, once or again.

Again only what was delivered since the offsets were written last, and never before it is due.
"""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from cqstore.store.service.message_store import MessageStore
from tests.kit.crash_images import crash_image
from tests.kit.delays import (
    HOUR_SECONDS,
    Clock,
    delayed,
    deliver,
    numbers,
    opened,
    service,
)
from tests.kit.logs import BACKENDS
from tests.kit.long_too import long_too

DELAYS = (1, 2, 10)
"""Hours, by level."""


class Model:
    """What was put and when it is due, and how often each may have come."""

    def __init__(self, root: Path, backend: str, seed: int, clock: Clock) -> None:
        self.root, self.backend, self.draw = root, backend, random.Random(seed)
        self.clock = clock
        self.lives = 0
        self.due: dict[int, float] = {}
        self.known: set[int] = set()  # delivered
        self.written: set[int] = set()  # delivered, and on disk as such
        self.may_come = Counter[int]()
        self.store = self.open()

    def open(self) -> MessageStore:
        store = opened(self.root / str(self.lives), self.clock, self.backend)
        deliver(store)  # what the thread may be at too
        return store

    def put(self) -> None:
        for _ in range(self.draw.choice([1, 1, 3, 20])):
            level, number = self.draw.randint(1, 3), len(self.due)
            assert self.store.put_message(delayed(number, level, queue_id=level)).ok
            self.due[number] = self.clock.ahead + DELAYS[level - 1] * HOUR_SECONDS
            self.may_come[number] = 1

    def advance(self) -> None:
        self.clock.ahead += self.draw.choice([60, 1800, HOUR_SECONDS, 3 * HOUR_SECONDS])
        deliver(self.store)
        self.look()

    def look(self) -> None:
        """Compare with what is there."""
        received = self.arrived()
        for number, times in received.items():
            assert times <= self.may_come[number], number
            assert self.due[number] <= self.clock.ahead + 60, number
        due = {number for number, at in self.due.items() if at <= self.clock.ahead - 60}
        assert due <= received.keys()
        self.known |= received.keys()

    def arrived(self) -> Counter[int]:
        return Counter(n for queue_id in (1, 2, 3) for n in numbers(self.store, "t", queue_id))

    def persist(self) -> None:
        service(self.store).persist()
        self.written = set(self.known)

    def kill(self) -> None:
        for number in self.known - self.written:
            self.may_come[number] += 1
        old, self.lives = self.root / str(self.lives), self.lives + 1
        crash_image(old, self.root / str(self.lives))
        self.store.close()
        shutil.rmtree(old)
        self.store = self.open()

    def restart(self) -> None:
        self.store.close()
        self.written = set(self.known)
        self.store = self.open()

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self.draw.choice(
                    [self.put, self.put, self.advance, self.advance, self.persist, self.kill,
                     self.restart]
                )()  # fmt: skip
            self.clock.ahead += 11 * HOUR_SECONDS
            deliver(self.store)
            self.look()
            assert self.arrived().keys() == self.due.keys()
        finally:
            self.store.close()


@pytest.mark.parametrize(
    ("seed", "steps"), [(5, 40), *long_too((seed, 250) for seed in range(10, 16))]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_comes_once_or_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, seed: int, steps: int
) -> None:
    Model(tmp_path, backend, seed, Clock(monkeypatch)).run(steps)
