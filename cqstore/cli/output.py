"""Output of the verbs: prints their rows as a table, JSON, JSON lines or CSV."""

import base64
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import ClassVar

from cqstore.cli.csv_line import csv_line
from cqstore.cli.table import Row, as_text, columns_of, escaped, table, text_of, value_of
from cqstore.store.errors import StoreError

HAS_MORE = "has_more"
"""Additional field of the last JSON row of an answer from which a limit left rows out."""
HasMore = Callable[[], bool]
_PAGE = 1000
_ONE_LINE = re.compile(r"[\t\n\v\f\r]+")
_PIPE_WIDTH = 1000
_PADDED = 40
"""Maximum width to which cells are padded outside a terminal; a longer cell shifts its row."""


class OutputFormat(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class RowFormat(StrEnum):
    """Values of ``--output`` for answers whose rows all have the same columns."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class Output(ABC):
    """Prints rows on standard output."""

    marks_last: ClassVar[bool] = False
    """Whether the last row has the field ``HAS_MORE`` if a limit left rows out."""

    def rows(self, rows: Iterable[Row], has_more: HasMore | None = None) -> int:
        """Print ``rows`` as they arrive; return how many there were.

        ``has_more`` is called after the last row and returns whether a limit left rows out. If so,
        the last row of JSON has the field ``HAS_MORE``; so each row is printed when the next one
        has arrived.
        """
        return self._rows(_marked(rows, has_more) if self.marks_last and has_more else rows)

    @abstractmethod
    def _rows(self, rows: Iterable[Row]) -> int:
        """Print ``rows``; return how many there were."""

    def record(self, record: Row) -> None:
        """Print a single record."""
        self.rows([record])


class JsonLinesOutput(Output):
    """Prints each row as a JSON object on a line."""

    marks_last = True

    def _rows(self, rows: Iterable[Row]) -> int:
        """Print one line per row."""
        count = 0
        for row in rows:
            sys.stdout.write(to_json(row) + "\n")
            count += 1
        return count


class JsonOutput(Output):
    """Prints one JSON document: an array of objects, or an object."""

    marks_last = True

    def _rows(self, rows: Iterable[Row]) -> int:
        """Print an array, one element per line."""
        count = 0
        try:
            for row in rows:
                sys.stdout.write((",\n" if count else "[\n") + to_json(row))
                count += 1
        except StoreError:  # the rows before the error form a complete document
            sys.stdout.write("\n]\n" if count else "[]\n")
            raise
        sys.stdout.write("\n]\n" if count else "[]\n")
        return count

    def record(self, record: Row) -> None:
        """Print an object."""
        sys.stdout.write(json.dumps(record, ensure_ascii=False, indent=2, default=as_text) + "\n")


class TableOutput(Output):
    """Prints a table for people; a long table is printed in pieces as its rows arrive."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415

        # In a pipe or file, each row is one line of any length. Names like :name: are not emojis.
        self._is_terminal = sys.stdout.isatty()
        self._console = Console(width=None if self._is_terminal else _PIPE_WIDTH, emoji=False)

    def _rows(self, rows: Iterable[Row]) -> int:
        """Print tables of at most a thousand rows."""
        count, page = 0, list[Row]()
        try:
            for row in rows:
                page.append(row)
                count += 1
                if len(page) == _PAGE:
                    self._print(page)
                    page = []
        finally:  # also print the rows before an error
            if page:
                self._print(page)
        return count

    def _print(self, page: Sequence[Row]) -> None:
        if self._is_terminal:
            self._console.print(table(page, self._console.width))
            return
        for line in _lines(page):  # rich would take milliseconds per row
            sys.stdout.write(line + "\n")

    def record(self, record: Row) -> None:
        """Print one line per field with label and value; an empty value is ``none``."""
        from rich.table import Table  # noqa: PLC0415

        made = Table(box=None, show_header=False, pad_edge=False)
        for _ in range(2):
            made.add_column(overflow="fold")
        for label, value in record.items():
            made.add_row(
                f"[bold]{label}[/bold]", "none" if value in ([], {}) else escaped(text_of(value))
            )
        self._console.print(made)


class CsvOutput(Output):
    """Comma-separated values with a header line; values other than text and numbers are JSON."""

    def _rows(self, rows: Iterable[Row]) -> int:
        """Print the keys of the first row, then one line per row."""
        count = 0
        for row in rows:
            if not count:
                sys.stdout.write(csv_line(row))
            sys.stdout.write(csv_line(value_of(value) for value in row.values()))
            count += 1
        return count


_OUTPUTS: dict[RowFormat, type[Output]] = {
    RowFormat.TABLE: TableOutput,
    RowFormat.JSON: JsonOutput,
    RowFormat.JSONL: JsonLinesOutput,
    RowFormat.CSV: CsvOutput,
}


def output(kind: OutputFormat | RowFormat) -> Output:
    """Return the output of ``kind``."""
    return _OUTPUTS[RowFormat(kind)]()


def _marked(rows: Iterable[Row], has_more: HasMore) -> Iterator[Row]:
    """Yield ``rows``, the last one with ``HAS_MORE`` if there are more.

    A column with that name, as in an SQL query, keeps its value.
    """
    held: Row | None = None
    try:
        for row in rows:
            if held is not None:
                yield held
            held = row
    except StoreError:
        if held is not None:
            yield held
        raise
    if held is not None:
        yield {**held, HAS_MORE: held.get(HAS_MORE, True)} if has_more() else held


def _lines(page: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of ``table``, one per row, without folding and without trailing blanks."""
    from rich.cells import cell_len  # noqa: PLC0415

    keys = columns_of(page)
    cells = [[_ONE_LINE.sub(" ", text_of(row.get(key))) for key in keys] for row in page]
    cells.insert(0, keys)
    sizes = [[cell_len(text) for text in row] for row in cells]
    widths = [min(max(column), _PADDED) for column in zip(*sizes, strict=True)]
    for texts, lengths in zip(cells, sizes, strict=True):
        padded = (
            text + " " * (width - length)
            for text, length, width in zip(texts, lengths, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def to_json(row: Row) -> str:
    """Return one row as compact JSON."""
    return _COMPACT.encode(row)


def body_fields(body: bytes) -> dict[str, object]:
    """Return a body as text if it is UTF-8, else as Base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=as_text)
"""Shared encoder: ``json.dumps`` would create one per row."""
