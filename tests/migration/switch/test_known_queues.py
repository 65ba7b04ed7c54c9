"""The switch of a store that went on since it was compared: only queues that were touched count."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.migration.plan.plan import read_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import SwitchReport, switch
from cqstore.migration.verify import read_report, verify_migration
from cqstore.migration.verify.verify_report import write_report
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.comparison import Comparison
from cqstore.store.comparing.listed_queues import TouchedQueues
from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.comparing.queue_walk import NO_END, Bounds
from cqstore.store.comparing.tally import DifferenceKind
from cqstore.store.comparing.verified_queues import (
    FACTS_BYTES,
    QueueFacts,
    VerifiedQueues,
    store_digests,
)
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.backend_state import read_backend_state
from cqstore.store.journals.store_lock import StoreLock, lock_stamp, mark_open
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import HasEnds, UnitSource, WrittenEnd
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.reconcile import backfill
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, change_mode
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served
from tests.migration.made import in_this_process
from tests.migration.verify.test_as_compared import change_a_unit

pytestmark = pytest.mark.slow
LOG_FILE = 4096
QUEUES = 8
WHOLE = 2
"""Digests of all that the queues depend on: log and journals, and the queues."""


def put(root: Path, topic: str, *queues: int, number: int = 1) -> None:
    config = StoreConfig(mapped_file_size_commit_log=LOG_FILE)
    with MessageStore.open(root, config, backend="file", housekeeping=False) as store:
        for queue_id in queues:
            for _ in range(number):
                assert store.put_message(Message(topic, b"x" * 99, queue_id, {"TAGS": "t"})).ok


def compare(root: Path) -> set[bytes]:
    """Verify; return what the report knows."""
    assert verify_migration(root, master=NO_SPARK).equal
    path = Workspace.of(root).known_queues
    data = path.read_bytes() if path.exists() else b""
    found = {data[at : at + FACTS_BYTES] for at in range(0, len(data), FACTS_BYTES)}
    assert sorted(found) == [data[at : at + FACTS_BYTES] for at in range(0, len(data), FACTS_BYTES)]
    return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Queues that were moved and compared; the log has several files."""
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    root = tmp_path / "store"
    put(root, "t", *range(QUEUES), number=9)
    assert len(move(root)) == QUEUES + WHOLE + len(full_log_files(root))
    return root


def move(root: Path) -> set[bytes]:
    make_plan(root, target="rocksdb")
    run_plan(root, master=NO_SPARK)
    return compare(root)


def full_log_files(root: Path) -> list[Path]:
    end = read_plan(Workspace.of(root)).complete_to
    found = [path for path in (root / "commitlog").iterdir() if int(path.name) + LOG_FILE <= end]
    assert found
    return found


def switched(root: Path, reported: Callable[[str], object] = bool) -> SwitchReport:
    """Switch; what is served stays as it is."""
    before = served(root)
    report = switch(root, on_event=reported)
    assert report.state == "rocksdb"
    assert served(root) == before
    return report


def test_only_queues_that_were_touched_are_compared_again(root: Path) -> None:
    put(root, "t", 1, 6)
    put(root, "new", 0)
    report = switched(root)
    assert (report.known_queues, report.caught_up_units) == (QUEUES - 2, 3)


def restored(path: Path, change: Callable[[], object]) -> None:
    """Change a file, or put another one there, and give it the times back that it had."""
    status = path.stat()
    change()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def queue_file(root: Path, queue_id: int) -> Path:
    (path,) = (root / "consumequeue" / "t" / str(queue_id)).iterdir()
    return path


def test_a_unit_that_was_changed_in_a_store_that_went_on_is_found(root: Path) -> None:
    put(root, "t", 1)
    change_a_unit(root)
    with pytest.raises(
        RefusedStoreError, match=r"1 units of the .* queues are missing or different"
    ):
        switch(root)


def test_a_file_that_was_put_in_the_place_of_the_other_is_read(root: Path) -> None:
    put(root, "t", 1)
    path = queue_file(root, 3)
    other = path.with_name("other")
    shutil.copy2(path, other)
    restored(path, lambda: other.rename(path))
    assert switched(root).known_queues == QUEUES - 2


def test_a_queue_that_was_deleted_since_stays_deleted(root: Path) -> None:
    with MessageStore.open(root, housekeeping=False) as store:
        components_of(store).queues.delete_queue("t", 5)
    report = switched(root)
    assert (report.known_queues, report.deleted_since) == (QUEUES - 1, ["t"])


def test_units_behind_the_plan_are_compared_though_their_file_was_not_touched(root: Path) -> None:
    """The queue had them before it was compared: they were no part of that."""
    put(root, "t", 2)
    logs = len(full_log_files(root))
    assert len(compare(root)) == QUEUES + WHOLE - 1 + logs
    assert switched(root).known_queues == QUEUES - 1


def test_what_lies_behind_an_end_may_become_units_of_a_longer_log(root: Path) -> None:
    """Rows that lead behind the log are none, until it has grown past them."""
    logs = len(full_log_files(root))
    with queue_file(root, 4).open("r+b") as file:
        file.seek(9 * 20)
        file.write(QUEUE_UNIT.struct.pack(1 << 30, 99, 0, 0)[:20])
    assert len(compare(root)) == QUEUES + WHOLE - 1 + logs


@pytest.mark.parametrize("damage", ["changed", "short", "gone"])
def test_what_the_report_does_not_name_is_not_trusted(root: Path, damage: str) -> None:
    path = Workspace.of(root).known_queues
    data = path.read_bytes()
    put(root, "t", 1)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-FACTS_BYTES] if damage == "short" else data[::-1])
    assert switched(root).known_queues == 0


def test_a_report_of_an_older_release_does_not_vouch_for_the_whole_store(root: Path) -> None:
    """Its file had digests of queues and log files only."""
    space, report = Workspace.of(root), read_report(Workspace.of(root).report)
    whole = {*store_digests(StorePaths(root), "file", [root / "commitlog"])}
    assert report.plan is not None
    report.plan.known_queues = VerifiedQueues.write(space.known_queues, compare(root) - whole)
    write_report(space.report, report)
    assert switched(root).known_queues == QUEUES


def test_a_log_file_that_was_touched_lets_all_be_compared(root: Path) -> None:
    put(root, "t", 1)
    os.utime(full_log_files(root)[0])
    assert switched(root).known_queues == 0


def test_a_log_file_that_has_expired_is_no_touch(root: Path) -> None:
    put(root, "t", 1)
    min(full_log_files(root)).unlink()
    assert switch(root).known_queues > 0


def test_a_start_of_rocketmq_in_the_middle_lets_all_be_compared(root: Path) -> None:
    put(root, "t", 1)

    def reported(what: str) -> None:
        if what.startswith("changing the state to"):
            os.utime(root / "lock", ns=(1, 1))

    assert switched(root, reported).known_queues == 0


def test_a_switch_that_was_cut_short_compares_all(root: Path) -> None:
    put(root, "t", 1)

    def reported(what: str) -> None:
        if what.startswith("changing the state to"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        switch(root, on_event=reported)
    assert switched(root).known_queues == 0


def test_of_a_store_that_is_open_nothing_is_known(root: Path) -> None:
    lock = StoreLock(StorePaths(root))
    assert compare(root) == set()
    lock.release()
    put(root, "t", 1)
    assert switched(root).known_queues == 0


def test_of_a_store_that_was_opened_meanwhile_nothing_is_known(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tasks(task: Callable[[str], str], items: list[str], *_: object, **__: object) -> list[str]:
        os.utime(root / "lock", ns=(1, 1))
        return [task(item) for item in items]

    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", tasks)
    assert compare(root) == set()
    report = read_report(Workspace.of(root).report)
    assert report.plan is not None
    assert report.plan.known_queues == ""


def test_a_copy_by_links_says_nothing_of_the_store(root: Path) -> None:
    copy = Path(shutil.copytree(root, root.with_name("copy"), copy_function=os.link))
    shutil.rmtree(Workspace.of(copy).root)
    assert len(move(copy)) >= QUEUES
    reported: list[str] = []
    report = switch(root, workspace=Workspace.of(copy), on_event=reported.append)
    assert (report.known_queues, report.state) == (0, "rocksdb")
    assert reported[1].startswith("changing the state to")


class _WithoutEnds:
    """A source of a third party, without the optional interfaces."""

    def __init__(self, source: UnitSource) -> None:
        self.has_timestamps = source.has_timestamps
        self.queues, self.next_offset, self.fill = source.queues, source.next_offset, source.fill
        self.runs, self.behind, self.close = source.runs, source.behind, source.close
        self.is_open_ended = source.is_open_ended


class _Lacking(_WithoutEnds):
    """A source whose list of ends lacks a queue."""

    def __init__(self, source: UnitSource, lacks: QueueKey) -> None:
        super().__init__(source)
        assert isinstance(source, HasEnds)
        self._ends, self._lacks = source.written_ends, lacks

    def written_ends(
        self, after: QueueKey | None = None, up_to: QueueKey | None = None
    ) -> Iterator[WrittenEnd]:
        return (each for each in self._ends(after, up_to) if each.queue != self._lacks)


@pytest.mark.parametrize(("complete_to", "passed"), [(0, 0), (1 << 60, QUEUES)])
@pytest.mark.parametrize("with_ends", [False, True])
def test_a_queue_to_which_units_came_since_is_compared(
    root: Path, complete_to: int, passed: int, *, with_ends: bool
) -> None:
    space, source = Workspace.of(root), place(root)
    made = QueuePlace("rocksdb", space.made.root, source.log_folders, source.settings)
    sides = source.open(), made.open() if with_ends else _WithoutEnds(made.open())
    known = VerifiedQueues(space.known_queues.read_bytes(), complete_to)
    comparison = Comparison(*sides, LogHeads(source.log_folders), Bounds(0, NO_END))
    touched = TouchedQueues(*sides, QueueFacts(source), known)
    found = comparison.run(touched.between((None, None), iter))
    assert (touched.passed_over, found.tally.queues) == (passed, QUEUES - passed)
    for side in sides:
        side.close()


def test_an_unmodified_queue_that_the_target_lacks_is_a_difference(root: Path) -> None:
    space, source = Workspace.of(root), place(root)
    made = QueuePlace("rocksdb", space.made.root, source.log_folders, source.settings)
    sides = source.open(), _Lacking(made.open(), QueueKey("t", 3))
    known = VerifiedQueues(space.known_queues.read_bytes(), 1 << 60)
    touched = TouchedQueues(*sides, QueueFacts(source), known)
    comparison = Comparison(*sides, LogHeads(source.log_folders), Bounds(0, NO_END))
    found = comparison.run(touched.between((None, None), iter))
    assert touched.passed_over == QUEUES - 1
    assert found.tally.counts == {DifferenceKind.ONLY_SOURCE: 1}
    for side in sides:
        side.close()


# ---- facts


def place(root: Path, **sizes: int) -> QueuePlace:
    config = StoreConfig(mapped_file_size_commit_log=LOG_FILE, **sizes)
    settings = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return QueuePlace("file", root, (root / "commitlog",), settings)


def test_facts_are_those_of_all_files_of_one_queue_and_of_their_sizes(root: Path) -> None:
    facts, queue = QueueFacts(place(root)), QueueKey("t", 3)
    seen = {facts.digest(queue), facts.digest(QueueKey("t", 2))}
    assert facts.digest(queue) in seen
    seen.add(QueueFacts(place(root, mapped_file_size_consume_queue=400)).digest(queue))
    seen.add(QueueFacts(place(root, mapped_file_size_consume_queue_ext=400)).digest(queue))
    ext = root / "consumequeue_ext" / "t" / "3"
    ext.mkdir(parents=True)
    (ext / ("0" * 20)).write_bytes(b"x")
    seen.add(facts.digest(queue))
    (ext / ("0" * 20)).rename(queue_file(root, 3).with_name("1" * 20))
    seen.add(facts.digest(queue))
    assert len(seen) == 6
    assert None not in seen
    queue_file(root, 2).with_name("link").symlink_to(queue_file(root, 1))
    assert facts.digest(QueueKey("t", 2)) is None
    assert QueueFacts(QueuePlace("rocksdb", root, (), {})).digest(queue) is None


def test_known_is_what_was_written_and_nothing_beside(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    digests = [draw.bytes(FACTS_BYTES) for _ in range(100)]
    path = tmp_path / "known"
    named = VerifiedQueues.write(path, digests)
    known = VerifiedQueues(path.read_bytes())
    assert known.digest == named
    assert all(each in known for each in digests)
    assert not any(each[1:] + each[:1] in known for each in digests)
    assert b"\0" * FACTS_BYTES not in known
    assert b"\xff" * FACTS_BYTES not in known
    assert b"\xff" * FACTS_BYTES not in VerifiedQueues(b"")


# ---- what the openings of a switch need not do


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the openings do that takes long."""
    done: list[str] = []
    load, fill = FileConsumeQueueStore.load, backfill

    def loading(store: FileConsumeQueueStore) -> FileConsumeQueueStore:
        done.append("read" if store.context.read_only else "write")
        return load(store)

    def filling(*given: Any) -> None:
        done.append("fill")
        fill(*given)

    monkeypatch.setattr(FileConsumeQueueStore, "load", loading)
    monkeypatch.setattr("cqstore.store.queue.combined.backfill", filling)
    return done


def test_the_queues_are_loaded_once_to_check_and_once_to_catch_up(
    root: Path, openings: list[str]
) -> None:
    put(root, "t", 1)
    openings.clear()
    assert switch(root).known_queues == QUEUES - 1
    assert openings == ["read", "write"]


def test_after_a_start_of_rocketmq_the_queues_are_compared_and_loaded_again(
    root: Path, openings: list[str]
) -> None:
    put(root, "t", 1)
    openings.clear()

    def reported(what: str) -> None:
        if what.startswith("changing the state to"):
            stamp = 1 + (root / "lock").stat().st_mtime_ns
            os.utime(root / "lock", ns=(stamp, stamp))

    assert switch(root, on_event=reported).known_queues == 0
    assert openings == ["read", "write", "fill", "read"]


def test_after_puts_between_the_steps_the_store_is_opened_again(
    root: Path, openings: list[str]
) -> None:
    before = []

    def reported(what: str) -> None:
        if what == "changing the state to rocksdb":
            put(root, "t", 2)
            put(root, "new", 1)
            before.append(served(root))
            openings.clear()

    put(root, "t", 1)
    report = switch(root, on_event=reported)
    assert (report.known_queues, report.state) == (QUEUES - 2, "rocksdb")
    assert openings == ["read"]
    with MessageStore.open(root, read_only=True) as store:
        assert store.report.written_since == {}
        assert report.left_behind == {"file": store.max_phy_offset()}
    assert served(root) == before[0]
    rollback(root)
    assert served(root) == before[0]


@pytest.mark.parametrize("change", ["kill", "mode"])
def test_a_store_that_changed_between_the_steps_is_opened(
    root: Path, change: str, openings: list[str]
) -> None:
    paths = StorePaths(root)

    def reported(what: str) -> None:
        if what == "changing the state to rocksdb":
            if change == "kill":
                mark_open(paths)
            else:
                change_mode(root, StoreMode("double-write-rocksdb"))
            openings.clear()

    put(root, "t", 1)
    if change == "kill":
        with pytest.raises(RefusedStoreError, match="was not closed cleanly"):
            switch(root, on_event=reported)
    else:
        assert switch(root, on_event=reported).state == "rocksdb"
    assert openings == ["read"]


def cut_short(root: Path) -> None:
    """Begin a switch, which publishes the queues and records them as alike."""

    def reported(what: str) -> None:
        if what.startswith("changing the state to"):
            raise KeyboardInterrupt

    put(root, "t", 1)
    with pytest.raises(KeyboardInterrupt):
        switch(root, on_event=reported)


def test_a_store_that_went_on_after_a_switch_was_cut_short_catches_up(root: Path) -> None:
    paths = StorePaths(root)
    cut_short(root)
    state = read_backend_state(paths)
    assert ([*state.lagging], state.alike) == (["rocksdb"], lock_stamp(paths))
    put(root, "t", 2)
    with MessageStore.open(root, housekeeping=False) as store:
        components_of(store).queues.delete_queue("t", 5)
    assert switched(root).deleted_since == ["t"]


@pytest.mark.parametrize("is_cut_short", [False, True])
def test_after_a_refused_comparison_the_next_call_fills_what_is_missing(
    root: Path, openings: list[str], *, is_cut_short: bool
) -> None:
    """The refused call may be one that goes on with a switch that was cut short."""
    cut_short(root) if is_cut_short else put(root, "t", 1)
    change_a_unit(root)
    with pytest.raises(RefusedStoreError, match="are missing or different"):
        switch(root)
    assert read_backend_state(StorePaths(root)).alike == 0
    openings.clear()
    with pytest.raises(RefusedStoreError, match="are missing or different"):
        switch(root)
    assert "fill" in openings
