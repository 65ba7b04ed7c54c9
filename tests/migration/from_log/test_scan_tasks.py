"""Scan tasks, and a plan from the log: what is said of files that are full, end, or have gone."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.migration.from_log.block_source import BlockUnitSource
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.from_log.scan_plan import ScanDone, ScanPlan, ScanSpace
from cqstore.migration.from_log.scan_task import scan_item, scan_range
from cqstore.migration.plan.log_identity import log_identity
from cqstore.migration.plan.plan import read_plan
from cqstore.migration.workspace import Workspace, write_file
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.queue.units import QueueKey
from tests.migration.made_log import Made, make_log

FILE = 1024
COUNT = 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def offsets(root: Path) -> list[int]:
    """Records of two topics in several files; the last file is not full."""
    return make_log(root, [Made("ab"[at % 2], at % 3, 1000 + at) for at in range(COUNT)], FILE)


def scan(root: Path, ranges: list[list[int]]) -> tuple[ScanSpace, list[ScanDone]]:
    workspace = Workspace.of(root)
    space = ScanSpace(workspace)
    plan = ScanPlan(
        identity="x", settings={"mappedFileSizeCommitLog": FILE}, ranges=ranges,
        log_folders=[str(root / "commitlog")], deleted_topics=str(root / "deleted"),
        deleted_digest="", target="rocksdb", whole_only=False,
    )  # fmt: skip
    write_file(space.plan, plan.model_dump_json())
    items = [scan_item(workspace, task) for task in range(len(ranges))]
    return space, [ScanDone(**json.loads(scan_range(item))) for item in items]


def refuse(*_: object) -> None:
    raise OSError(5, "no more")


def in_files(offsets: list[int], starts: list[int]) -> int:
    return sum(offset // FILE * FILE in starts for offset in offsets)


def test_a_task_ends_with_its_last_file_or_with_its_last_record(
    root: Path, offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.migration.from_log.log_scan.BATCH_UNITS", 5)
    reported: list[str] = []
    write = Path.write_text

    def reporting(path: Path, text: str) -> int:
        reported.append(text)
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", reporting)
    clock = SimpleNamespace(monotonic=count(step=1.5).__next__)
    monkeypatch.setattr("cqstore.migration.markers.time", clock)
    starts = sorted({offset // FILE * FILE for offset in offsets})
    ranges = [starts[:1], starts[1:3], starts[3:]]
    space, found = scan(root, ranges)
    ends = [FILE, 3 * FILE, offsets[-1] + (offsets[1] - offsets[0])]
    assert [one.end for one in found] == ends
    assert [bool(one.fault) for one in found] == [False, False, True]
    counts = [in_files(offsets, each) for each in ranges]
    assert [one.records for one in found] == [one.units for one in found] == counts
    assert [one.seconds for one in found] == [1.5, 1.5, 1.5]
    assert reported, "now and then it is told how many units were found"
    for task, one in enumerate(found):
        assert space.read_done(task) == one
        assert set(one.files) == {"units", "runs.npy", "queues.jsonl"}
        again = json.loads(scan_range(scan_item(Workspace.of(root), task)))
        assert again["attempt"] == one.attempt, "what is done is not done again"


def test_a_file_that_has_gone_or_is_damaged_ends_its_task(root: Path, offsets: list[int]) -> None:
    size = offsets[1] - offsets[0]
    path = root / "commitlog" / f"{FILE:020d}"
    data = bytearray(path.read_bytes())
    bad = next(offset for offset in offsets if offset > FILE)
    data[bad - FILE + 4] ^= 1
    path.write_bytes(data)
    gone = offsets[-1] // FILE * FILE
    (root / "commitlog" / f"{gone:020d}").unlink()
    _, (one, two) = scan(root, [[0, FILE, 2 * FILE], [gone - FILE, gone]])
    assert (one.end, one.units) == (bad, in_files(offsets, [0]) + 1)
    assert "no record starts here" in one.fault
    assert (two.end, two.fault) == (gone, "no commit log file contains this offset")
    assert two.units == in_files(offsets, [gone - FILE])
    assert size > 0


def test_a_task_that_fails_leaves_nothing(root: Path, offsets: list[int]) -> None:
    assert offsets
    (root / "deleted").mkdir()
    with pytest.raises(CorruptionError, match="a folder"):
        scan(root, [[0]])
    space = ScanSpace(Workspace.of(root))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.migration.from_log.scan_task._scan", refuse)
        with pytest.raises(StoreIOError, match="scan the log into blocks") as caught:
            scan(root, [[0]])
    met = caught.value.path
    assert met is not None
    assert met.parent == space.root
    assert met.name.startswith("000000.")
    assert [path.name for path in space.root.iterdir()] == ["scan.json"]


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize("range_bytes", [1, FILE, FILE + 1, 3 * FILE])
def test_a_plan_from_the_log_says_what_is_in_it(
    root: Path, offsets: list[int], range_bytes: int
) -> None:
    reported: list[int] = []
    report = make_log_plan(
        root, target="file", master="none", range_bytes=range_bytes, segment_units=15,
        progress=reported.append,
    )  # fmt: skip
    plan, space = report.plan, Workspace.of(root)
    files = -(-(offsets[-1] + 1) // FILE)
    tasks = -(-files // -(-range_bytes // FILE))
    end = offsets[-1] + offsets[1] - offsets[0]
    assert plan == read_plan(space)
    assert (plan.queues, plan.units, plan.expired, plan.empty) == (6, COUNT, 0, 0)
    assert (plan.min_phy_offset, plan.max_phy_offset, plan.complete_to) == (0, end, end)
    assert (plan.source, plan.target, plan.store) == ("log", "file", str(root))
    assert plan.identity == log_identity([root / "commitlog"])
    assert (report.scanned, report.tasks, report.records) == (tasks, tasks, COUNT)
    assert 0 <= report.seconds < 600
    assert (reported[0], reported == sorted(reported)) == (0, True)
    first, second = space.history()[-2:]
    assert (first["step"], first["tasks"], first["master"]) == ("scan", tasks, "none")
    assert (second["step"], second["digest"]) == ("planned", plan.digest)
    source = BlockUnitSource(space)
    assert {key: source.span(key) for key in source.queues(None, None)} == {
        QueueKey(topic, number): (0, sum(
            ("ab"[at % 2], at % 3) == (topic, number) for at in range(COUNT)
        ))
        for topic in "ab" for number in range(3)
    }  # fmt: skip
    with pytest.raises(RefusedStoreError, match="a plan already exists") as caught:
        make_log_plan(root, target="file", master="none")
    assert caught.value.path == space.plan
