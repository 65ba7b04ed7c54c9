"""What a comparison tells beside its findings, what it leaves where it fails, and its command."""

import itertools
import json
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cqstore.migration.commands import app
from cqstore.migration.commands.verify import both_backends
from cqstore.migration.verify import read_report, verified, verify_queues
from cqstore.migration.verify import verification as verification_module
from cqstore.migration.verify.verify_report import PlanFacts, Side, VerifyReport
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.tally import (
    MAX_QUEUES,
    ComparedQueue,
    ComparisonNotes,
    ComparisonSums,
    ComparisonTally,
    DifferenceKind,
)
from cqstore.store.errors import RefusedStoreError, StoreIOError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from tests.kit.golden import load_dump
from tests.kit.tree import tree_digest
from tests.migration.made import Made, in_this_process, migrate
from tests.migration.made_log import Made as MadeRecord
from tests.migration.made_log import make_log

Golden = Callable[[str], Path]
QUEUE = QueueKey("p", 1)


@pytest.fixture
def made(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> Made:
    return migrate(golden("basic-default"), "rocksdb", monkeypatch)


@pytest.fixture
def combined(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    return golden("basic-combine")


def call(*words: object) -> Result:
    done = CliRunner().invoke(app, ["verify", *map(str, words), "--master", "none"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_the_log_is_closed_before_the_tasks_run(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are opened when they are read, so no descriptor tells that it is not."""
    logs: set[CommitLog] = set()

    class Noted(CommitLog):
        def load(self) -> None:
            logs.add(self)
            super().load()

        def close(self, *, keep_ahead: bool = False) -> None:
            super().close(keep_ahead=keep_ahead)
            logs.remove(self)

    def run(task: Callable[[str], str], items: list[str], *more: Any, **alone: Any) -> list[str]:
        assert not logs
        return in_this_process(task, items, *more, **alone)

    monkeypatch.setattr(verification_module, "CommitLog", Noted)
    monkeypatch.setattr(verification_module, "run_tasks", run)
    assert made.verify().equal


# ---- the sum of the tasks' counts


def filled(factor: int, first: DifferenceKind, second: DifferenceKind) -> ComparisonTally:
    numbers = itertools.count(1)

    def sums(checksum: int) -> ComparisonSums:
        return ComparisonSums(units=factor * next(numbers), bytes=factor * next(numbers),
                    checksum=f"{checksum:016x}")  # fmt: skip

    notes = ComparisonNotes(
        **{name: factor * next(numbers) for name in ComparisonNotes.model_fields}
    )
    queue = ComparedQueue(topic=f"t{factor}", queue_id=0, counts={}, fields={},
                          source=ComparisonSums(), target=ComparisonSums(), findings=[],
                          more_findings=0)  # fmt: skip
    return ComparisonTally(
        **{name: factor * next(numbers) for name in (
            "queues", "differing", "topics_only_source", "topics_only_target",
            "units_only_source", "units_only_target")},
        counts={first: factor, second: factor}, fields={f"f{factor}": factor, "both": factor},
        source=sums(factor << 60), target=sums(factor), notes=notes,
        listed=[queue] * (MAX_QUEUES // 2 - 1 + factor),
    )  # fmt: skip


def test_counts_of_tasks_are_added_and_checksums_combined() -> None:
    one = filled(1, DifferenceKind.UNREADABLE, DifferenceKind.HOLE)
    two = filled(2, DifferenceKind.HOLE, DifferenceKind.EXTRA)
    whole = ComparisonTally()
    assert whole.model_dump(exclude={"counts", "fields", "listed", "source", "target"}) == {
        "queues": 0, "differing": 0, "topics_only_source": 0, "topics_only_target": 0,
        "units_only_source": 0, "units_only_target": 0,
        "notes": dict.fromkeys(ComparisonNotes.model_fields, 0),
    }  # fmt: skip
    assert whole.source == whole.target == ComparisonSums(units=0, bytes=0, checksum="0" * 16)
    whole.add(one)
    assert whole == one
    whole.add(two)
    three = filled(3, DifferenceKind.HOLE, DifferenceKind.EXTRA)
    same = ("queues", "differing", "topics_only_source", "topics_only_target",
            "units_only_source", "units_only_target", "source", "target", "notes")  # fmt: skip
    assert [getattr(whole, name) for name in same] == [getattr(three, name) for name in same]
    assert [*whole.counts.items()] == [
        (DifferenceKind.UNREADABLE, 1),
        (DifferenceKind.HOLE, 3),
        (DifferenceKind.EXTRA, 2),
    ]
    assert [*whole.fields.items()] == [("f1", 1), ("both", 3), ("f2", 2)]
    halves = [each.topic for each in whole.listed]
    assert halves == ["t1"] * (MAX_QUEUES // 2) + ["t2"] * (MAX_QUEUES // 2)


# ---- what it tells


def test_a_comparison_tells_what_was_compared_with_what(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[int, int]] = []
    clock = SimpleNamespace(
        monotonic=itertools.count(step=1.5).__next__, strftime=lambda *_: "then", gmtime=lambda: 0
    )
    monkeypatch.setattr(verification_module, "time", clock)
    report = made.verify(progress=lambda *one: reported.append(one), range_queues=3)
    ranges = report.tasks
    assert ranges > 1
    assert reported == [(0, ranges), (ranges, ranges)]
    log = load_dump("basic-default")["commitLog"]
    plan, made_of = made.plan, made.space.history()[-1]["made"]
    known = made.space.known_queues.read_bytes()
    assert report.ran_in.keys() == {"plan", "run", "verify"}
    assert report.model_dump(exclude={"result", "tasks", "ran_in"}) == VerifyReport(
        verdict="equal", store=str(made.root), deep=False, started="then", seconds=1.5, tasks=0,
        source_side=Side(backend="file", folder=str(made.root)),
        target_side=Side(backend="rocksdb", folder=str(made.space.made.root)),
        plan=PlanFacts(digest=plan.digest, created=plan.created, complete_to=plan.complete_to,
                       made=str(made_of),
                       known_queues=blake2b(known, digest_size=16).hexdigest()),
        min_phy_offset=log["minPhy"], max_phy_offset=plan.max_phy_offset, result=ComparisonTally(),
    ).model_dump(exclude={"result", "tasks", "ran_in"})  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", plan.created)
    assert read_report(made.space.report) == report


@pytest.mark.parametrize("failing", ["source", "target", "comparison"])
def test_both_sides_are_closed_whatever_fails(
    made: Made, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    opened: list[str] = []
    closed: list[str] = []
    once = {"source": "file", "target": "rocksdb"}.get(failing)
    original = QueuePlace.open

    def opening(place: QueuePlace) -> Any:
        if counting and place.backend == once:
            raise StoreIOError("broken", path=place.root)
        source = original(place)
        opened.append(place.backend)
        close = source.close

        def closing() -> None:
            closed.append(place.backend)
            close()

        monkeypatch.setattr(source, "close", closing, raising=False)
        return source

    counting = False

    def comparing(*_: object, **__: object) -> None:
        raise StoreIOError("broken", path=made.root)

    def tasks(task: Callable[[str], str], items: list[str], *_: object, **__: object) -> list[str]:
        nonlocal counting
        assert opened == closed[::-1], "those who cut the ranges have closed them"
        counting = True
        return [task(item) for item in items]

    monkeypatch.setattr(QueuePlace, "open", opening)
    monkeypatch.setattr(verification_module, "run_tasks", tasks)
    if failing == "comparison":
        monkeypatch.setattr("cqstore.store.comparing.range_tasks.Comparison", comparing)
    with pytest.raises(StoreIOError, match="broken"):
        made.verify()
    assert sorted(opened) == sorted(closed)
    assert len(opened) == {"source": 2, "target": 3, "comparison": 4}[failing]


# ---- where it fails


def test_a_report_that_cannot_be_removed_or_shown_is_none(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.space.report.mkdir()
    with pytest.raises(StoreIOError, match="remove the last report") as caught:
        made.verify()
    assert caught.value.path == made.space.report
    made.space.report.rmdir()

    def failing(path: Path, *_: object) -> None:
        raise StoreIOError("no room", path=path)

    for step in ("write_page", "write_report"):
        with monkeypatch.context() as patched:
            patched.setattr(verification_module, step, failing)
            with pytest.raises(StoreIOError, match="no room"):
                made.verify()
        assert not made.space.report.exists()
        assert made.space.history()[-1]["step"] != "verified"
        assert "no report" in str(verified(made.space, made.plan))
    assert made.verify().equal
    assert verified(made.space, made.plan) is None


# ---- two backends of one store


def test_two_backends_are_compared_with_a_folder_or_without(combined: Path) -> None:
    before = tree_digest(combined)
    sides = both_backends(combined, None)
    report = verify_queues(*sides)
    assert tree_digest(combined) == before, "without a workspace nothing is written"
    assert (report.verdict, report.deep, report.plan) == ("equal", False, None)
    assert (report.source_side.backend, report.target_side.backend) == ("file", "rocksdb")
    space = Workspace.of(combined)
    again = verify_queues(*sides, workspace=space, deep=True)
    assert read_report(space.report) == again
    assert again.deep
    assert space.report_page.exists()
    (noted,) = space.history()
    assert (noted["step"], noted["plan"], noted["verdict"]) == ("verified", None, "equal")


def test_the_command_compares_two_backends_of_a_store_at_rest(combined: Path) -> None:
    own = Workspace.of(combined).root.parent
    own.mkdir(exist_ok=True)
    before = tree_digest(combined, but=own)
    found = json.loads(call(combined, "--output", "json").stdout)
    assert (found["source_side"]["backend"], found["target_side"]["backend"]) == ("file", "rocksdb")
    assert (found["deep"], found["plan"]) == (False, None)
    assert json.loads(call(combined, "--deep", "--output", "json").stdout)["deep"] is True
    assert tree_digest(combined, but=own) == before
    with (
        MessageStore.open(combined),
        pytest.raises(RefusedStoreError, match="the store is in use") as caught,
    ):
        both_backends(combined, None)
    assert caught.value.path == combined


def test_the_command_asks_for_a_store(tmp_path: Path) -> None:
    done = call()
    assert done.exit_code == 2
    assert "required unless --schema is given" in done.output
    make_log(tmp_path, [MadeRecord("t", 0, 1)], 1024)
    with pytest.raises(RefusedStoreError, match="the store has no queues") as caught:
        both_backends(tmp_path, None)
    assert caught.value.path == tmp_path


def test_kinds_come_first_then_findings_then_the_verdict(made: Made) -> None:
    made.delete_units(QUEUE, range(7, 9))
    done = call(made.root)
    assert done.exit_code == 1
    places = [done.stdout.index(word) for word in ("meaning", "queueId", "verdict")]
    assert places == sorted(places)
    assert done.stderr == f"cqstore: different; report: {made.space.report_page}\n"
    words = done.stdout.split()
    for word in ("hole", "p", "1", "7", "8", "different", "2,000", "1,998", "differing", "file,"):
        assert word in words, word
    report = read_report(made.space.report)
    assert report.result.source.checksum in done.stdout
    assert report.result.target.checksum in done.stdout
