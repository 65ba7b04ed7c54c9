"""What the steps of a migration tell meanwhile, what they note, and how they refuse."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from cqstore.migration.markers import Attempts, make_marker, read_marker
from cqstore.migration.plan.log_identity import log_identity
from cqstore.migration.plan.plan import read_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback import deleted_topic_policy
from cqstore.migration.rollback.deleted_topic_policy import refuse_to_guess
from cqstore.migration.rollback.rollback import finish, rollback
from cqstore.migration.run.run import _parallel, run_plan
from cqstore.migration.run.segment import SegmentDone, segments_of, write_segment
from cqstore.migration.status import status
from cqstore.migration.switch.switch import read_switched, switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    StoreConfigError,
    StoreError,
    StoreIOError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.replica_config import BrokerRole
from tests.kit.migrations import NO_SPARK, stored
from tests.migration.made import in_this_process
from tools.bench.sample_store import make_store

if TYPE_CHECKING:
    from cqstore.store.journals.deleted_topics import DeletedTopics
    from cqstore.store.queue.consume_queue_store import ConsumeQueueStore

UNITS, QUEUES = 400, 8


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of 50 units in each of 8 queues; tasks run in this process."""
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    make_store(tmp_path / "store", UNITS, QUEUES)
    return tmp_path / "store"


def moved(root: Path) -> Workspace:
    plan, space = make_plan(root, segment_units=100), Workspace.of(root)
    run = run_plan(root, master=NO_SPARK)
    report = verify_migration(root, master=NO_SPARK)
    assert report.equal
    segments = segments_of(space, plan).finished(len(plan.segments)).values()
    seconds = [run.seconds, report.seconds, *(one.seconds for one in segments)]
    assert all(0 <= one < 600 for one in seconds)
    digests = [plan.digest, plan.identity, plan.tail, plan.segments[0].digest]
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in digests)
    return space


def steps(space: Workspace) -> list[tuple[str, object]]:
    return [(one["step"], one.get("plan")) for one in space.history()]


# ---- a run


@pytest.mark.slow
def left_in(space: Workspace) -> list[str]:
    """Return the names in a workspace, that of a kept comparison without its time."""
    names = (path.name for path in space.root.iterdir())
    return sorted(re.sub(r"-\d{8}T\d{6}Z", "", name) for name in names)


def test_progress_only_rises_and_ends_with_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(root, segment_units=100)
    write_segment(Workspace.of(root), plan, 2)
    reported: list[tuple[int, int]] = []
    monkeypatch.setattr("cqstore.migration.run.segment.CHUNK_UNITS", 60)

    def tasks(
        task: Callable[[str], str], items: Sequence[str], _: str, tick: Callable[[], object]
    ) -> list[str]:
        tick()
        write = Path.write_text

        def reporting(path: Path, *words: Any, **more: Any) -> int:
            count = write(path, *words, **more)
            tick()
            return count

        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_text", reporting)
            done = [task(item) for item in items]
        tick()
        return done

    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", tasks)
    run_plan(root, master=NO_SPARK, progress=lambda *one: reported.append(one))
    assert reported == [
        (at, UNITS) for at in (100, 160, 200, 260, 300, 360, 400, 400, 400)
    ]  # fmt: skip


def test_how_much_is_moved_is_reported_before_spark_starts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:  # another test of this process may have started Spark
        raise StoreError("Spark does not start")

    write_segment(Workspace.of(root), make_plan(root, segment_units=100), 2)
    reported: list[tuple[int, int]] = []
    monkeypatch.setattr("cqstore.migration.tasks.spark_session", start)
    with pytest.raises(StoreError, match="does not start"):
        run_plan(root, master="local[1]", progress=lambda *one: reported.append(one))
    assert reported == [(100, UNITS)]


MANY = [(f"{number:06}.a", "no" if number % 2 else "1") for number in range(10, 50)]


def test_what_tasks_have_told_is_read_whatever_lies_beside_it(tmp_path: Path) -> None:
    segments = Attempts(tmp_path, SegmentDone)
    assert segments.units_done() == {}
    for name, text in [("000001.a", "7"), ("000001.b", "9"), ("000001.c", "8"), ("nothing", "5"),
                       ("000002.a", ""), ("000003.a", "0"), ("000004.a", "x"),
                       ("000005.a", "5" * 30), ("000006.a", "12"), *MANY]:  # fmt: skip
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "progress").write_text(text)
    # Behind what is passed over more is read, in whatever order a file system names them.
    assert segments.units_done() == {1: 9, 3: 0, 6: 12} | dict.fromkeys(range(10, 50, 2), 1)


def test_whatever_is_not_of_the_plan_is_removed(root: Path) -> None:
    plan, space = make_plan(root, segment_units=100), Workspace.of(root)
    segments = segments_of(space, plan)
    segments.tidy(len(plan.segments))
    kept = [write_segment(space, plan, number) for number in (1, 3)]
    names = {path.name for path in space.segments.iterdir()}
    for name in ("000000.done", "000001.done.left", "zzz", "000001.other"):
        (space.segments / name).write_text("?")
    for name in ("000001.dead", "000000.dead", "000003.dead.gone"):
        (space.segments / name).mkdir()
        (space.segments / name / "units").write_text("?")
    segments.tidy(len(plan.segments))
    assert {path.name for path in space.segments.iterdir()} == names
    assert [segments.read_done(number) for number in (1, 3)] == kept
    other = segments_of(space, plan.model_copy(update={"digest": "another"}))
    assert other.read_done(1) is None
    other.tidy(len(plan.segments))
    assert list(space.segments.iterdir()) == []


def test_a_task_that_outlives_its_plan_leaves_nothing(root: Path) -> None:
    plan, space = make_plan(root, segment_units=100), Workspace.of(root)
    old = plan.model_copy(update={"digest": "old"})
    with pytest.raises(
        RefusedStoreError, match="a new plan was made while this task ran"
    ) as caught:
        write_segment(space, old, 0)
    assert caught.value.path == space.plan
    assert list(space.segments.iterdir()) == []


def test_without_timestamps_there_are_none(root: Path) -> None:
    plan = make_plan(root)
    run_plan(root, master=NO_SPARK, timestamps=False)
    made = stored(Workspace.of(root).made, "rocksdb", plan)
    assert {unit[3] for units in made.values() for unit in units.values()} == {-1}


@pytest.mark.parametrize(
    ("master", "tasks"),
    [
        ("local[3]", 3), ("local[3,4]", 3), ("local[*]", os.cpu_count()), ("local", os.cpu_count()),
        ("none", os.cpu_count()), ("local-cluster[2,3,1024]", 6),
        ("spark://h2:7077", os.cpu_count()), ("local[1]", 1),
    ],
)  # fmt: skip
def test_the_rate_is_shared_by_as_many_tasks_as_run_at_once(master: str, tasks: int) -> None:
    assert _parallel(master) == tasks


# ---- the switch and the ways from it


@pytest.mark.slow
def test_every_step_is_told_and_noted(root: Path) -> None:
    space = moved(root)
    plan = read_marker(space.plan)["digest"]
    reported: list[str] = []
    report = switch(root, on_event=reported.append)
    assert reported == [
        "publishing",
        "changing the state to double-write-file",
        "changing the state to rocksdb",
    ]
    assert steps(space)[-2:] == [("published", plan), ("switched", plan)]
    assert space.history()[-1]["state"] == "rocksdb"
    assert (report.before, report.state, report.caught_up_units) == (
        StoreMode("file"), StoreMode("rocksdb"), 0
    )  # fmt: skip
    assert not any(path.exists() for path in (space.made.root, space.segments))
    noted = read_switched(space)
    assert (noted.plan, noted.source, noted.target) == (plan, "file", "rocksdb")
    assert noted.at.endswith("Z")
    assert status(root)["stage"] == "switched"
    reported.clear()
    again = switch(root, on_event=reported.append)
    assert (reported, again.before) == ([], StoreMode("rocksdb"))
    before = {path: path.read_bytes() for path in space.root.iterdir() if path.is_file()}
    seen = rollback(root, dry_run=True, on_event=reported.append)
    assert seen is not None
    assert (reported, seen.returning, seen.state) == (["looking for deleted topics"], [],
                                                  StoreMode("rocksdb"))  # fmt: skip
    assert {path: path.read_bytes() for path in before} == before
    reported.clear()
    back = rollback(root, on_event=reported.append)
    assert back is not None
    assert (reported[0], reported[-1]) == (
        "looking for deleted topics", "moving the rocksdb queues to cqstore/replaced",
    )  # fmt: skip
    assert "changing the state to file" in reported
    assert (back.before, back.state, back.left_behind) == (
        StoreMode("rocksdb"),
        StoreMode("file"),
        {},
    )
    assert steps(space)[-1] == ("rolled back", None)
    assert left_in(space) == ["journal", "lock", "report.html", "report.json"]
    assert Path(str(space.history()[-1]["report"])).suffix == ".html"
    with pytest.raises(RefusedStoreError, match="no migration to roll back"):
        rollback(root)


@pytest.mark.slow
def test_what_was_not_done_is_not_noted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "no more")

    space = moved(root)
    plan = read_plan(space)
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.migration.switch.switch.walk", refuse)
        with pytest.raises(StoreIOError, match="no more"):
            switch(root)
    assert steps(space)[-1] == ("published", plan.digest)
    assert not space.made.root.exists()
    assert not space.segments.exists()
    switch(root)
    assert steps(space)[-1] == ("switched", plan.digest)
    space.segments.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.migration.rollback.rollback.shutil.rmtree", refuse)
        with pytest.raises(StoreIOError, match="empty the workspace"):
            finish(root)
    assert steps(space)[-1] == ("switched", plan.digest)
    assert (read_plan(space), read_switched(space).plan) == (plan, plan.digest)
    finish(root)
    assert steps(space)[-1] == ("finished", None)
    assert left_in(space) == ["journal", "lock", "report.html", "report.json"]


@pytest.mark.slow
def test_a_way_back_before_the_switch_says_what_it_would_do_by_nothing(root: Path) -> None:
    space = moved(root)
    names = {path.name for path in space.root.iterdir()}
    assert rollback(root, dry_run=True) is None
    assert {path.name for path in space.root.iterdir()} == names
    assert rollback(root) is None
    assert steps(space)[-1] == ("dropped", None)
    assert left_in(space) == ["journal", "lock", "report.html", "report.json"]


@pytest.mark.slow
def test_a_workspace_elsewhere_is_used_by_every_step(root: Path, tmp_path: Path) -> None:
    space = Workspace(tmp_path / "elsewhere")
    plan = make_plan(root, workspace=space)
    run_plan(root, workspace=space, master=NO_SPARK)
    assert verify_migration(root, workspace=space, master=NO_SPARK).equal
    assert not Workspace.of(root).root.exists()
    switch(root, workspace=space)
    assert read_switched(Workspace.of(root)).plan == plan.digest
    left = finish(root)
    assert list(left) == ["file"]
    assert steps(Workspace.of(root))[-1] == ("finished", None)
    with pytest.raises(RefusedStoreError, match="no migration to finish"):
        finish(root, workspace=space)


@pytest.mark.slow
def test_a_note_of_the_switch_that_is_damaged_is_named(root: Path) -> None:
    space = moved(root)
    switch(root)
    for text in ("", "{}", '{"at": 1}', "[]", "\0"):
        space.switched.write_text(text)
        for step in (rollback, finish):
            with pytest.raises(
                CorruptionError, match="state file of the switch is corrupted"
            ) as caught:
                step(root)
            assert caught.value.path == space.switched


@pytest.mark.slow
def test_settings_that_promise_replicas_stop_no_step_halfway(root: Path) -> None:
    """Nothing is acknowledged by it, though the store is opened to write."""
    moved(root)
    config = StoreConfig(broker_role=BrokerRole.SYNC_MASTER)
    with pytest.raises(StoreConfigError, match="brokerRole=SYNC_MASTER"):
        MessageStore.open(root, config)
    assert switch(root, config).state == StoreMode("rocksdb")
    back = rollback(root, config)
    assert back is not None
    assert back.state == StoreMode("file")


# ---- topics that come back


@pytest.mark.parametrize("count", [1, 5, 6, 7])
def test_topics_that_would_come_back_are_named_up_to_five(count: int) -> None:
    refuse_to_guess([], "file", Path("root"))
    topics = [f"t{number}" for number in range(count)]
    with pytest.raises(RefusedStoreError) as caught:
        refuse_to_guess(topics, "file", Path("root"))
    more = f" and {count - 5} more" if count > 5 else ""
    said = f"{count} topics have file queues, but no queues in the backend that is served"
    assert said in caught.value.reason
    assert f"served: {', '.join(topics[:5])}{more}. If" in caught.value.reason
    assert caught.value.path == Path("root")


class _Queues:
    """Queues with first and end offset; the unit at *n* leads to phy offset 10 *n*."""

    def __init__(self, spans: dict[str, tuple[int, int]], end: int = 0) -> None:
        self.spans = {QueueKey(topic, 0): span for topic, span in spans.items()}
        self.end = end

    def queues(self) -> Iterator[QueueKey]:
        return iter(self.spans)

    def queue(self, *key: Any) -> "_Queue":
        return _Queue(*self.spans.get(QueueKey(*key), (0, 0)))

    def dispatch_from_phy_offset(self) -> int:
        return self.end


class _Queue(NamedTuple):
    first: int
    end: int

    def ends(self) -> tuple[int, int]:
        return self.first, self.end

    def max_offset(self) -> int:
        return self.end

    def iterate(self, offset: int) -> Iterator[Any]:
        at = range(max(self.first, offset), self.end)
        return (SimpleNamespace(phy_offset=10 * each) for each in at)


def test_queues_come_back_that_were_there_before_what_is_served_ends() -> None:
    left = _Queues({"expired": (5, 5), "served": (0, 9), "last": (0, 10), "behind": (0, 11),
                    "gone": (3, 7), "deleted": (0, 4), "lately": (0, 12)})  # fmt: skip
    served = _Queues({"served": (0, 9)}, end=100)

    def has_record(topic: str, phy_offset: int) -> bool:
        assert phy_offset == {"last": 90, "gone": 60, "deleted": 30}[topic]
        return topic == "deleted"

    deleted = cast("DeletedTopics", SimpleNamespace(has_record=has_record))
    sides = cast("ConsumeQueueStore", left), cast("ConsumeQueueStore", served)
    assert [key.topic for key in deleted_topic_policy._queues(*sides, deleted)] == ["last", "gone"]
    assert deleted_topic_policy._topics(*sides, deleted) == ["gone", "last"]


# ---- markers, and which store this is


def test_of_two_markers_the_first_stands_unless_it_counts_for_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "000001.done"
    one, two, three = (SegmentDone("plan", 1, name) for name in "abc")
    assert make_marker(marker, "a", one, lambda: None) is None
    assert make_marker(marker, "b", two, lambda: one) is one
    assert read_marker(marker)["attempt"] == "a"
    assert make_marker(marker, "c", three, lambda: None) is None
    assert read_marker(marker)["attempt"] == "c"
    assert [path.name for path in tmp_path.iterdir()] == ["000001.done"]


def test_a_store_is_told_by_its_oldest_log_file(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with pytest.raises(RefusedStoreError, match="no commit log") as caught:
        log_identity(folders)
    assert caught.value.path == folders[0]
    newer, oldest = folders[0] / f"{4096:020d}", folders[1] / f"{0:020d}"
    newer.write_bytes(b"n" * 5000)
    (folders[0] / "notes").write_text("no file of the log")
    only = log_identity(folders)
    oldest.write_bytes(b"o" * 5000)
    first = log_identity(folders)
    assert first != only
    newer.write_bytes(b"m" * 5000)
    oldest.write_bytes(b"o" * 4096 + b"p" * 904)
    assert log_identity(folders[::-1]) == first, "what lies behind its first bytes does not count"
    oldest.write_bytes(b"o" * 4095 + b"p")
    assert log_identity(folders) != first
    oldest.write_bytes(b"o" * 5000)
    shutil.move(oldest, folders[1] / f"{1024:020d}")
    assert log_identity(folders) != first, "nor the name alone"


def test_names_of_a_store_are_those_of_its_own_folder(tmp_path: Path) -> None:
    assert Workspace.of(tmp_path).root == StorePaths(tmp_path).own / "migration"
    assert Workspace.of(tmp_path, tmp_path / "x").root == tmp_path / "x"
