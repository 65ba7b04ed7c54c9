"""The verbs of ``cqstore migrate`` in this process: what they hand on, and what they print."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cqstore.migration.commands import app
from cqstore.migration.plan.plan import read_plan
from cqstore.migration.run.run import RunReport
from cqstore.migration.status import status
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from tests.migration.made import in_this_process
from tools.bench.sample_store import make_store

UNITS, QUEUES = 400, 8


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.from_log.rebuild_plan.run_tasks", in_this_process)
    make_store(tmp_path / "store", UNITS, QUEUES)
    return tmp_path / "store"


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


def record(*words: object) -> dict[str, Any]:
    done = call(*words, "--output", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "log"])
def test_every_verb_works_in_the_workspace_it_is_given(
    root: Path, tmp_path: Path, source: str
) -> None:
    space = Workspace(tmp_path / "elsewhere")
    there = ("--workspace", space.root)
    planned = record("plan", root, "--from", source, "--segment-units", 100, *there)
    plan = read_plan(space)
    assert planned == {
        "from": source, "to": "rocksdb", "queues": QUEUES, "units": UNITS, "expiredQueues": 0,
        "emptyQueues": 0, "segments": 4, "completeTo": plan.complete_to,
        "openedBy": None, "plan": plan.digest, "tables": None, "file": str(space.plan),
        "topics": None, "leftTopics": [], "queuesNotMoved": 0,
        "ranIn": "this process" if source == "file" else "Spark, local[*]",
    }  # fmt: skip
    ran = record("run", root, "--master", "none", *there)
    assert (ran["moved"], ran["units"], ran["plan"]) == (4, UNITS, plan.digest)
    assert ran["unitsPerSecond"] == round(UNITS / ran["seconds"])
    done = call("verify", root, "--master", "none", *there)
    assert (done.exit_code, "equal" in done.stdout) == (0, True)
    dry = call("rollback", root, "--dry-run", *there)
    assert (dry.exit_code, dry.stdout) == (0, "")
    assert "the plan and the new queues would be removed" in dry.stderr
    assert record("status", root, *there) == status(root, space)
    switched = record("switch", root, *there)
    assert (switched["before"], switched["state"]) == ("file", "rocksdb")
    if source == "file":
        back = record("rollback", root, "--dry-run")
        assert (back["before"], back["state"]) == ("rocksdb", "rocksdb"), "it is only said"
        assert back["caughtUpUnits"] is None, "unknown before it is done"
    gone = record("finish", root)
    assert list(gone["movedAway"]) == ["file"]
    assert gone["to"] == str(StorePaths(root).replaced)
    assert not [*(root / "consumequeue").rglob("0" * 20)]


def test_queues_that_are_there_are_no_reason_to_replace_them_from_the_log(root: Path) -> None:
    words = ("plan", root, "--from", "log", "--replace")
    with pytest.raises(
        RefusedStoreError, match="--replace cannot be used with --from log"
    ) as caught:
        call(*words)
    assert caught.value.path == root
    with pytest.raises(RefusedStoreError, match="no such folder") as caught:
        call("status", root / "none")
    assert caught.value.path == root / "none"


@pytest.mark.parametrize(("shifted", "seconds"), [(0, 0.0), (3, 2.0)])
def test_a_run_tells_of_units_at_another_place(
    root: Path, monkeypatch: pytest.MonkeyPatch, shifted: int, seconds: float
) -> None:
    def ran(*_: object, **__: object) -> RunReport:
        return RunReport("digest", 2, 1, 7, 4, 5, shifted, [], seconds)

    monkeypatch.setattr("cqstore.migration.commands.run.run_plan", ran)
    done = call("run", root, "--output", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["units"], found["shifted"]) == (7, shifted)
    assert found.get("unitsPerSecond") == (4 if seconds else None)
    assert ("3 units have another queue offset than their records" in done.stderr) == bool(shifted)
    assert bool(done.stderr) == bool(shifted)


def test_an_interrupt_is_told_with_its_exit_code(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> RunReport:
        raise KeyboardInterrupt

    monkeypatch.setattr("cqstore.migration.commands.run.run_plan", interrupted)
    done = call("run", root)
    assert (done.exit_code, done.stdout) == (130, "")
    kept = "finished segments are kept. Run the command again to continue"
    assert done.stderr == f"cqstore: stopped; {kept}\n"


def test_without_a_verb_all_are_listed() -> None:
    shown = call().output
    verbs = ("preflight", "plan", "run", "verify", "switch", "rollback", "finish", "status")
    assert all(verb in shown for verb in verbs)
