"""Sorting of rows by a column, with a limit."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.table import Row

Sort = Annotated[
    str,
    typer.Option(metavar="COLUMN", help="Column to sort by: numbers descending, text ascending."),
]
Limit = Annotated[int, typer.Option(metavar="N", min=0, help="Maximum number of rows; 0 for all.")]
_NAMES = 4
"""Number of columns at the left that identify a row."""


def ranked(
    rows: Iterable[Row], column: str, columns: Sequence[str], limit: int, bounded: BoundedAnswer
) -> list[Row]:
    """Return ``rows`` ordered by ``column``; at most ``limit``, 0: all; ``bounded`` reports more.

    Numbers are in descending order, text in ascending order, empty values last. Equal rows are in
    ascending order of their first columns. With a limit, ``limit`` + 1 rows are in memory.

    Raises:
        typer.BadParameter: there is no such column; the error names ``columns``.
    """
    if column not in columns:
        known = ", ".join(columns)
        raise typer.BadParameter(
            f"unknown column {column!r}: expected {known}", param_hint="--sort"
        )
    names = columns[:_NAMES]

    def rank(row: Row) -> tuple[Any, ...]:
        return _rank(row[column]), [(row[name] is None, row[name]) for name in names]

    if limit:
        found = heapq.nsmallest(limit + 1, rows, rank)
        return list(bounded.limited(found, limit, "rows", "--limit"))
    return sorted(rows, key=rank)


def _rank(value: object) -> tuple[bool, float | str]:
    if value is None:
        return True, 0
    return False, -value if isinstance(value, int | float) else str(value)
