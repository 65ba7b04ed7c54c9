"""How a report is shown."""

from pathlib import Path

import pytest

from bench.peer.plot import draw
from bench.peer.table import BEGIN, END, publish, section, table, words, wrapped
from tests.kit.pages import ROOT, tables
from tests.peer.made_report import report

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
    machine, cannot, note = words(report()).split("\n\n")
    assert machine.startswith("processor: P, 2 cores. Three rounds. Others used 0.2 cores mean")
    assert machine.endswith("(median of the rounds; at most 1.5).")
    assert cannot == "“cannot”: RocketMQ has too few descriptors."
    assert note == "replay: one message is lost.\n"


@pytest.mark.parametrize(("seconds", "marks"), [(0.0025, 0), (0.0026, 2)])
def test_what_is_shown_as_one_is_not_shown_as_behind(seconds: float, marks: int) -> None:
    made = report()
    del made.rows[1:]
    (row,) = made.rows
    row.windows = {
        "cqstore": [{"count": 1000, "seconds": seconds, "cpu_seconds": 0.1}],
        "RocketMQ": [{"count": 1000, "seconds": 0.00249, "cpu_seconds": 0.1}],
    }
    assert table(made).count("**") == marks


def test_a_note_of_several_rows_is_told_once() -> None:
    made = report()
    made.rows[0].note = made.rows[1].note = made.rows[3].note
    assert words(made).endswith("\n\nput; open; replay: one message is lost.\n")


def test_words_are_wrapped_to_the_width_of_a_page() -> None:
    lines = wrapped("word " * 100).splitlines()
    assert " ".join(lines).split() == ["word"] * 100
    assert [len(line) for line in lines[:-1]] == [109] * 4


def test_numbers_have_three_digits() -> None:
    row = report().rows[0]
    row.windows = {"cqstore": [{"count": 123_456, "seconds": 1.0, "cpu_seconds": 0.123_456_78}]}
    row.windows["RocketMQ"] = [{"count": 1, "seconds": 1.0, "cpu_seconds": 0.1}]
    shown = table(report().model_copy(update={"rows": [row]}))
    assert "| 123,000/s (123,000 to 123,000) | 1/s (1 to 1) | 123,456 (" in shown
    assert "| 1 | 100,000 |" in shown


def test_a_page_gets_the_section_between_its_marks_and_keeps_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n", encoding="utf-8")
    new = section(report(), "peer.svg")
    for _ in range(2):  # a second time nothing changes
        publish(page, new)
        text = page.read_text(encoding="utf-8")
        assert text == f"before\n\n{BEGIN}\n\n{new}\n{END}\n\nafter\n"
    assert [len(set(cells)) for _, cells in tables(page)] == [1]
    assert "](peer.svg)" in new


@pytest.mark.parametrize("text", ["", BEGIN, f"{BEGIN}{BEGIN}{END}"])
def test_a_page_without_its_marks_is_not_touched(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="does not have"):
        publish(page, "new")
    assert page.read_text(encoding="utf-8") == text


def test_the_page_of_performance_has_the_marks() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)


@pytest.mark.slow
def test_the_plot_names_every_row_that_has_a_ratio_and_is_small(tmp_path: Path) -> None:
    draw(report(), tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert [f">{name}<" in text for name in ("put", "open", "memory", "replay")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert len(text) < 1_000_000
