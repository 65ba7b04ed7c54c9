"""One list of what forbids a move: asked by preflight, plan, switch, rollback and follow alike."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cqstore.cli.output import OutputFormat
from cqstore.migration.commands.plan import plan as plan_command
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight import Severity, preflight
from cqstore.migration.preflight.limits import MachineLimit
from cqstore.migration.preflight.machine_facts import DiskFacts, MachineLimits
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.preflight.preflight_report import finding
from cqstore.migration.switch.switch import switch
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import NAMES
from tests.kit.migrations import NO_SPARK, closed_copy, moved_and_verified
from tests.kit.tree import tree_digest
from tests.migration.preflight.kit import FakeMachine, Golden, codes, overwrite, rows_of

DUPLICATION = StoreConfig(duplication_enable=True)
ALL = ["foreign-files", "needs-recovery", "only-readable", "tables-not-convertible"]


def spoil(root: Path) -> None:
    """Put four obstacles in the way of every step; the settings are the fifth."""
    (root / "commitlog" / ".nfs01").write_bytes(b"x")
    (root / "abort").touch()
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_bytes(b"no JSON")
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)


@pytest.fixture
def spoilt(golden: Golden) -> Path:
    root = golden("basic-default")
    spoil(root)
    return root


def test_preflight_has_all_of_them(spoilt: Path) -> None:
    report = preflight(spoilt, DUPLICATION, machine=FakeMachine())
    assert codes(report.refusals) == ALL
    assert {each.code: each.where for each in report.refusals} == {
        "foreign-files": str(spoilt / "commitlog"),
        "needs-recovery": str(spoilt / "abort"),
        "only-readable": str(spoilt),
        "tables-not-convertible": str(spoilt / "config"),
    }


@pytest.mark.parametrize("plan", [make_plan, partial(make_log_plan, master=NO_SPARK)])
def test_a_plan_is_refused_for_all_of_them_at_once(
    spoilt: Path, plan: Callable[..., object]
) -> None:
    before = tree_digest(spoilt)
    with pytest.raises(
        RefusedStoreError, match=r"cannot plan the move, for [34] reasons"
    ) as caught:
        plan(spoilt, DUPLICATION)
    text = str(caught.value)
    for words in ("log duplication assigns", ".nfs01", "topics.json"):
        assert words in text
    assert ("not closed cleanly" in text) is (plan is make_plan)  # the log is read to its end
    assert tree_digest(spoilt) == before


def test_a_switch_is_refused_for_all_of_them_at_once(golden: Golden, tmp_path: Path) -> None:
    root = closed_copy(golden("basic-default"), tmp_path / "store")
    moved_and_verified(root, StoreConfig(), "rocksdb")
    (Workspace.of(root).report).unlink()
    spoil(root)
    before = tree_digest(root)
    with pytest.raises(RefusedStoreError, match="cannot switch, for 5 reasons: ") as caught:
        switch(root, DUPLICATION)
    text = str(caught.value)
    for words in (
        "log duplication assigns", ".nfs01", "topics.json", "not closed cleanly", "not verified",
    ):  # fmt: skip
        assert words in text
    assert tree_digest(root) == before


def test_a_step_is_not_refused_for_what_it_does_not_need(spoilt: Path) -> None:
    found = {step: codes(obstacles(spoilt, DUPLICATION, "rocksdb", step)) for step in Step}
    beside = ["foreign-files", "only-readable", "tables-not-convertible"]
    assert found == {
        Step.PREFLIGHT: ALL, Step.PLAN: ALL, Step.PLAN_FROM_LOG: beside, Step.SWITCH: ALL,
        Step.SWITCH_AGAIN: beside, Step.ROLLBACK: beside,
        Step.FOLLOW: ["compacted-topics", "tables-not-convertible"],  # its golden folder has files
    }  # fmt: skip


@pytest.mark.parametrize("to", ["rocksdb", "file"])
@pytest.mark.parametrize("name", NAMES)
def test_each_refusal_says_where_it_comes_from(golden_folder: Path, name: str, to: str) -> None:
    report = preflight(
        golden_folder / name, to=to, machine=FakeMachine(maps=1, hard=1, free_bytes=1, memory=0)
    )
    assert report.refusals != []
    assert [each.code for each in report.refusals if not each.where] == []


def test_one_obstacle_is_the_error_and_several_are_counted(tmp_path: Path) -> None:
    refuse([], "go", tmp_path)
    one = finding("a", Severity.REFUSE, "The one: do this.", ["x", "y"]).at(tmp_path / "f")
    with pytest.raises(RefusedStoreError) as caught:
        refuse([one], "go", tmp_path)
    assert caught.value.reason == "the one: do this (x, y)"
    assert caught.value.path == tmp_path / "f"
    two = finding("b", Severity.REFUSE, "RocketMQ does not: wait.")
    with pytest.raises(RefusedStoreError) as caught:
        refuse([one, two], "go", tmp_path)
    assert caught.value.reason == (
        "cannot go, for 2 reasons: (1) the one: do this (x, y); (2) RocketMQ does not: wait"
    )
    assert caught.value.path == tmp_path


def test_the_command_asks_what_preflight_asks(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A unit outside the log, and a disk without space: both in one error, and no plan."""
    root = golden("basic-default")
    path = max((root / "consumequeue").glob("*/0/0*"))
    _, size, tags = rows_of(path)[0]
    overwrite(path, 0, [(1 << 40, size, tags)])
    monkeypatch.setattr(MachineLimits, "disk", lambda *_: DiskFacts(0, None))
    with pytest.raises(RefusedStoreError, match=r"for 2 reasons: .*outside the .* log.*too little"):
        plan_command(root, kind=OutputFormat.JSON)
    with pytest.raises(RefusedStoreError, match=r"^units point outside the commit log"):
        plan_command(root, accept=[MachineLimit.DISK], kind=OutputFormat.JSON)
    assert not Workspace.of(root).root.exists()
    capsys.readouterr()
