"""Each step of a migration is killed at random changes that it makes; then it goes on, or back."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.run.segment import write_segment
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from tests.kit.cut_short import cut_short
from tests.kit.migrations import NO_SPARK, put_some
from tests.kit.plan_parts import plan_in_parts
from tests.kit.served import served

pytestmark = pytest.mark.crash
Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("special-defaultRocksDB", "file")]
STEPS = ["plan", "run", "switch", "rollback"]


def prepare(root: Path, target: str, step: str) -> None:
    """Bring a store to where ``step`` is next."""
    if step == "plan":
        return
    plan = make_plan(root, target=target, segment_units=400)
    for number in range(len(plan.segments)):
        write_segment(Workspace.of(root), plan, number)  # a run has but to put them together
    if step == "run":
        return
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    put_some(root, "since")
    if step == "rollback":
        switch(root)
        put_some(root, "later")


def goes_on(root: Path, step: str, whole: object) -> None:
    """Do the step that was cut short again, and what follows it."""
    if step == "plan" and not Workspace.of(root).plan.exists():
        plan_in_parts(root)
    assert not Workspace.of(root).planning.exists() or step == "plan"
    if step in {"plan", "run"}:
        run_plan(root, master=NO_SPARK)
        assert verify_migration(root, master=NO_SPARK).equal
    if step == "rollback":
        goes_back(root, whole)
        return
    switch(root)
    assert served(root) == whole


def goes_back(root: Path, whole: object) -> None:
    if Workspace.of(root).plan.exists():  # else the cut was behind its last change
        rollback(root)
    assert served(root) == whole
    assert not Workspace.of(root).plan.exists()


def cut_and_go_on(root: Path, target: str, step: str, seed: int, cuts: int) -> None:
    """Cut the step ``cuts`` times, each time anew from the same state of the store."""
    prepare(root, target, step)
    whole, draw = served(root), random.Random(seed)
    saved = shutil.copytree(root, root.with_name("saved"))

    def anew() -> None:
        shutil.rmtree(root)
        shutil.copytree(saved, root)

    changes = cut_short(root, step)
    assert changes is not None
    assert changes > 5
    assert served(root) == whole
    for number in range(cuts):
        anew()
        assert cut_short(root, step, draw.randint(1, changes)) is None
        assert served(root) == whole
        (goes_on(root, step, whole) if number % 2 == 0 else goes_back(root, whole))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_killed_goes_on_or_back(golden: Golden, step: str) -> None:
    cut_and_go_on(golden("basic-default"), "rocksdb", step, seed=1, cuts=2)


@pytest.mark.long
@pytest.mark.parametrize("group", range(3))
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("name", "target"), MOVES)
def test_a_step_that_is_killed_goes_on_or_back_ever(
    golden: Golden, name: str, target: str, step: str, group: int
) -> None:
    cut_and_go_on(golden(name), target, step, seed=100 + group, cuts=10)
