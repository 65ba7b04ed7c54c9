"""Rows in the order of a column, and how many of them."""

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
"""Columns at the left that identify rows."""


def ranked(
    rows: Iterable[Row], column: str, columns: Sequence[str], limit: int, bounded: BoundedAnswer
) -> list[Row]:
    """Return ``rows`` ordered by ``column``; at most ``limit``, 0: all; ``bounded`` reports more.

    Numbers come from the largest down, text from A on, what is empty last; equal rows by their
    first columns from the smallest up. With a limit one row more than that is in memory.

    Raises:
        typer.BadParameter: there is no such column; ``columns`` are named.
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
