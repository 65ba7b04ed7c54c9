"""Figures of the README and of the page of performance are those of the published run."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.pages import ROOT, prose, table_cells

README, PAGE = ROOT / "README.md", ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- bench-peer: begin -->", "<!-- bench-peer: end -->"
MAX_LINES, MAX_WORDS = 130, 1_200
NOT_MEASURED = "not measured"
PUBLISHED = ["work", "queues in", "cqstore", "RocketMQ", "ahead, wall"]
"""How the head of the published table begins."""
FIGURES = {"cqstore": "cqstore", "RocketMQ": "RocketMQ", "ahead": "ahead, wall"}
"""Columns of tables that repeat figures, and of the published one."""

Row = dict[str, str]


def rows(page: Path) -> Iterator[tuple[list[str], Row]]:
    """Yield every row of every table of ``page``, with the head."""
    for head, *rest in table_cells(page):
        for cells in rest:
            yield head, dict(zip(head, cells, strict=True))


def published() -> dict[tuple[str, str], Row]:
    """Return the rows of the published table by what they are called."""
    return {
        (row["work"], row["queues in"]): row
        for head, row in rows(PAGE)
        if head[: len(PUBLISHED)] == PUBLISHED
    }


def repeating(page: Path) -> list[Row]:
    """Return the rows of tables that repeat figures of the published one."""
    return [row for head, row in rows(page) if {"work", "queues in", "ahead"} <= set(head)]


def median(cell: str) -> str:
    """Return a figure of the published table without the ends of its rounds, with its marks."""
    return re.sub(r" \(.*?\)", "", cell.strip("*"))


@pytest.mark.parametrize("page", [README, PAGE], ids=lambda page: page.name)
def test_figures_are_those_of_the_published_row_of_that_name(page: Path) -> None:
    known, reported = published(), repeating(page)
    assert reported
    assert [
        (row, column)
        for row in reported
        for column, there in FIGURES.items()
        if column in row
        and row[column].strip("*")
        != median(known.get((row["work"], row["queues in"]), {}).get(there, NOT_MEASURED))
    ] == []


def test_the_readme_explains_the_marks_of_its_figures() -> None:
    beside = [line for line in README.read_text("utf-8").splitlines() if line[:1] != "|"]
    used = {
        mark
        for row in repeating(README)
        for cell in row.values()
        for mark in re.findall("[†‡]", cell)
    }
    assert used == {mark for mark in "†‡" if f"{mark}:" in " ".join(beside)}


def test_every_row_of_the_readme_was_measured() -> None:
    assert [row for row in repeating(README) if NOT_MEASURED in row.values()] == []


def test_the_readme_is_short_and_has_one_table_of_figures() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
    (table,) = table_cells(README)
    assert table[1:] == [list(row.values()) for row in repeating(README)]


def test_the_page_of_performance_has_few_words_beside_its_tables() -> None:
    text = prose(PAGE)
    beside = text.split(BEGIN)[0] + text.split(END)[1]
    words = [line for line in beside.splitlines() if not line.startswith("|")]
    assert len(" ".join(words).split()) <= MAX_WORDS


def test_a_goal_that_was_not_reached_has_its_floor_named() -> None:
    goals = [row for row in repeating(PAGE) if "aimed at" in row]
    behind = [
        row
        for row in goals
        if row["ahead"] != NOT_MEASURED and float(row["ahead"].strip("*")) < float(row["aimed at"])
    ]
    assert behind
    assert [row for row in behind if not row["floor"]] == []
