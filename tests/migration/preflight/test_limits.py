"""The machine's limits against what the queues will take, each from its last that fits on."""

import os
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cqstore.migration.preflight import Severity, preflight
from cqstore.migration.preflight.limits import (
    JVM_RESERVE,
    Extent,
    duration,
    inodes,
    machine_findings,
    map_count,
    open_files,
)
from cqstore.migration.preflight.machine_facts import MachineLimits
from cqstore.migration.preflight.preflight_report import PreflightFinding
from cqstore.migration.preflight.queue_survey import Totals, UnitRange
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.golden import load_dump
from tests.migration.preflight.kit import FakeMachine, codes, the

FILES, ROCKSDB = bulk_backend("file"), bulk_backend("rocksdb")


@pytest.fixture
def extent(tmp_path: Path) -> Extent:
    """Ten topics of ten queues of 250 units, 100 in a file."""
    totals = Totals(units_per_file=100)
    for topic in range(10):
        for queue_id in range(10):
            totals.check(UnitRange(f"topic{topic}", queue_id, 0, 250))
    return Extent(
        root=tmp_path, target=FILES, totals=totals, queue_files=300, other_files=7,
        log_bytes=1_000_000, rocksdb_memory_bytes=100,
    )  # fmt: skip


def one(findings: list[PreflightFinding]) -> PreflightFinding:
    (finding,) = findings
    return finding


def test_the_maps_that_fail_are_predicted(extent: Extent) -> None:
    needed = 300 + 7 + JVM_RESERVE
    assert list(map_count(extent, FakeMachine(maps=needed))) == []
    finding = one(list(map_count(extent, FakeMachine(maps=needed - 10))))
    assert finding.severity is Severity.REFUSE
    assert finding.figures["needed"] == needed
    assert finding.figures["queueFilesThatFit"] == 290
    back = replace(extent, target=ROCKSDB)
    assert one(list(map_count(back, FakeMachine(maps=needed - 1)))).severity is Severity.WARN
    assert list(map_count(extent, FakeMachine(maps=None))) == []


def test_open_files_have_a_soft_and_a_hard_limit(extent: Extent) -> None:
    needed = 300 + 7 + JVM_RESERVE
    assert list(open_files(extent, FakeMachine(soft=needed, hard=needed))) == []
    soft = one(list(open_files(extent, FakeMachine(soft=needed - 1, hard=needed))))
    hard = one(list(open_files(extent, FakeMachine(soft=needed - 1, hard=needed - 1))))
    assert (soft.severity, hard.severity) == (Severity.WARN, Severity.REFUSE)
    away = replace(extent, target=ROCKSDB)
    assert list(open_files(away, FakeMachine(soft=7 + 1 + JVM_RESERVE, hard=None))) == []
    assert list(open_files(extent, FakeMachine(soft=None, hard=None))) == []


def test_inodes_are_folders_and_files(extent: Extent) -> None:
    needed = 10 + 100 + 300
    assert list(inodes(extent, FakeMachine(free_inodes=needed))) == []
    finding = one(list(inodes(extent, FakeMachine(free_inodes=needed - 1))))
    assert finding.figures == {"needed": needed, "free": needed - 1}
    assert finding.severity is Severity.REFUSE
    assert list(inodes(extent, FakeMachine(free_inodes=None))) == []


@pytest.mark.parametrize("to_rocksdb", [True, False])
def test_the_disk_must_hold_the_copy_and_should_hold_two(
    extent: Extent, *, to_rocksdb: bool
) -> None:
    extent = replace(extent, target=ROCKSDB if to_rocksdb else FILES)
    once = extent.footprint.disk_bytes
    for free, severity in (
        (2 * once, Severity.INFO),
        (2 * once - 1, Severity.WARN),
        (once, Severity.WARN),
        (once - 1, Severity.REFUSE),
    ):
        found = machine_findings(extent, FakeMachine(free_bytes=free))
        finding = one([each for each in found if each.code == "disk"])
        assert finding.severity is severity
        assert finding.figures["freeBytes"] == free
        assert ("apparentBytes" in finding.figures) is not to_rocksdb


@pytest.mark.parametrize("to_rocksdb", [True, False])
def test_the_figures_are_those_of_the_queues(extent: Extent, *, to_rocksdb: bool) -> None:
    """100 queues of 250 units; a key has a name of six bytes, and a queue has two entries."""
    extent = replace(extent, target=ROCKSDB if to_rocksdb else FILES)
    machine = FakeMachine(maps=0, soft=1, hard=0, free_inodes=0, free_bytes=5, memory=9)
    found = {each.code: each.figures for each in machine_findings(extent, machine)}
    rocksdb, file = 25_000 * 40 + 100 * 2 * (36 + 6), 25_000 * 20 + (300 + 100 + 10) * 4096
    once, files, tables = (rocksdb, 0, 1) if to_rocksdb else (file, 300, 0)
    apparent = {} if to_rocksdb else {"apparentBytes": 300 * 2000}
    assert found == {
        "map-count": {"queueFiles": 300, "otherFiles": 7, "reserve": 1000, "needed": 1307,
                      "limit": 0, "queueFilesThatFit": 0},
        "open-files": {"queueFiles": files, "tables": tables, "otherFiles": 7,
                       "needed": files + tables + 1007, "soft": 1, "hard": 0},
        "inodes": {"needed": 1 if to_rocksdb else 410, "free": 0},
        "disk": {"bytes": once, "withSecondCopy": 2 * once, "freeBytes": 5, **apparent},
        "memory": {"bytes": (1 << 30) + 2 * (512 << 20) + 100, "availableBytes": 9, "cores": 2},
        "duration": {"units": 25_000, "queues": 100, "seconds": 0.1, "unitsPerSecond": 500_000,
                     "cores": 2, "logBytes": 1_000_000 if to_rocksdb else 0},
    }  # fmt: skip


def test_what_a_machine_does_not_tell_is_not_judged(
    extent: Extent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeMachine, "disk", lambda *_: None)
    silent = FakeMachine(maps=None, memory=None)
    assert codes(machine_findings(extent, silent)) == ["duration"]
    large = Totals(units_per_file=100)
    large.units = (256 << 20) // 40 + 1
    away = replace(extent, target=ROCKSDB, totals=large)
    needed = 7 + 2 + JVM_RESERVE
    assert list(open_files(away, FakeMachine(soft=None, hard=needed))) == []
    assert codes(open_files(away, FakeMachine(soft=None, hard=needed - 1))) == ["open-files"]


def test_memory_for_fewer_workers_is_a_warning(extent: Extent) -> None:
    needed = (1 << 30) + 2 * (512 << 20) + 100
    for memory, severity in ((needed, Severity.INFO), (needed - 1, Severity.WARN)):
        found = machine_findings(extent, FakeMachine(memory=memory))
        assert one([each for each in found if each.code == "memory"]).severity is severity


def test_the_guess_of_the_duration_goes_with_the_units_and_the_queues(extent: Extent) -> None:
    found = list(machine_findings(extent, FakeMachine()))
    figures = one([each for each in found if each.code == "duration"]).figures
    assert (figures["units"], figures["queues"], figures["seconds"]) == (25_000, 100, 0.1)
    for queue_id in range(20_000):
        extent.totals.check(UnitRange("many", queue_id, 0, 5))
    figures = one([duration(extent, FakeMachine())]).figures
    assert figures["seconds"] == 1.3  # 0.25 for the units, 1.0 for the queues


@pytest.mark.disk
def test_what_is_predicted_for_rocksdb_is_enough_and_not_absurd(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", backend="rocksdb") as store:
        store.put_messages([
            Message(f"topic{number % 7}", b"x", queue_id=number % 3) for number in range(20_000)
        ])  # fmt: skip
        store.flush()
        tables = sum(file.stat().st_size for file in (tmp_path / "s").rglob("*.sst"))
    report = preflight(tmp_path / "s", to="file", machine=FakeMachine())
    totals = Totals(units_per_file=300_000)
    for number in range(21):
        totals.check(UnitRange("topic0", number, 0, report.units // 21 + 1))
    assert report.units == 20_000
    assert tables <= ROCKSDB.footprint(totals.sums).disk_bytes <= 4 * tables


@pytest.mark.disk
def test_what_is_predicted_for_files_is_what_they_take(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", backend="file") as store:
        store.put_messages([
            Message(f"topic{number % 7}", b"x", queue_id=number % 3) for number in range(20_000)
        ])  # fmt: skip
    folder = tmp_path / "s" / "consumequeue"
    files = [path for path in folder.rglob("*") if path.is_file()]
    blocks = sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))
    totals = Totals(units_per_file=300_000)
    for topic in range(7):
        for queue_id in range(3):
            totals.check(UnitRange(f"topic{topic}", queue_id, 0, 20_000 // 21 + 1))
    assert totals.files == len(files)
    assert blocks <= FILES.footprint(totals.sums).disk_bytes <= 2 * blocks


def test_the_limits_reach_the_report(golden_folder: Path) -> None:
    root = golden_folder / "wide-default"
    files = sum(path.is_file() for path in (root / "consumequeue").rglob("*"))
    machine = FakeMachine(maps=3_000, hard=100, soft=100, memory=0, free_bytes=0)
    report = preflight(root, machine=machine)
    assert codes(report.refusals) == ["disk", "open-files"]
    assert the(report, "map-count").figures["queueFiles"] == files == 2404
    assert the(report, "memory").severity is Severity.WARN


@pytest.mark.parametrize("name", ["basic-default", "basic-defaultRocksDB", "special-combine"])
def test_what_lies_there_reaches_the_figures(golden_folder: Path, name: str) -> None:
    root, log = golden_folder / name, load_dump(name)["commitLog"]
    files = [*(root / "consumequeue").glob("*/*/" + "[0-9]" * 20)]
    others = [path for each in ("commitlog", "index") for path in (root / each).glob("*")]
    to = "file" if name == "basic-defaultRocksDB" else "rocksdb"
    report = preflight(root, to=to, machine=FakeMachine(maps=0))
    maps, time = the(report, "map-count").figures, the(report, "duration").figures
    assert maps["otherFiles"] == len(others)
    assert time["logBytes"] == (log["maxPhy"] - log["minPhy"] if to == "rocksdb" else 0)
    if to == "rocksdb":
        assert maps["queueFiles"] == len(files)


def test_this_machine_answers(tmp_path: Path) -> None:
    machine = MachineLimits()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert machine.open_files() == tuple(
        None if limit == resource.RLIM_INFINITY else limit for limit in limits
    )
    facts = machine.disk(tmp_path)
    assert facts is not None
    assert facts.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)
    inodes_left = os.statvfs(tmp_path).f_favail
    if os.statvfs(tmp_path).f_files:
        assert facts.free_inodes == pytest.approx(inodes_left, rel=0.2)
    assert machine.disk(tmp_path / "missing") is None
    assert (machine.max_map_count() or 1) > 0
    assert (machine.memory_bytes() or 1) > 0
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert machine.cores() == len(allowed)
