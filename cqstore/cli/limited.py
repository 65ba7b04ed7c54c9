"""Answers with a limit: what is left out is reported, and how to get it."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from cqstore.cli.options import note

T = TypeVar("T")


def limited(rows: Iterable[T], limit: int | None, what: str, option: str) -> Iterator[T]:
    """Yield at most ``limit`` of ``rows`` (0 or ``None``: all); report it if there are more.

    ``what`` names the rows, and ``option`` is the one that has the limit. One more is read.
    """
    for number, row in enumerate(rows):
        if limit and number == limit:
            note_more(limit, what, option)
            return
        yield row


def note_more(limit: int, what: str, option: str) -> None:
    """Report that there are more rows than the ``limit`` that were shown."""
    note(f"only the first {limit} {what} are shown: there are more ({option})")
