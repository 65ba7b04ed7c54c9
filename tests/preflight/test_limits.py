"""The machine's limits against what the queues will take, each from its last that fits on."""

from dataclasses import replace
from pathlib import Path

import pytest

from migration.preflight import Severity, preflight
from migration.preflight.limits import (
    JVM_RESERVE,
    Extent,
    duration,
    file_bytes,
    inodes,
    machine_findings,
    map_count,
    open_files,
    rocksdb_bytes,
)
from migration.preflight.machine import Machine
from migration.preflight.report import Finding
from migration.preflight.survey import QueueSpan, Totals
from store.record.message import Message
from store.service.message_store import MessageStore
from tests.preflight.kit import FakeMachine, codes, the


@pytest.fixture
def extent(tmp_path: Path) -> Extent:
    """Ten topics of ten queues of 250 units, 100 in a file."""
    totals = Totals(units_per_file=100)
    for topic in range(10):
        for queue_id in range(10):
            totals.look(QueueSpan(f"topic{topic}", queue_id, 0, 250))
    return Extent(
        root=tmp_path, to_rocksdb=False, totals=totals, queue_files=300, other_files=7,
        mapped_file_size=2000, log_bytes=1_000_000, rocksdb_memory_bytes=100,
    )  # fmt: skip


def one(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_the_maps_that_fail_are_predicted(extent: Extent) -> None:
    needed = 300 + 7 + JVM_RESERVE
    assert list(map_count(extent, FakeMachine(maps=needed))) == []
    finding = one(list(map_count(extent, FakeMachine(maps=needed - 10))))
    assert finding.severity is Severity.REFUSE
    assert finding.figures["needed"] == needed
    assert finding.figures["queueFilesThatFit"] == 290
    back = replace(extent, to_rocksdb=True)
    assert one(list(map_count(back, FakeMachine(maps=needed - 1)))).severity is Severity.WARN
    assert list(map_count(extent, FakeMachine(maps=None))) == []


def test_open_files_have_a_soft_and_a_hard_limit(extent: Extent) -> None:
    needed = 300 + 7 + JVM_RESERVE
    assert list(open_files(extent, FakeMachine(soft=needed, hard=needed))) == []
    soft = one(list(open_files(extent, FakeMachine(soft=needed - 1, hard=needed))))
    hard = one(list(open_files(extent, FakeMachine(soft=needed - 1, hard=needed - 1))))
    assert (soft.severity, hard.severity) == (Severity.WARN, Severity.REFUSE)
    away = replace(extent, to_rocksdb=True)
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
    extent = replace(extent, to_rocksdb=to_rocksdb)
    once = (rocksdb_bytes if to_rocksdb else file_bytes)(extent.totals)
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
        extent.totals.look(QueueSpan("many", queue_id, 0, 5))
    figures = one([duration(extent, FakeMachine())]).figures
    assert figures["seconds"] == 1.3  # 0.25 for the units, 1.0 for the queues


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
        totals.look(QueueSpan("topic0", number, 0, report.units // 21 + 1))
    assert report.units == 20_000
    assert tables <= rocksdb_bytes(totals) <= 4 * tables


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
            totals.look(QueueSpan(f"topic{topic}", queue_id, 0, 20_000 // 21 + 1))
    assert totals.files == len(files)
    assert blocks <= file_bytes(totals) <= 2 * blocks


def test_the_limits_reach_the_report(golden_folder: Path) -> None:
    root = golden_folder / "wide-default"
    files = sum(path.is_file() for path in (root / "consumequeue").rglob("*"))
    machine = FakeMachine(maps=3_000, hard=100, soft=100, memory=0, free_bytes=0)
    report = preflight(root, machine=machine)
    assert codes(report.refusals) == ["disk", "open-files"]
    assert the(report, "map-count").figures["queueFiles"] == files == 2404
    assert the(report, "memory").severity is Severity.WARN


def test_this_machine_answers(tmp_path: Path) -> None:
    machine = Machine()
    soft, hard = machine.open_files()
    assert soft is None or hard is None or 0 < soft <= hard
    facts = machine.disk(tmp_path)
    assert facts is not None
    assert facts.free_bytes > 0
    assert machine.disk(tmp_path / "missing") is None
    assert (machine.max_map_count() or 1) > 0
    assert (machine.memory_bytes() or 1) > 0
    assert machine.cores() > 0
