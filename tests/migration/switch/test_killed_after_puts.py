"""Switch and rollback are killed at each change on disk, of a store that got messages since verify.

Only such a store is switched step by step with unmodified queues that are not compared again, and
with backends that are recorded as alike. After each kill readers find every message, a broker may
start, and the same call finishes the switch, or a rollback undoes it. ``test_cut_short`` kills
moves of RocketMQ's stores, whose copies have no unmodified queues.
"""

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.status import status
from cqstore.migration.switch.switch import SwitchReport, switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.cut_short import both_after, cut_short
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served
from tests.migration.made import in_this_process

pytestmark = pytest.mark.crash
Served = dict[QueueKey, list[tuple[int, int, int]]]
CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400, max_hash_slot_num=100,
    max_index_num=1000,
)  # fmt: skip
QUEUES = 6
SOURCES = {"rocksdb": "file", "file": "rocksdb"}
STEPS = ["switch", "switch to both", "rollback"]
MIN_CHANGES = 40
"""Changes that each step makes at least."""
GROUPS = 4
"""Parts of the long tests."""


def put(root: Path, topic: str, queues: Iterable[int], number: int = 1, source: str = "") -> None:
    with MessageStore.open(root, CONFIG, backend=source or None, housekeeping=False) as store:
        for queue_id in queues:
            for _ in range(number):
                assert store.put_message(Message(topic, b"x" * 99, queue_id, {"TAGS": "t"})).ok


@dataclass
class Move:
    """A small store in ``root`` that is ready for ``step``, as often as a test wants it."""

    root: Path
    target: str
    step: str

    def __post_init__(self) -> None:
        self.source = SOURCES[self.target]
        put(self.root, "t", range(QUEUES), 9, self.source)
        make_plan(self.root, CONFIG, target=self.target, segment_units=40)
        run_plan(self.root, master=NO_SPARK)
        self.saved = shutil.copytree(self.root, self.root.with_name("saved"))
        self.anew()
        self.whole = served(self.root)
        if self.step != "rollback":
            done = self.switch()
            assert done.caught_up_units == 4
            assert done.known_queues == (QUEUES - 2 if self.target == "rocksdb" else 0)

    def anew(self) -> None:
        """Compare the very files that are switched, then put to a few queues."""
        shutil.rmtree(self.root)
        shutil.copytree(self.saved, self.root)
        assert verify_migration(self.root, master=NO_SPARK).equal
        put(self.root, "t", (1, 3))
        put(self.root, "new", (0, 1))
        if self.step == "rollback":
            switch(self.root)
            put(self.root, "t", (2, 4))
            put(self.root, "later", (0,))

    def switch(self) -> SwitchReport:
        to = both_after(self.root) if self.step == "switch to both" else None
        return switch(self.root, to=to)

    def changes(self, *, at_call: bool) -> int:
        """Return how many changes the step makes."""
        self.anew()
        changes = cut_short(self.root, self.step, at_call=at_call)
        assert changes is not None
        assert served(self.root) == self.whole
        return changes

    def kill(self, at: int, draw: random.Random, *, at_call: bool) -> None:
        """Kill the step at a change; it must go on, and from a copy of the same files go back."""
        self.anew()
        done = cut_short(self.root, self.step, at, at_call=at_call)
        assert done is None or at_call, at  # RocksDB's threads make a few calls more or less
        assert served(self.root) == self.whole, at
        expected = self._start_a_broker(draw)
        aside = shutil.copytree(self.root, self.root.with_name("aside"))
        if self.step != "rollback":
            self._goes_on(expected, at)
            shutil.rmtree(self.root)
            shutil.copytree(aside, self.root)
        shutil.rmtree(aside)
        self._goes_back(expected, at)

    def _start_a_broker(self, draw: random.Random) -> Served:
        """Let RocketMQ start in between, or this store, which gets a message; or nothing."""
        match draw.randrange(3):
            case 1:
                os.utime(self.root / "lock", ns=(1, 1))
            case 2:
                put(self.root, "between", (0,))
        found = served(self.root)
        assert {key: rows for key, rows in found.items() if key.topic != "between"} == self.whole
        return found

    def _goes_on(self, expected: Served, at: int) -> None:
        """Finish the switch; go back after another message: the old queues lag by that one."""
        state = both_after(self.root) if self.step == "switch to both" else self.target
        assert self.switch().state == state, at
        self._check(expected, at)
        put(self.root, "after", (0,))
        self._goes_back(served(self.root), at)

    def _goes_back(self, expected: Served, at: int) -> None:
        if Workspace.of(self.root).plan.exists():  # else the kill was after its last change
            rollback(self.root)
        assert status(self.root)["stage"] == "nothing", at
        assert not Workspace.of(self.root).switched.exists(), at
        self._check(expected, at)
        with MessageStore.open(self.root, read_only=True) as store:
            assert [each.name for each in components_of(store).queues.backends()] == [self.source]

    def _check(self, expected: Served, at: int) -> None:
        """All messages are served, before and after a start that writes; nothing is damaged."""
        assert served(self.root) == expected, at
        with MessageStore.open(self.root, housekeeping=False) as store:
            assert not any(finding.damage for finding in store.check()), at
            if len(components_of(store).queues.backends()) > 1:
                assert store.verify().is_clean, at
        assert served(self.root) == expected, at


def kill_some(move: Move, numbers: Iterable[int], *, at_call: bool = False) -> None:
    for at in numbers:
        move.kill(at, random.Random(at), at_call=at_call)


@pytest.fixture
def move(tmp_path: Path, target: str, step: str, monkeypatch: pytest.MonkeyPatch) -> Move:
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    return Move(tmp_path / "store", target, step)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocksdb"])
@pytest.mark.parametrize("step", ["switch", "rollback"])
def test_a_step_that_is_killed_loses_no_message(move: Move) -> None:
    kill_some(move, random.Random(2).sample(range(1, MIN_CHANGES), 2))


@pytest.mark.long
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("target", SOURCES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_killed_at_any_change_loses_no_message(move: Move, group: int) -> None:
    changes = move.changes(at_call=False)
    assert changes > MIN_CHANGES
    kill_some(move, range(1 + group, changes + 1, GROUPS))


@pytest.mark.long
@pytest.mark.parametrize("target", SOURCES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_killed_at_calls_of_any_library_loses_no_message(move: Move) -> None:
    changes, draw = move.changes(at_call=True), random.Random(3)
    assert changes > MIN_CHANGES
    kill_some(move, draw.sample(range(1, changes + 1), 30), at_call=True)
