"""The formulas of the sizing page, against the points that the page of performance has."""

import re
from collections.abc import Callable

import pytest

from tests.kit.pages import ROOT
from tests.meta.test_figures import PAGE, published, rows
from tools.sizing import (
    MEASURED_QUEUES,
    MIB,
    PUT_MIB,
    Workload,
    estimate,
    log_bytes,
    open_memory_mib,
    open_seconds,
    put_cpu_us,
    queue_bytes,
    rebuild_seconds,
    record_bytes,
)

SIZING = ROOT / "docs" / "sizing.md"
BACKENDS = {"files": "file", "RocksDB": "rocksdb"}
FACTOR = 1.25
"""By how much a formula may differ from a point, unless a test says otherwise."""
REPLAYED = 2_000_000
"""Messages of a row of replay, see the page."""


def number(text: str) -> float:
    """Return the first number of a cell."""
    found = re.match(r"[\d,.]+", text)
    assert found is not None, text
    return float(found[0].replace(",", ""))


def points(pattern: str) -> list[tuple[str, int, float]]:
    """Return backend, queues and value of each row whose work is ``pattern``, Q being queues."""
    found = []
    for (work, queues_in), row in published().items():
        match = re.fullmatch(pattern.replace("Q", r"([\d,]+)"), work)
        if match is not None:
            found.append((BACKENDS[queues_in], int(number(match[1])), number(row["cqstore"])))
    return found


def load(backend: str, queues: int, units: float = 2) -> Workload:
    """Return a store with as many units in each queue; ten queues a topic, as in the rows."""
    return Workload(
        backend=backend, queues=queues, messages_per_day=queues * units, retention_days=1,
        record_bytes=246, queues_per_topic=10,
    )  # fmt: skip


def differing(
    found: list[tuple[str, int, float]], formula: Callable[[Workload], float], count: int,
    factor: float = FACTOR,
) -> list[tuple[str, int, float, float]]:  # fmt: skip
    """Return the points from which ``formula`` differs by more than ``factor``."""
    assert len(found) == count, found
    both = [(*point, formula(load(point[0], point[1]))) for point in found]
    return [each for each in both if not 1 / factor <= each[3] / each[2] <= factor]


def test_memory_after_an_opening() -> None:
    assert differing(points("memory when opened, Q queues"), open_memory_mib, 7, 1.05) == []


def test_disk_of_queues() -> None:
    def of_a_queue(each: Workload) -> float:
        return queue_bytes(each) / each.queues

    assert differing(points("disk a queue of 2 units, Q queues"), of_a_queue, 7, 1.1) == []


def test_time_of_an_opening() -> None:
    assert differing(points("open, Q queues"), lambda each: open_seconds(each) * 1000, 7) == []


def test_time_of_a_rebuild() -> None:
    def rate(each: Workload) -> float:
        of_it = load(each.backend, each.queues, REPLAYED / each.queues)
        return REPLAYED / rebuild_seconds(of_it)

    assert differing(points("replay, Q queues"), rate, 6) == []


def test_memory_of_puts_in_turn() -> None:
    """Within half as much again: caches grow with the queues in steps."""
    found = [row for head, row in rows(PAGE) if head[0] == "puts in turn over"]
    assert len(found) == 4
    for row in found:
        measured = number(row["memory, MiB"])
        assert 1 / 1.5 <= PUT_MIB.at(number(row["puts in turn over"])) / measured <= 1.5, row


def test_processor_time_of_puts() -> None:
    """One thread, small and large bodies, few and many queues."""
    found = 0
    for (work, queues_in), row in published().items():
        match = re.fullmatch(r"put, (128 B|1 KB), ([\d,]+) queues, 1 thread", work)
        if match is not None:
            body = 128 if match[1] == "128 B" else 1024
            formula = put_cpu_us(BACKENDS[queues_in], int(number(match[2])), body)
            assert 1 / 1.4 <= formula / float(row["CPU µs"]) <= 1.4, (work, queues_in, formula)
            found += 1
    assert found == 8


def test_disk_of_longer_queues_in_rocksdb() -> None:
    """The three points that the page of sizing has itself."""
    found = [row for head, row in rows(SIZING) if head[0] == "units in each queue"]
    assert len(found) == 3
    for row in found:
        each = load("rocksdb", 1000, number(row["units in each queue"]))
        measured = number(row["bytes per unit"])
        assert 1 / 1.8 <= queue_bytes(each) / each.messages / measured <= 1.8, row


def test_a_record_and_a_log() -> None:
    assert record_bytes(128, 17, 10) == 246  # measured with RocketMQ, see the page
    day = load("file", 1000, 1000)
    assert log_bytes(day) == 2 * 246 * 1_000_000 + 2 * 1024 * MIB


def test_what_is_extrapolated_is_told() -> None:
    for backend, most in MEASURED_QUEUES.items():
        assert most == max(each[1] for each in points("open, Q queues") if each[0] == backend)
        assert "extrapolated" not in estimate(load(backend, most), 128)
        assert "extrapolated" in estimate(load(backend, most + 1), 128)


@pytest.mark.parametrize("backend", [*MEASURED_QUEUES])
def test_the_page_shows_what_the_tool_prints(backend: str) -> None:
    page = SIZING.read_text(encoding="utf-8")
    queues, messages = (1_000_000, 1e8) if backend == "rocksdb" else (10_000, 1e8)
    of_page = Workload(
        backend=backend, queues=queues, messages_per_day=messages, retention_days=3,
        record_bytes=record_bytes(1024, 20, 100), index_entries=2,
    )  # fmt: skip
    for name, value in estimate(of_page, 1024).items():
        assert f"{name:36} {value}" in page, name
