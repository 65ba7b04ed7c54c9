"""A process is killed at random instants: no group misses a message that was stored."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit.log_child import GROUPS, TOPIC, opened, start
from tests.kit.logs import stored_offsets
from tests.kit.long_too import long_too
from tests.kit.waiting import run

NUMBERS = 1_000_000
MAX_LINES = 400


@dataclass
class Model:
    """What was stored, and what each group was given, in which run."""

    stored: list[int] = field(default_factory=list)
    requested: set[int] = field(default_factory=set)
    given: dict[str, list[Counter[int]]] = field(
        default_factory=lambda: {group: [] for group in GROUPS}
    )

    def begin(self) -> None:
        for runs in self.given.values():
            runs.append(Counter())

    def follow(self, line: bytes) -> None:
        if not line.endswith(b"\n"):  # the kill cut it off
            return
        match json.loads(line):
            case ["putting", number]:
                self.requested.add(number)
            case ["put", number]:
                self.requested.discard(number)
                self.stored.append(number)
            case ["got", group, number]:
                self.given[group][-1][number] += 1

    def check(self) -> None:
        for group, runs in self.given.items():
            every = Counter[int]()
            for each in runs:
                assert max(each.values(), default=1) == 1, (group, each)  # once a run
                every.update(each)
            assert {*self.stored} <= every.keys(), (group, {*self.stored} - every.keys())
            assert every.keys() <= {*self.stored, *self.requested}


def follow_a_kill(root: Path, backend: str, seed: int, model: Model) -> None:
    draw = random.Random(seed)
    lines = 1 if draw.randrange(10) == 0 else draw.randrange(2, MAX_LINES)
    child = start(root, backend, seed * NUMBERS)
    assert child.stdout is not None
    model.begin()
    with child:
        for _ in range(lines):
            model.follow(child.stdout.readline())
        child.kill()
        for line in child.stdout:
            model.follow(line)
    assert child.returncode == -signal.SIGKILL


def read_the_rest(root: Path, backend: str, model: Model) -> None:
    """Read what is left with each group, and end well: then nothing comes again."""
    model.begin()

    async def story() -> None:
        with opened(root, backend) as log:
            end = sum(log.store.max_offset(TOPIC, each) for each in range(3))
            for group in GROUPS:
                async with log.tail(TOPIC, group=group) as tail:
                    left = end - sum(log.committed(group, TOPIC).values())
                    for _ in range(left):
                        message = await anext(tail)
                        model.given[group][-1][int(message.body)] += 1

    run(story())
    with opened(root, backend) as log:
        for group in GROUPS:
            assert sum(log.committed(group, TOPIC).values()) == sum(
                log.store.max_offset(TOPIC, each) for each in range(3)
            )


def die_again_and_again(root: Path, backend: str, seeds: range) -> None:
    model = Model()
    for seed in seeds:
        follow_a_kill(root, backend, seed, model)
    read_the_rest(root, backend, model)
    assert len(model.stored) > 10
    model.check()


each_backend = pytest.mark.parametrize(
    "backend", ["file", pytest.param("rocksdb", marks=pytest.mark.long)]
)


@pytest.mark.parametrize(
    "seeds", [range(1, 3), *long_too(range(first, first + 8) for first in range(100, 132, 8))]
)
@each_backend
def test_no_group_misses_a_message(tmp_path: Path, backend: str, seeds: range) -> None:
    die_again_and_again(tmp_path, backend, seeds)


CODE = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.kit.log_child import TOPIC, opened

async def story(log):
    log.create_topic(TOPIC, 1)
    for number in range(10):
        log.put(TOPIC, b"%d" % number)
    async with log.tail(TOPIC, group="one", auto_commit=False) as tail:
        for number in range(8):
            message = await anext(tail)
            message.commit()
            if number == 2:
                log.flush()
    assert log.committed("one", TOPIC) == {0: 8}
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(story(opened(Path(sys.argv[1]), sys.argv[2], 3600.0)))
"""


@each_backend
def test_commits_that_were_not_written_come_again(tmp_path: Path, backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), backend], check=False,
        cwd=Path(__file__).parents[2], stderr=subprocess.PIPE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")
    assert stored_offsets(tmp_path, "t@one") == {0: 3}

    async def story() -> list[bytes]:
        with opened(tmp_path, backend) as log:
            async with log.tail(TOPIC, group="one") as tail:
                return [(await anext(tail)).body for _ in range(7)]

    assert asyncio.run(story()) == [b"%d" % number for number in range(3, 10)]
