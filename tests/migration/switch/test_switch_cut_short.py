"""Switch and rollback as a whole: a call of the system's fails, or a signal's handler raises.

Whatever was cut short, the store opens and serves what it served, and the step done again finishes.
Kills are in ``test_cut_short`` and ``test_as_compared``, the tables alone in
``test_tables_cut_short``.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import cqstore.migration
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit import interrupts
from tests.kit.interrupts import Interrupted, first_places, run_interrupted
from tests.kit.migrations import NO_SPARK, put_some
from tests.kit.mutations import in_time
from tests.kit.nth_call import FAULTS, LASTING, Case, NthCall
from tests.kit.served import served

SECONDS = 120
OURS = (*interrupts._OURS, f"{cqstore.migration.__path__[0]}/", shutil.__file__)
IGNORED = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # a file that the interrupt left unclosed
)
Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("special-defaultRocksDB", "file")]
STEPS: dict[str, Callable[[Path], object]] = {"switch": switch, "rollback": rollback}


class Move:
    """A store of RocketMQ's in ``root`` that is ready for a step, as often as a test wants it."""

    def __init__(self, root: Path, target: str, step: str) -> None:
        self.root, self.step = root, step
        self.mixed = random.Random(f"{root.name}{step}")
        make_plan(root, target=target, segment_units=400)
        run_plan(root, master=NO_SPARK)
        assert verify_migration(root, master=NO_SPARK).equal
        put_some(root, "since")
        if step == "rollback":
            switch(root)
            put_some(root, "later")
        self.whole, self.before = served(root), self.tables()
        self.saved = shutil.copytree(root, root.with_name("saved"))
        self.do()
        self.after = self.tables()

    def tables(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.root / "config").glob("*.json")}

    def anew(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.saved, self.root)

    def do(self) -> None:
        if self.step == "switch" or Workspace.of(self.root).plan.exists():
            STEPS[self.step](self.root)

    def finish(self, where: object) -> None:
        """Check the files after the cut; do the step again, and check that."""
        assert served(self.root) == self.whole, where
        for name, data in self.tables().items():
            assert data in (self.before.get(name), self.after.get(name)), (where, name)
        if self.mixed.random() < 0.5:  # a broker is started in between
            with MessageStore.open(self.root, housekeeping=False) as store:
                assert not any(finding.damage for finding in store.check()), where
        self.do()
        assert served(self.root) == self.whole, where
        assert self.tables() == self.after, where
        with MessageStore.open(self.root, read_only=True) as store:
            assert len(components_of(store).queues.backends()) == 1, where
        assert Workspace.of(self.root).plan.exists() == (self.step == "switch")


def draw_cases(move: Move, calls: NthCall, share: int) -> Iterator[Case]:
    """Yield ``share`` faults of each kind of call that the step makes."""
    for call, codes in FAULTS.items():
        count = calls.counts[call]
        for number in move.mixed.sample(range(1, count + 1), min(share, count)):
            code = move.mixed.choice(codes)
            yield Case(call, number, code, lasts=code in LASTING and move.mixed.random() < 0.5)


def fail_calls(move: Move, calls: NthCall, share: int, most: int) -> None:
    move.anew()
    calls.count()
    move.do()
    calls.heal()
    cases = [*draw_cases(move, calls, share)]
    struck = 0
    for case in move.mixed.sample(cases, min(most, len(cases))):
        with in_time(SECONDS):
            move.anew()
            calls.arm(case)
            with suppress(StoreError):
                move.do()
            calls.heal()
            struck += bool(calls.struck)
            move.finish(case)
    assert struck


def interrupt_some(move: Move, most: int) -> None:
    move.anew()
    places = first_places(move.do)
    assert len(places) > 500
    for number in move.mixed.sample(places, most):
        with in_time(SECONDS):
            move.anew()
            with suppress(Interrupted, StoreError):
                run_interrupted(move.do, number)
            move.finish(number)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_cut_short_by_a_fault_or_a_handler_goes_on(
    golden: Golden, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Move(golden("basic-default"), "rocksdb", step)
    with NthCall(move.root) as calls:
        fail_calls(move, calls, 1, 1)
    monkeypatch.setattr(interrupts, "_OURS", OURS)
    interrupt_some(move, 1)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("name", "target"), MOVES)
def test_a_step_of_which_any_call_fails_goes_on(
    golden: Golden, name: str, target: str, step: str
) -> None:
    move = Move(golden(name), target, step)
    with NthCall(move.root) as calls:
        fail_calls(move, calls, 5, 60)


@IGNORED
@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("name", "target"), MOVES)
def test_a_step_that_is_interrupted_anywhere_goes_on(
    golden: Golden, name: str, target: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_OURS", OURS)
    interrupt_some(Move(golden(name), target, step), 40)
