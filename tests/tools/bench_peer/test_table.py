"""How a report is shown."""

from pathlib import Path

import pytest

from tests.tools.bench_peer.made_report import measured, openings, put, report
from tools.bench.peer.plot import draw, draw_queues, over_queues
from tools.bench.peer.sessions import Rounds
from tools.bench.peer.sides import OURS, THEIRS
from tools.bench.peer.table import row_notes, table, words, wrapped
from tools.bench.peer.warming import Warming

TABLE = """\
| work | queues in | cqstore | RocketMQ | ahead, wall | CPU µs | RocketMQ's | ahead, CPU |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| put | files | 500,000/s (250,000 to 1,000,000) | 250,000/s (250,000 to 500,000) \
| 2.00 (0.50 to 4.00) | 3 | 6 | 2.00 (1.50 to 3.00) |
| open | RocksDB | 250 ms (250 to 250) | 125 ms (125 to 125) \
| **0.50 (0.50 to 0.50)** | 100,000 | 50,000 | **0.50 (0.50 to 0.50)** |
| memory | RocksDB | 64 MiB (64 to 64) | 320 MiB (320 to 320) | 5.00 (5.00 to 5.00) |  |  |  |
| replay | files | 2,000/s (2,000 to 2,000) | cannot |  | 500 |  |  |
"""


def test_the_table_has_medians_ends_and_what_is_behind_stands_out() -> None:
    assert table(report()) == TABLE


def test_the_words_say_on_what_how_beside_whom_and_what_is_to_be_noted() -> None:
    machine, cannot = words(report()).split("\n\n")
    assert machine.startswith("processor: P, 2 cores. Three rounds. Other processes used 0.2 ")
    assert machine.endswith("(median of the rounds; at most 1.5).")
    assert cannot == "“cannot”: RocketMQ has too few descriptors.\n"
    assert row_notes(report()) == "- replay: one message is lost.\n"


@pytest.mark.parametrize(("seconds", "marks"), [(0.0025, 0), (0.0026, 2)])
def test_what_is_shown_as_one_is_not_shown_as_behind(seconds: float, marks: int) -> None:
    row = measured()[0]
    made = report().model_copy(update={"rows": [row]})
    row.windows = {
        "cqstore": [{"count": 1000, "seconds": seconds, "cpu_seconds": 0.1}],
        "RocketMQ": [{"count": 1000, "seconds": 0.00249, "cpu_seconds": 0.1}],
    }
    assert table(made).count("**") == marks


def test_a_note_of_several_rows_is_told_once() -> None:
    made = report()
    made.rows[0].note = made.rows[1].note = made.rows[3].note
    assert row_notes(made) == "- put; open; replay: one message is lost.\n"


def test_a_side_that_was_not_steady_is_marked_and_how_far_is_told_once() -> None:
    made = report()
    rows = Rounds(warmed={THEIRS: Warming([put(spread, 1.0) for spread in (1.0, 1.0, 1.25)])})
    made.rows[0].note = "; ".join(["lists are batches", *rows.not_warm()])
    rows.warmed[OURS] = rows.warmed.pop(THEIRS)
    made.rows[1].note = "; ".join(rows.not_warm())
    made.rows[3].note = ""
    assert "(250,000 to 500,000) † |" in table(made)
    assert "250 ms (250 to 250) † | 125 ms (125 to 125) |" in table(made)
    assert table(made).count("†") == 2
    _, steady, _ = (" ".join(each.split()) for each in words(made).split("\n\n"))
    assert steady.startswith("†: this side was not steady when its warm-up ended;")
    assert steady.endswith("its slowest last window took up to 1.25 times as long as its fastest.")
    assert row_notes(made) == "- put: lists are batches.\n"


def test_rows_of_first_windows_are_noted_together() -> None:
    rows = measured()
    for row, count in zip(rows[:2], ("600,000", "300"), strict=True):
        row.name = f"the first {count} of a process: {row.name}"
        row.note = "one window"
    reported = row_notes(report().model_copy(update={"rows": rows})).splitlines()
    assert "- the first … of a process: one window." in reported


def test_words_are_wrapped_to_the_width_of_a_page() -> None:
    lines = wrapped("word " * 100).splitlines()
    assert " ".join(lines).split() == ["word"] * 100
    assert [len(line) for line in lines[:-1]] == [109] * 4


def test_numbers_have_three_digits() -> None:
    row = measured()[0]
    row.windows = {"cqstore": [{"count": 123_456, "seconds": 1.0, "cpu_seconds": 0.123_456_78}]}
    row.windows["RocketMQ"] = [{"count": 1, "seconds": 1.0, "cpu_seconds": 0.1}]
    shown = table(report().model_copy(update={"rows": [row]}))
    assert "| 123,000/s (123,000 to 123,000) | 1/s (1 to 1) | 123,456 (" in shown
    assert "| 1 | 100,000 |" in shown


@pytest.mark.slow
def test_the_plot_names_every_row_that_has_a_ratio_and_is_small(tmp_path: Path) -> None:
    draw(report(), tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert [f">{name}<" in text for name in ("put", "open", "memory", "replay")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert len(text) < 1_000_000


def test_medians_are_found_over_the_number_of_queues() -> None:
    made = openings()
    assert over_queues(made, "open", "rocksdb", "cqstore") == {1_000: 50.0, 100_000: 60.0}
    assert over_queues(made, "open", "rocksdb", "RocketMQ") == {1_000: 500.0}
    assert over_queues(made, "open", "file", "cqstore") == {}


@pytest.mark.slow
def test_the_plot_of_many_queues_shows_both_sides(tmp_path: Path) -> None:
    draw_queues(openings(), tmp_path / "queues.svg")
    text = (tmp_path / "queues.svg").read_text(encoding="utf-8")
    assert ">cqstore, RocksDB<" in text
    assert ">RocketMQ, RocksDB<" in text
    assert ">queues of 2 messages; medians, P, 2 cores<" in text
    assert ">opening after a clean stop: ms<" in text
    assert len(text) < 1_000_000


def test_a_run_without_openings_has_no_plot_of_them(tmp_path: Path) -> None:
    draw_queues(report(), tmp_path / "queues.svg")
    assert list(tmp_path.iterdir()) == []
