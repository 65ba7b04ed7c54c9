"""Output: a verb returns rows, the output prints them as table, JSON, JSON lines or CSV."""

import base64
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

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
"""Columns to which a cell is padded outside a terminal; a longer one moves the rest of its row."""


class OutputFormat(StrEnum):
    """What ``--output`` takes."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class RowFormat(StrEnum):
    """What ``--output`` takes where every row of an answer has the same columns."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class Output(ABC):
    """Prints rows on standard output."""

    def rows(self, rows: Iterable[Row], has_more: HasMore | None = None) -> int:
        """Print ``rows`` as they arrive; return how many there were.

        ``has_more`` is asked after the last row whether a limit left rows out. In JSON the last row
        has then the field ``HAS_MORE``, and each row is printed when the next one is there.
        """
        return self._rows(rows)

    @abstractmethod
    def _rows(self, rows: Iterable[Row]) -> int:
        """Print ``rows``; return how many there were."""

    @abstractmethod
    def record(self, record: Row) -> None:
        """Print a single record."""


class _JsonRowsOutput(Output):
    """Marks the last row of an answer that has more."""

    def rows(self, rows: Iterable[Row], has_more: HasMore | None = None) -> int:
        """Print ``rows``, the last one with ``HAS_MORE`` if there are more."""
        return self._rows(rows if has_more is None else _marked(rows, has_more))


class JsonLinesOutput(_JsonRowsOutput):
    """Prints each row as a JSON object on a line."""

    def _rows(self, rows: Iterable[Row]) -> int:
        """Print a line a row."""
        count = 0
        for row in rows:
            sys.stdout.write(to_json(row) + "\n")
            count += 1
        return count

    def record(self, record: Row) -> None:
        """Print one line."""
        self.rows([record])


class JsonOutput(_JsonRowsOutput):
    """Prints one JSON document: an array of objects, or an object."""

    def _rows(self, rows: Iterable[Row]) -> int:
        """Print an array, an element a line."""
        count = 0
        try:
            for row in rows:
                sys.stdout.write((",\n" if count else "[\n") + to_json(row))
                count += 1
        except StoreError:  # what came before it is a complete document
            sys.stdout.write("\n]\n" if count else "[]\n")
            raise
        sys.stdout.write("\n]\n" if count else "[]\n")
        return count

    def record(self, record: Row) -> None:
        """Print an object."""
        sys.stdout.write(json.dumps(record, ensure_ascii=False, indent=2, default=as_text) + "\n")


class TableOutput(Output):
    """Table for people; a long table is printed in pieces while it is read."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415

        # Into a pipe or file a row is a line, not what fits eighty columns. No :name: is an emoji.
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
        finally:  # what was done before an error is shown
            if page:
                self._print(page)
        return count

    def _print(self, page: Sequence[Row]) -> None:
        if self._is_terminal:
            self._console.print(table(page, self._console.width))
            return
        for line in _lines(page):  # rich would take milliseconds a row
            sys.stdout.write(line + "\n")

    def record(self, record: Row) -> None:
        """Print label and value, a line each; of what has nothing in it ``none``."""
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
        """Print a line a row, headed by the keys of the first."""
        count = 0
        for row in rows:
            if not count:
                sys.stdout.write(csv_line(row))
            sys.stdout.write(csv_line(value_of(value) for value in row.values()))
            count += 1
        return count

    def record(self, record: Row) -> None:
        """Print a head line and one line."""
        self.rows([record])


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

    A column of that name (of an SQL query) keeps its value.
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
    """Return a body as text where it is UTF-8, else as Base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=as_text)
"""Made once: ``json.dumps`` would make one a row."""
