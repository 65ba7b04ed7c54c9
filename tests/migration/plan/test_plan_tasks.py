"""A plan whose units are read by tasks: the same bytes, whoever reads them and whoever dies."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cqstore.migration
from cqstore.migration.commands import app
from cqstore.migration.plan import parts
from cqstore.migration.plan.plan import Plan, read_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight.limits import MachineLimit
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, StoreConfigError
from tests.kit import interrupts
from tests.kit.interrupts import Interrupted, first_places, run_interrupted
from tests.kit.migrations import NO_SPARK
from tests.kit.plan_parts import (
    SEGMENT_UNITS,
    expected_lines,
    plan_in_parts,
    planned_lines,
    target_of,
)
from tests.kit.running import descendants, until
from tests.kit.tree import tree_digest
from tools.bench.sample_store import make_store

Golden = Callable[[str], Path]
GOLDEN = ["basic-default", "basic-defaultRocksDB", "special-defaultRocksDB"]
UNITS, QUEUES = 6_000, 40
ACCEPTED = [word for limit in MachineLimit for word in ("--accept", limit)]
_SCRIPT = "import sys; from pathlib import Path; from tests.kit.plan_parts import plan_in_parts; \
plan_in_parts(Path(sys.argv[1]), 1, processes=True)"


def bytes_of(root: Path) -> tuple[bytes, Plan]:
    """Return the queues of the plan, and the plan without its time."""
    space = Workspace.of(root)
    found = read_plan(space).model_copy(update={"created": "", "digest": "", "store": ""})
    return space.slices.read_bytes(), found


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_in_parts_is_that_of_one_process(golden: Golden, name: str) -> None:
    root = golden(name)
    plan = plan_in_parts(root)
    space = Workspace.of(root)
    lines = planned_lines(space.slices)
    assert lines == list(expected_lines(root, plan))
    assert len(lines) > 3
    assert not space.planning.exists()
    several = bytes_of(root)
    shutil.rmtree(space.root)
    make_plan(root, target=target_of(root), segment_units=SEGMENT_UNITS)
    assert bytes_of(root) == several


@pytest.mark.parametrize("limit", ["PART_QUEUES", "PART_UNITS"])
def test_parts_are_as_large_as_they_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    root = tmp_path / "store"
    make_store(root, UNITS, QUEUES)
    most = {"PART_QUEUES": 7, "PART_UNITS": 7 * UNITS // QUEUES}[limit]
    monkeypatch.setattr(parts, limit, most)
    items: list[str] = []
    told: list[int] = []

    def run(
        task: Callable[[str], str], given: list[str], _: str, tick: Callable[[int], object],
        **__: object,
    ) -> list[str]:  # fmt: skip
        items.extend(given)
        tick(3)
        return [task(each) for each in given]

    monkeypatch.setattr(parts, "run_tasks", run)
    make_plan(root, progress=told.append)
    assert len(items) == -(-QUEUES // 7)
    assert told == [UNITS * 3 // len(items), UNITS]
    assert Workspace.of(root).history()[-1]["ranIn"] == f"{os.cpu_count()} processes"


def test_a_master_that_cannot_run_is_refused_first(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 10, 2)
    before = tree_digest(root)
    with pytest.raises(StoreConfigError, match="invalid Spark master"):
        make_plan(root, master="no master at all")
    assert tree_digest(root) == before


def test_an_error_of_a_task_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    make_store(root, UNITS, QUEUES)

    def run(*_: object, **__: object) -> list[str]:
        raise CorruptionError("a task failed")

    monkeypatch.setattr(parts, "PART_QUEUES", 3)
    monkeypatch.setattr(parts, "run_tasks", run)
    with pytest.raises(CorruptionError, match="a task failed"):
        make_plan(root)
    assert not Workspace.of(root).root.exists()


@pytest.mark.slow
@pytest.mark.crash
def test_a_worker_that_dies_is_replaced_and_the_plan_is_the_same(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, UNITS, QUEUES)
    space, killed = Workspace.of(root), set[int]()
    process = subprocess.Popen([sys.executable, "-c", _SCRIPT, str(root)])

    def kill_one() -> bool:
        if list(space.planning.glob("*/*.lines")):
            for pid in descendants(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        return bool(killed)

    with process:
        until(process, kill_one)
        assert process.wait(180) == 0
    assert planned_lines(space.slices) == list(expected_lines(root, read_plan(space)))
    assert not space.planning.exists()


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_plan_that_a_handler_interrupts_is_whole_or_not_there(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    root = golden("basic-default")
    space, mixed = Workspace.of(root), random.Random(most)
    monkeypatch.setattr(
        interrupts, "_OURS", (*interrupts._OURS, f"{cqstore.migration.__path__[0]}/")
    )
    places = first_places(lambda: plan_in_parts(root))
    whole = bytes_of(root)
    for number in mixed.sample(places, most):
        shutil.rmtree(space.root)
        with suppress(Interrupted):
            run_interrupted(lambda: plan_in_parts(root), number)
        if not space.plan.exists():
            plan_in_parts(root)
        assert bytes_of(root) == whole
        assert not space.planning.exists()


@pytest.mark.slow
def test_tasks_in_processes_write_the_same_bytes(golden: Golden) -> None:
    root = golden("special-defaultRocksDB")
    plan_in_parts(root, processes=True)
    found = bytes_of(root)
    assert Workspace.of(root).history()[-1]["master"] == NO_SPARK
    shutil.rmtree(Workspace.of(root).root)
    plan_in_parts(root)
    assert bytes_of(root) == found


def test_the_command_opens_the_store_and_reads_the_tables_once(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, calls = golden("basic-default"), list[str]()
    for module, name in (
        ("cqstore.broker.conversion.conversion", "plan_conversion"),
        ("cqstore.migration.preflight.examine", "open_served"),
        ("cqstore.migration.plan.planner", "open_served"),
    ):
        whole = f"{module}.{name}"
        former = getattr(sys.modules[module], name)

        def count(*given: object, _former: Any = former, _name: str = name, **more: object) -> Any:
            calls.append(_name)
            return _former(*given, **more)

        monkeypatch.setattr(whole, count)
    done = CliRunner().invoke(app, ["plan", str(root), *ACCEPTED])
    assert done.exit_code == 0, done.output
    assert sorted(calls) == ["open_served", "plan_conversion"]
    found = bytes_of(root)
    shutil.rmtree(Workspace.of(root).root)
    make_plan(root)
    assert bytes_of(root) == found
