"""What a full run changes in the pages."""

from pathlib import Path

import pytest

from tests.kit.pages import ROOT, tables
from tests.tools.bench_peer.made_report import report
from tools.bench.peer.pages import BEGIN, END, median, publish, repeated, with_section
from tools.bench.peer.plot import shown
from tools.bench.peer.rows import in_order
from tools.bench.peer.table import HEAD, published, section, table, words

REPEATED = """\
| work | queues in | cqstore | ahead | what for |
| --- | --- | ---: | ---: | --- |
| put | files | 1/s | 9 | kept |
| open | RocksDB | | | kept too |
| replay | files | | | |

| work | queues in | cqstore |
| --- | --- | ---: |
| put | files | left alone |
"""
FILLED = """\
| work | queues in | cqstore | ahead | what for |
| --- | --- | ---: | ---: | --- |
| put | files | 500,000/s | 2.00 | kept |
| open | RocksDB | 250 ms | **0.50** | kept too |
| replay | files | 2,000/s |  |  |

| work | queues in | cqstore |
| --- | --- | ---: |
| put | files | left alone |
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return a page with a place for the table."""
    made = tmp_path / "page.md"
    made.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\n{REPEATED}", encoding="utf-8")
    return made


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    """Return a page that repeats figures."""
    made = tmp_path / "README.md"
    made.write_text(REPEATED, encoding="utf-8")
    return made


def test_a_page_gets_the_section_between_its_marks_and_keeps_the_rest() -> None:
    new = section(report(), "peer.svg")
    text = f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    for _ in range(2):  # a second time nothing changes
        text = with_section(text, new)
        assert text == f"before\n\n{BEGIN}\n\n{new}\n{END}\n\nafter\n"
    assert "](peer.svg)" in new


@pytest.mark.parametrize("text", ["", BEGIN, f"{BEGIN}{BEGIN}{END}"])
def test_a_page_without_its_marks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not have"):
        with_section(text, "new")


def test_a_table_that_repeats_figures_gets_the_medians_of_its_rows() -> None:
    assert repeated(REPEATED, report(), all_measured=True) == FILLED
    assert repeated(FILLED, report(), all_measured=True) == FILLED


def test_a_median_stands_out_as_its_row_does() -> None:
    assert median("**0.50 (0.40 to 0.60)**") == "**0.50**"
    assert median("1.00 (0.90 to 1.10)") == "1.00"
    assert median("1/s (1 to 1) †") == "1/s"
    assert (median("cannot"), median("")) == ("cannot", "")


def test_both_pages_get_the_run(page: Path, readme: Path) -> None:
    publish(page, readme, report(), "peer.svg")
    assert readme.read_text(encoding="utf-8") == FILLED
    new = section(report(), "peer.svg")
    assert page.read_text(encoding="utf-8") == f"before\n\n{BEGIN}\n\n{new}\n{END}\n\n{FILLED}"
    assert [len(set(cells)) for _, cells in tables(page)] == [1, 1, 1]


def test_a_row_that_was_not_measured_says_so() -> None:
    part = report()
    del part.rows[1]
    row = "| open | RocksDB | 250 ms | **0.50** | kept too |"
    assert FILLED.count(row) == 1
    without = FILLED.replace(row, "| open | RocksDB | not measured | not measured | kept too |")
    assert repeated(FILLED, part, all_measured=False) == without


def test_a_row_of_the_readme_that_was_not_measured_leaves_both_pages_alone(
    page: Path, readme: Path
) -> None:
    known = page.read_bytes(), readme.read_bytes()
    part = report()
    del part.rows[1]
    with pytest.raises(ValueError, match="the run has no row “open” with queues in RocksDB"):
        publish(page, readme, part, "peer.svg")
    assert (page.read_bytes(), readme.read_bytes()) == known


def test_rows_of_an_earlier_run_stay_with_their_figures_and_a_mark() -> None:
    whole = report()
    page = f"| work | queues in | cqstore |\n| put | files | 1/s |\n\n{table(whole)}\nafter\n"
    kept = published(page)
    part = whole.model_copy(update={"rows": whole.rows[:1]}).with_published(kept)
    assert [(row.name, row.backend) for row in part.rows] == [
        (row.name, row.backend) for row in whole.rows
    ]
    lines = table(whole).splitlines()
    again = table(part).splitlines()
    assert again[:3] == lines[:3]
    assert again[3:] == [
        line.replace(cell, f"{cell} ‡", 1)
        for line, cell in zip(lines[3:], ("250 ms (250 to 250)", "64 MiB (64 to 64)",
                                          "2,000/s (2,000 to 2,000)"), strict=True)
    ]  # fmt: skip
    assert "‡: from an earlier run" in words(part)
    assert "‡" not in words(whole)
    assert table(part.with_published(published(table(part)))) == table(part)  # once, not twice
    assert repeated(REPEATED, part, all_measured=True) == FILLED
    for row, was in zip(part.rows, whole.rows, strict=True):
        assert (shown(row) is None) == (shown(was) is None)
    assert part.rows[1].ratio() == whole.rows[1].ratio()


def test_a_published_row_whose_name_is_gone_goes() -> None:
    name = "put lists of 32"
    rows = published(
        f"| {' | '.join(HEAD)} |\n| --- | --- |\n"
        f"| {name} | RocksDB | 1,250/s (1,000 to 2,000) † | 2/s (2 to 2) | 625 (1 to 1.5) | | | |\n"
        "| an old name | RocksDB | 1/s (1 to 1) | 2/s (2 to 2) | 1 (1 to 1) | | | |\n"
    )
    (row,) = in_order(rows, quick=False)
    assert (row.name, row.values("cqstore"), row.ratio()) == (name, [1250], (625, 1, 1.5))
    assert row.note == "RocketMQ puts client batches, because it has no put of a list"
    reported = words(report().model_copy(update={"rows": [row]}))
    assert "†: this side was not steady when its warm-up ended." in reported


def test_the_page_of_performance_has_the_marks() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
