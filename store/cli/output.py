"""Output: a verb returns rows, the output prints them as table, JSON, JSON lines or CSV."""

import base64
import csv
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from store.errors import StoreError

if TYPE_CHECKING:  # a command that prints no table does without
    from rich.table import Table

Row = Mapping[str, object]
_PAGE = 1000
_ONE_LINE = re.compile(r"[\t\n\v\f\r]+")
_WORD = re.compile(r"\s*[\-_%./:,]*[^\s\-_%./:,]*[\-_%./:,]?")
"""What a text that does not fit is divided into first: names have parts."""
_HEAD_WORD = re.compile(r"\s*(?:[A-Z]?[^A-Z\s]+|[A-Z]+)")
"""The same of a head, ``nextStoreTimestamp``."""
_PIPE_WIDTH = 1000
_BETWEEN = 2
"""Columns of a terminal between two of a table."""
_NARROW = 8
"""What is left to a column that cannot have its words whole, at least where there is room."""


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

    @abstractmethod
    def rows(self, rows: Iterable[Row]) -> int:
        """Print ``rows`` as they come; return how many there were."""

    @abstractmethod
    def record(self, record: Row) -> None:
        """Print a single record."""


class JsonLinesOutput(Output):
    """One JSON object a line."""

    def rows(self, rows: Iterable[Row]) -> int:
        """Print a line a row."""
        count = 0
        for row in rows:
            sys.stdout.write(to_json(row) + "\n")
            count += 1
        return count

    def record(self, record: Row) -> None:
        """Print one line."""
        self.rows([record])


class JsonOutput(Output):
    """One JSON document: an array of objects, or an object."""

    def rows(self, rows: Iterable[Row]) -> int:
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
        sys.stdout.write(json.dumps(record, ensure_ascii=False, indent=2, default=_plain) + "\n")


class TableOutput(Output):
    """A table for people; a long one comes in pieces, so that it need not wait for its end."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415

        # Into a pipe or file a row is a line, not what fits eighty columns. No :name: is an emoji.
        self._is_terminal = sys.stdout.isatty()
        self._console = Console(width=None if self._is_terminal else _PIPE_WIDTH, emoji=False)

    def rows(self, rows: Iterable[Row]) -> int:
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
            made.add_row(f"[bold]{label}[/bold]", "none" if value in ([], {}) else _cell(value))
        self._console.print(made)


class CsvOutput(Output):
    """Comma-separated values with a head line; what is no text or number as JSON."""

    def rows(self, rows: Iterable[Row]) -> int:
        """Print a line a row, headed by the keys of the first."""
        count, writer = 0, csv.writer(sys.stdout, lineterminator="\n")
        for row in rows:
            if not count:
                writer.writerow(row)
            writer.writerow([_value(value) for value in row.values()])
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


def table(rows: Iterable[Row], width: int | None = None) -> "Table":
    """Return ``rows`` as one table, headed by all of their keys; what a row lacks is empty.

    ``width`` is the terminal's: nothing is cut to fit it, few words are divided, and where it is
    too narrow columns without a value are left out.
    """
    from rich.table import Table  # noqa: PLC0415

    page = list(rows)
    keys = _keys(page)
    texts = [[_text(row.get(key)) for key in keys] for row in page]
    if width is not None and _natural([keys, *texts]) > width:
        used = [at for at in range(len(keys)) if any(row[at] for row in texts)]
        keys, texts = [keys[at] for at in used], [[row[at] for at in used] for row in texts]
    made = Table(box=None, header_style="bold", pad_edge=False)
    widths = _widths([keys, *texts], width) if width is not None and keys else [None] * len(keys)
    for key, size in zip(keys, widths, strict=True):
        made.add_column(_folded(key, size, _HEAD_WORD), overflow="fold", width=size)
    for row in texts:
        folded = (_folded(text, size, _WORD) for text, size in zip(row, widths, strict=True))
        made.add_row(*map(_escaped, folded))
    return made


def _folded(text: str, width: int | None, word: re.Pattern[str]) -> str:
    """Return ``text`` in lines of at most ``width``; a word that is longer stays as it is."""
    from rich.cells import cell_len  # noqa: PLC0415

    if width is None or cell_len(text) <= width or "\n" in text:
        return text
    lines = [""]
    for each in word.findall(text):
        if lines[-1] and cell_len(lines[-1] + each) > width:
            lines.append(each.lstrip())
        else:
            lines[-1] += each
    return "\n".join(lines)


def _natural(texts: Sequence[Sequence[str]]) -> int:
    """Return how many columns of a terminal a table takes that folds nothing."""
    from rich.cells import cell_len  # noqa: PLC0415

    widths = (max(cell_len(text) for text in of) + _BETWEEN for of in zip(*texts, strict=True))
    return sum(widths) - _BETWEEN


def _widths(texts: Sequence[Sequence[str]], width: int) -> Sequence[int]:
    """Return how wide each column is within ``width``: the shorter its words, the rather whole.

    The first row of ``texts`` is the heads.
    """
    from rich.cells import cell_len  # noqa: PLC0415

    columns = list(zip(*texts, strict=True))
    words = [
        max(cell_len(word) for text in (_spaced(of[0]), *of[1:]) for word in text.split() or [""])
        for of in columns
    ]
    lines = [
        max(cell_len(line) for text in of for line in text.splitlines() or [""]) for of in columns
    ]
    found, left = [1] * len(columns), width - _BETWEEN * (len(columns) - 1) - len(columns)
    for wanted in (words, lines):
        lacking = sorted(range(len(columns)), key=lambda at: wanted[at] - found[at])
        for rest, at in zip(reversed(range(len(columns))), lacking, strict=True):
            share = max(left - _NARROW * rest, left // (rest + 1))
            more = max(min(wanted[at] - found[at], share), 0)
            found[at] += more
            left -= more
    return found


def _spaced(head: str) -> str:
    """Return a head with a space before each of its words."""
    return " ".join(_HEAD_WORD.findall(head))


def _keys(page: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in page for key in row))


def _lines(page: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of ``table``, as wide as they are, a line a row."""
    from rich.cells import cell_len  # noqa: PLC0415

    keys = _keys(page)
    cells = [[_ONE_LINE.sub(" ", _text(row.get(key))) for key in keys] for row in page]
    cells.insert(0, keys)
    sizes = [[cell_len(text) for text in row] for row in cells]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    for texts, lengths in zip(cells, sizes, strict=True):
        padded = (
            text + " " * (width - length)
            for text, length, width in zip(texts, lengths, widths, strict=True)
        )
        yield "  ".join(padded)


def to_json(row: Row) -> str:
    """Return one row as compact JSON."""
    return _COMPACT.encode(row)


def body_fields(body: bytes) -> dict[str, object]:
    """Return a body as text where it is UTF-8, else as Base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def _plain(value: object) -> object:
    return str(value)


def _value(value: object) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    return value


def _cell(value: object) -> str:
    return _escaped(_text(value))


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def _text(value: object) -> str:
    value = _value(value)
    return "" if value is None else str(value)


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)
"""Made once: ``json.dumps`` would make one a row."""
