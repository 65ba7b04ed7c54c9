"""What follows from windows that were measured."""

from pathlib import Path

import pytest

from tests.tools.bench_peer.made_report import measured, put_row, report
from tools.bench.peer.measured import Measured, Report, Spread
from tools.bench.peer.queues import Queues
from tools.bench.peer.rows import all_sessions, in_order
from tools.bench.peer.sides import OURS, THEIRS


def test_a_spread_is_the_median_between_the_ends() -> None:
    assert Spread.of([5, 1, 3]) == (3, 1, 5)
    assert Spread.of([4, 1]) == (2.5, 1, 4)


def test_rates_and_processor_time_are_told_an_operation() -> None:
    row = put_row()
    assert row.values(OURS) == pytest.approx([500_000, 1_000_000, 250_000])
    assert row.cpu(THEIRS) == pytest.approx([6, 4.5, 9])


def test_ratios_are_those_of_each_round() -> None:
    # 4/2, 4/1, 2/4 by wall: of the medians it would be 2 as well, of their ends it would not.
    assert put_row().ratio() == pytest.approx((2, 0.5, 4))
    assert put_row().cpu_ratio() == pytest.approx((2, 1.5, 3))


@pytest.mark.parametrize(("kind", "ahead"), [("each", 0.5), ("memory", 5)])
def test_where_less_is_better_a_ratio_above_one_still_is_ahead(kind: str, ahead: float) -> None:
    (row,) = [row for row in measured() if row.kind == kind]
    assert row.ratio() == (ahead, ahead, ahead)


def test_a_size_has_no_processor_time() -> None:
    (row,) = [row for row in measured() if row.kind == "memory"]
    assert (row.cpu(OURS), row.cpu_ratio()) == ([], None)


def test_a_side_that_has_no_window_has_no_ratio() -> None:
    row = measured()[-1]
    assert (row.values(THEIRS), row.ratio(), row.cpu_ratio()) == ([], None, None)


def test_rounds_that_one_side_did_not_come_to_are_left_out() -> None:
    row = put_row()
    row.windows[THEIRS].pop()
    assert row.ratio() == pytest.approx((3, 2, 4))


@pytest.mark.parametrize(
    ("kind", "window", "value"),
    [
        ("stall", {"call_p100_us": 1500.0}, 1.5),
        ("wait", {"due_p99.9_us": 250.0}, 0.25),
        ("disk", {"disk_bytes": 4096, "queues": 32}, 128),
    ],
)
def test_figures_that_are_no_rates(kind: str, window: dict[str, float], value: float) -> None:
    row = Measured(name="x", backend="file", kind=kind, windows={OURS: [{**window}]}, others=[])
    assert row.values(OURS) == [value]
    assert row.cpu(OURS) == []


def test_a_report_is_read_as_it_was_saved(tmp_path: Path) -> None:
    report().save(tmp_path / "figures.json")
    assert Report.load(tmp_path / "figures.json") == report()


@pytest.mark.parametrize("quick", [True, False])
def test_every_row_has_a_name_of_its_own(quick: bool) -> None:  # noqa: FBT001
    names = [
        (name, session.backend) for session in all_sessions(quick=quick) for name in session.figures
    ]
    assert len(set(names)) == len(names) > 50


def test_a_quick_run_has_no_row_that_a_full_one_lacks() -> None:
    quick, full = (
        {(name, each.backend) for each in all_sessions(quick=quick) for name in each.figures}
        for quick in (True, False)
    )
    assert quick < full


@pytest.mark.parametrize("count", [1, 8, 1_000, 10_000])
def test_every_queue_has_its_turn_before_one_has_two(count: int) -> None:
    queues = Queues(count)
    assert {queues.of(number) for number in range(count)} == set(range(count))
    assert len({queues.key(queue) for queue in range(count)}) == count
    assert {queues.key(queue)[0] for queue in range(count)} == set(queues.topics)


def test_a_row_that_is_measured_again_takes_the_place_of_the_one_of_its_name() -> None:
    known = report()
    again, elsewhere = put_row(), put_row()
    again.note, elsewhere.backend = "anew", "rocksdb"
    both = known.with_row(again).with_row(elsewhere)
    assert [(row.name, row.backend, row.note) for row in both.rows] == [
        ("open", "rocksdb", ""),
        ("memory", "rocksdb", ""),
        ("replay", "file", "one message is lost"),
        ("put", "file", "anew"),
        ("put", "rocksdb", ""),
    ]
    assert known == report()


def test_rows_are_in_the_order_of_the_table_whenever_they_were_measured() -> None:
    names = [
        ("put, 128 B, 8 queues, 1 thread", "rocksdb"),
        ("pulls of 32, places", "file"),
        ("the first 48,000 of a process: pulls of 32, decoded", "file"),
        ("pulls of 32, decoded", "file"),
        ("query by key", "file"),
        ("put lists of 32", "rocksdb"),
        ("replay, 1,000 queues", "file"),
        ("replica: RocketMQ's log followed, 1 KB", "rocksdb"),
    ]
    rows = [put_row().model_copy(update={"name": name, "backend": at}) for name, at in names]
    assert in_order(rows[::-1], quick=False) == rows
