"""Any file of the workspace is damaged between two steps: what follows refuses, or does it again.

Never anything but a ``StoreError``, and never other queues served than before.
"""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.status import status
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError, StoreError
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served

Golden = Callable[[str], Path]
STAGES = ["planned", "running", "made", "verified", "switched"]
MOVES = [("basic-default", "rocksdb"), ("special-defaultRocksDB", "file")]


def bring_to(root: Path, target: str, stage: str) -> None:
    make_plan(root, target=target, segment_units=400)
    if stage == "planned":
        return
    run_plan(root, master=NO_SPARK)
    if stage == "running":  # as after a kill just before the end
        made = Workspace.of(root).made.root
        if target == "rocksdb":
            shutil.rmtree(made)
        else:
            made.rename(Workspace.of(root).unfinished.root)
        return
    if stage != "made":
        assert verify_migration(root, master=NO_SPARK).equal
    if stage == "switched":
        switch(root)


def damage(draw: random.Random, space: Workspace) -> str:
    """Damage one file; return what was done."""
    files = sorted(path for path in space.root.rglob("*") if path.is_file() and path.stat().st_size)
    kinds = sorted({path.suffix or path.name for path in files})
    kind = draw.choice(kinds)  # else most would be tables
    path = draw.choice([each for each in files if (each.suffix or each.name) == kind])
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data))
    how = draw.choice(["deleted", "cut", "flipped", "emptied"])
    path.unlink()  # the tables are linked into the attempts' folders: one name, as by a copy
    if how == "cut":
        path.write_bytes(data[:at])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "flipped":
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
    return f"{path.relative_to(space.root)} {how} at {at}"


def tried(call: Callable[[], object]) -> None:
    """Call; it may refuse with an error of ours, and with nothing else."""
    with suppress(StoreError):
        call()


def go_on(root: Path, stage: str, whole: object) -> None:
    """Do what a user may do next, each step whatever became of the one before."""
    tried(lambda: status(root))
    if stage in {"planned", "running", "made"}:
        tried(lambda: run_plan(root, master=NO_SPARK))
        tried(lambda: verify_migration(root, master=NO_SPARK))
    tried(lambda: switch(root))
    assert served(root) == whole
    tried(lambda: status(root))
    tried(lambda: rollback(root))
    assert served(root) == whole


def damage_and_go_on(root: Path, target: str, stage: str, seed: int, cases: int) -> None:
    whole = served(root)
    bring_to(root, target, stage)
    saved = shutil.copytree(root, root.with_name("saved"))
    draw = random.Random(seed)
    for _ in range(cases):
        done = damage(draw, Workspace.of(root))
        try:
            go_on(root, stage, whole)
        except Exception as exc:
            exc.add_note(f"{stage}: {done}")
            raise
        shutil.rmtree(root)
        shutil.copytree(saved, root)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_damage_of_the_workspace_is_never_served(golden: Golden, stage: str) -> None:
    damage_and_go_on(golden("basic-default"), "rocksdb", stage, seed=1, cases=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("name", "target"), MOVES)
def test_damage_of_the_workspace_is_never_served_ever(
    golden: Golden, name: str, target: str, stage: str, seed: int
) -> None:
    damage_and_go_on(golden(name), target, stage, 100 + seed, cases=20)


def prepared(root: Path, target: str) -> Workspace:
    bring_to(root, target, "verified")
    return Workspace.of(root)


@pytest.mark.parametrize(("name", "target"), MOVES)
def test_a_byte_that_changed_after_the_comparison_is_refused(
    golden: Golden, name: str, target: str
) -> None:
    root = golden(name)
    space = prepared(root, target)
    whole = served(root)
    files = [path for path in space.made.consume_queue.rglob("*") if path.is_file()]
    names = "*.sst" if target == "rocksdb" else "0*"
    file = max((path for path in files if path.match(names)), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[21] ^= 1
    file.write_bytes(data)
    with pytest.raises(RefusedStoreError, match="the new queues were changed after the comparison"):
        switch(root)
    assert served(root) == whole


def test_a_plan_that_is_damaged_can_be_dropped(golden: Golden) -> None:
    root = golden("basic-default")
    space = prepared(root, "rocksdb")
    space.plan.write_text("{")
    assert rollback(root) is None
    prepared(root, "rocksdb")
    switch(root)


def test_without_its_note_a_switch_is_not_forgotten(golden: Golden) -> None:
    root = golden("basic-default")
    space = prepared(root, "rocksdb")
    whole = served(root)
    switch(root)
    space.switched.unlink()
    with pytest.raises(RefusedStoreError, match="the state file of the switch is missing"):
        rollback(root)
    assert space.plan.exists()
    assert served(root) == whole
