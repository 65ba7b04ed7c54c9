"""Runs: what is done again, what is not, and what a task keeps of an odd source."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pyspark.sql import SparkSession

import cqstore.migration.run.segment
from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import RunReport, run_plan
from cqstore.migration.run.segment import SegmentDone, write_segment
from cqstore.migration.status import status
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, StoreLockedError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UNIT_ROWS, bulk_backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.file_queues import UNIT as QUEUE_FILE_UNIT
from tests.kit.migrations import NO_SPARK, closed_copy, move, next_offsets, stored, without_times
from tools.bench.sample_store import make_store, topic_and_queue

UNITS, QUEUES = 4_000, 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 100 units in each of 40 queues."""
    make_store(tmp_path / "store", UNITS, QUEUES)
    return tmp_path / "store"


def attempts(space: Workspace) -> dict[int, str]:
    return {
        int(path.name.split(".")[0]): json.loads(path.read_text())["attempt"]
        for path in space.segments.glob("*.done")
    }


def test_finished_segments_are_not_done_again(root: Path) -> None:
    plan = make_plan(root, segment_units=500)
    space = Workspace.of(root)
    for number in (0, 3, 5):
        write_segment(space, plan, number)
    before = attempts(space)
    report = run_plan(root, master=NO_SPARK)
    after = attempts(space)
    assert (report.segments, report.moved, report.units) == (8, 5, UNITS)
    assert {number: after[number] for number in before} == before
    assert len(stored(space.made, "rocksdb", plan)) == QUEUES


def test_a_second_run_does_nothing(root: Path) -> None:
    space, _, first = move(root, segment_units=500)
    before = attempts(space)
    second = run_plan(root, master=NO_SPARK)
    assert (second.moved, second.units) == (0, first.units)
    assert attempts(space) == before


def test_a_marker_without_its_files_does_not_count(root: Path) -> None:
    plan = make_plan(root, segment_units=500)
    space = Workspace.of(root)
    done = write_segment(space, plan, 2)
    (space.segments / f"000002.{done.attempt}" / "units.sst").write_bytes(b"")
    assert run_plan(root, master=NO_SPARK).moved == 8
    assert attempts(space)[2] != done.attempt
    assert len(stored(space.made, "rocksdb", plan)) == QUEUES


def test_what_stopped_tasks_left_is_removed(root: Path) -> None:
    make_plan(root, segment_units=500)
    space = Workspace.of(root)
    left = space.segments / "000004.999-dead"
    left.mkdir(parents=True)
    (left / "units.sst").write_bytes(b"half")
    seen: list[bool] = []
    run_plan(root, master=NO_SPARK, progress=lambda *_: seen.append(left.exists()))
    assert len(seen) > 1
    assert not any(seen), "it goes first: it takes room on the disk"


def test_of_two_attempts_one_counts(root: Path) -> None:
    plan = make_plan(root, segment_units=UNITS)
    space = Workspace.of(root)
    space.segments.mkdir()
    together = threading.Barrier(2)
    found: list[SegmentDone] = []
    writer = cqstore.migration.run.segment.write_segment

    def attempt() -> None:
        together.wait(30)
        found.append(writer(space, plan, 0))

    threads = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    folders = [path for path in space.segments.iterdir() if path.is_dir()]
    assert folders == [space.segments / f"000000.{found[0].attempt}"]


def test_a_second_driver_is_refused(root: Path) -> None:
    make_plan(root)
    with Workspace.of(root).held(), pytest.raises(StoreLockedError, match="another migration"):
        run_plan(root, master=NO_SPARK)


def test_progress_is_told_and_kept_to_a_rate(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(root)
    slept: list[float] = []
    monkeypatch.setattr(cqstore.migration.run.segment, "CHUNK_UNITS", 1_000)
    clock = SimpleNamespace(sleep=slept.append, monotonic=time.monotonic)  # of this module alone:
    monkeypatch.setattr(cqstore.migration.run.segment, "time", clock)  # threads of Spark sleep too
    write_segment(Workspace.of(root), plan, 0, bytes_per_second=28)
    assert len(slept) == 4
    for number, seconds in enumerate(slept, 1):
        assert 0 < number * 1_000 - seconds < 60  # a second a unit, less what has passed


def test_ctrl_c_keeps_what_is_done(root: Path) -> None:
    make_plan(root, segment_units=500)
    space = Workspace.of(root)

    def interrupt(done: int, units: int) -> None:
        if any(space.segments.glob("*.done")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # at this rate a segment takes about a second
        run_plan(root, master=NO_SPARK, progress=interrupt, bytes_per_second=28_000)
    done = attempts(space)
    assert done
    assert not space.made.root.exists()
    run_plan(root, master=NO_SPARK)
    assert {number: attempts(space)[number] for number in done} == done


def test_what_was_done_is_in_the_journal(root: Path) -> None:
    space, plan, report = move(root, segment_units=500)
    planned, run, made = space.history()
    assert [each["step"] for each in (planned, run, made)] == ["planned", "run", "made"]
    assert {each.pop("plan", None) or each["digest"] for each in (planned, run, made)} == {
        plan.digest
    }
    assert (planned["queues"], planned["units"]) == (QUEUES, UNITS)
    assert (run["segments"], run["master"]) == (8, NO_SPARK)
    assert made["units"] == report.units


def test_status_tells_the_stage(root: Path) -> None:
    assert status(root)["stage"] == "nothing"
    plan = make_plan(root, segment_units=500)
    assert status(root)["stage"] == "planned"
    write_segment(Workspace.of(root), plan, 1)
    assert (status(root)["stage"], status(root)["segmentsMoved"]) == ("running", 1)
    run_plan(root, master=NO_SPARK)
    assert (status(root)["stage"], status(root)["unitsMoved"]) == ("made", UNITS)


@pytest.mark.disk  # a copy of an index of the default size has no holes
def test_on_spark_as_without_it(root: Path, tmp_path: Path, spark: SparkSession) -> None:
    plain = closed_copy(root, tmp_path / "plain")
    space, plan, first = move(plain, segment_units=500)
    other = make_plan(root, segment_units=500)
    second: RunReport = run_plan(root, master="local[2]")
    assert (second.moved, second.units, second.queues) == (8, first.units, first.queues)
    made = Workspace.of(root).made
    assert stored(made, "rocksdb", other) == stored(space.made, "rocksdb", plan)


# ---- chunks that end inside queues, and queues that end inside chunks


def in_chunks_of(monkeypatch: pytest.MonkeyPatch, chunk: int, root: Path) -> Plan:
    """Move all segments in this process, so many units at once."""
    monkeypatch.setattr(cqstore.migration.run.segment, "CHUNK_UNITS", chunk)
    plan = make_plan(root, segment_units=330)
    for number in range(len(plan.segments)):
        write_segment(Workspace.of(root), plan, number)
    return plan


@pytest.mark.parametrize("chunk", [7, 64, 99, 100, 101, 250, 330])
def test_chunks_may_end_anywhere(root: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    plan = in_chunks_of(monkeypatch, chunk, root)
    report = run_plan(root, master=NO_SPARK)
    assert (report.moved, report.units, report.queues) == (0, UNITS, QUEUES)
    assert report.shifted == 0
    made = stored(Workspace.of(root).made, "rocksdb", plan)
    assert without_times(made) == without_times(stored(StorePaths(root), "file", plan))
    with MessageStore.open(root, read_only=True) as store:
        for units in made.values():
            for phy_offset, size, _, timestamp in units.values():
                assert components_of(store).log.store_timestamp(phy_offset, size) == timestamp


@pytest.mark.parametrize("chunk", [30, 100, 1000])
@pytest.mark.parametrize("at", [0, 29, 30, 99])
def test_a_unit_that_leads_to_no_record_is_named_wherever_its_chunk_ends(
    root: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, at: int
) -> None:
    queue = topic_and_queue(5)
    path = root / "consumequeue" / queue.topic / str(queue.queue_id) / f"{0:020d}"
    rows = list(QUEUE_FILE_UNIT.iter_unpack(path.read_bytes()))
    rows[at] = (rows[at][0] + 4, *rows[at][1:])
    path.write_bytes(b"".join(QUEUE_FILE_UNIT.pack(*row) for row in rows))
    unit = f"unit {at} of queue {queue.queue_id} of topic '{queue.topic}'"
    named = f"{unit} does not point to a record of the commit log"
    with pytest.raises(CorruptionError, match=named) as caught:
        in_chunks_of(monkeypatch, chunk, root)
    assert caught.value.phy_offset == rows[at][0]
    space = Workspace.of(root)
    left = [path for path in space.segments.glob("*-*") if ".done" not in path.name]
    assert len(left) == len(attempts(space)), "the folder of the attempt that failed has gone"


@pytest.mark.parametrize("chunk", [30, 100, 1000])
def test_shifted_units_are_counted_and_their_queues_named_in_any_chunks(
    root: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    moved = {topic_and_queue(number): number * 10 for number in (3, 5)}
    for queue, gap in moved.items():
        rows = rows_of(root, queue)
        shutil.rmtree(root / "consumequeue" / queue.topic / str(queue.queue_id))
        write_queue(root, root, queue, 0, [*rows[:gap], *rows[gap + 1 :]])
    in_chunks_of(monkeypatch, chunk, root)
    report = run_plan(root, master=NO_SPARK)
    assert report.shifted == sum(99 - gap for gap in moved.values())
    assert sorted(report.shifted_queues) == sorted(f"{q.topic}/{q.queue_id}" for q in moved)


# ---- sources that are odd


def write_queue(
    root: Path, config_of: Path, queue: QueueKey, begin: int, rows: list[tuple[int, int, int]]
) -> None:
    """Put a file queue into a store by hand."""
    config = make_plan(config_of).config
    shutil.rmtree(Workspace.of(config_of).root)
    table = np.array([(*row, -1) for row in rows], UNIT_ROWS)
    sink = bulk_backend("file").sink(root / "consumequeue", config)
    sink.add(queue, begin, table)
    sink.end(queue, begin + len(rows))
    sink.finish()


def rows_of(root: Path, queue: QueueKey) -> list[tuple[int, int, int]]:
    plan = make_plan(root)
    shutil.rmtree(Workspace.of(root).root)
    units = stored(StorePaths(root), "file", plan)[queue]
    return [row[:3] for row in units.values()]


def test_shifted_units_keep_their_place_and_are_reported(root: Path) -> None:
    queue = topic_and_queue(5)
    rows = rows_of(root, queue)
    shutil.rmtree(root / "consumequeue" / queue.topic / str(queue.queue_id))
    write_queue(root, root, queue, 0, [*rows[:40], *rows[41:]])  # as RocketMQ closes a gap
    space, plan, report = move(root)
    made = without_times(stored(space.made, "rocksdb", plan))[queue]
    assert list(made.values()) == [*rows[:40], *rows[41:]]
    assert list(made) == list(range(99))
    assert (report.shifted, report.shifted_queues) == (59, [f"{queue.topic}/{queue.queue_id}"])


def test_pre_blanks_are_not_moved(root: Path) -> None:
    queue = topic_and_queue(7)
    rows = rows_of(root, queue)
    shutil.rmtree(root / "consumequeue" / queue.topic / str(queue.queue_id))
    write_queue(root, root, queue, 30, rows[30:])
    space, plan, report = move(root)
    assert list(stored(space.made, "rocksdb", plan)[queue]) == list(range(30, 100))
    assert report.shifted == 0


@pytest.mark.parametrize("target", ["rocksdb", "file"])
def test_wholly_expired_queues_keep_their_next_offset(
    golden: Callable[[str], Path], root: Path, target: str
) -> None:
    if target == "file":
        root = golden("special-defaultRocksDB")
        expired = {QueueKey("expired_1", 2): 0}
    else:
        queue = QueueKey("gone", 4)
        sink = bulk_backend("file").sink(root / "consumequeue", make_plan(root).config)
        shutil.rmtree(Workspace.of(root).root)
        sink.end(queue, 777)
        sink.finish()
        expired = {queue: 777}
    space, plan, _ = move(root, target)
    ends = next_offsets(space.made, target, plan)
    made = stored(space.made, target, plan)
    source = next_offsets(StorePaths(root), plan.source, plan)
    assert plan.expired == 1
    gone = [key for key, units in made.items() if not units]
    assert len(gone) == 1
    assert ends[gone[0]] == source[gone[0]] > 0
    if target == "rocksdb":
        assert {gone[0]: ends[gone[0]]} == expired
