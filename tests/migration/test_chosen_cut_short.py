"""Steps of a move of some topics are killed at random changes; then they go on, or back."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.backend_state import read_backend_state
from cqstore.store.paths import StorePaths
from cqstore.store.queue.topic_choice import ONLY_LIGHT
from cqstore.store.service.message_store import MessageStore
from tests.kit.cut_short import cut_short
from tests.kit.migrations import NO_SPARK
from tests.migration.test_chosen_topics import (
    CONFIG,
    Contents,
    contents,
    files_below,
    light,
    put,
    with_batches,
)

pytestmark = pytest.mark.crash


@dataclass(frozen=True)
class Move:
    """A store, and the choice of its topics."""

    make: Callable[[Path], None]
    words: dict[str, Any]


MOVES = {
    "light": Move(light, {"topics": [ONLY_LIGHT]}),
    "left": Move(with_batches, {"leave": ["b"]}),
}


def until(root: Path, move: Move, step: str) -> None:
    """Bring a store to where ``step`` is next, with messages that the plan does not know."""
    move.make(root)
    make_plan(root, CONFIG, segment_units=40, **move.words)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    with MessageStore.open(root, CONFIG) as store:
        put(store, 60, 6)
    if step == "rollback":
        switch(root, CONFIG)
        with MessageStore.open(root, CONFIG) as store:
            put(store, 66, 6)


def moved(found: Contents) -> Contents:
    """Leave out the topic that is read only where the queues are files."""
    return {key: units for key, units in found.items() if key.topic != "b"}


def is_read_as(root: Path, whole: Contents, *, may_lag: bool) -> None:
    """See that readers find everything, or if ``may_lag`` are refused; never do they find less."""
    if may_lag and "file" in read_backend_state(StorePaths(root)).lagging:
        with pytest.raises(RefusedStoreError, match="they lag or hold only some topics"):
            contents(root)
    else:
        assert moved(contents(root)) == moved(whole)


def cut_and_go_on(root: Path, move: Move, step: str, seed: int, cuts: int) -> None:
    until(root, move, step)
    left, draw = files_below(root / "batchconsumequeue"), random.Random(seed)
    whole = contents(root)
    saved = shutil.copytree(root, root.with_name("saved"))
    changes = cut_short(root, step)
    assert changes is not None
    assert changes > 5
    assert moved(contents(root)) == moved(whole)
    for number in range(cuts):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert cut_short(root, step, draw.randint(1, changes)) is None
        is_read_as(root, whole, may_lag=step == "rollback" and move.make is light)
        assert files_below(root / "batchconsumequeue") == left
        if step == "switch" and number % 2 == 0:
            switch(root, CONFIG)
        elif Workspace.of(root).plan.exists():  # else the cut was behind its last change
            rollback(root, CONFIG)
        assert moved(contents(root)) == moved(whole)
        assert files_below(root / "batchconsumequeue") == left


@pytest.mark.slow
@pytest.mark.parametrize("step", ["switch", "rollback"])
@pytest.mark.parametrize("move", MOVES)
def test_a_step_that_is_killed_goes_on_or_back(tmp_path: Path, move: str, step: str) -> None:
    cut_and_go_on(tmp_path / "store", MOVES[move], step, seed=1, cuts=2)


@pytest.mark.long
@pytest.mark.parametrize("group", range(3))
@pytest.mark.parametrize("step", ["switch", "rollback"])
@pytest.mark.parametrize("move", MOVES)
def test_a_step_that_is_killed_goes_on_or_back_ever(
    tmp_path: Path, move: str, step: str, group: int
) -> None:
    cut_and_go_on(tmp_path / "store", MOVES[move], step, seed=100 + group, cuts=10)
