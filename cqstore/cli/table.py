"""Tables: text of the cells, and fitting them to a terminal by folding names and headers."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported only by commands that print a table
    from rich.table import Table

Row = Mapping[str, object]
_WORD = re.compile(r"\s*[\-_%./:,]*[^\s\-_%./:,]*[\-_%./:,]?")
"""Parts of a cell that are kept whole first when it is folded: parts of names."""
_HEAD_WORD = re.compile(r"\s*(?:[A-Z]?[^A-Z\s]+|[A-Z]+)")
"""Parts of a header, such as those of ``nextStoreTimestamp``."""
_BETWEEN = 2
"""Spaces between two columns of a table."""
_NARROW = 8
"""Minimum width of a column whose words do not fit, if there is room."""


def table(rows: Iterable[Row], width: int | None = None) -> "Table":
    """Return ``rows`` as one table with all keys as columns; missing values are empty.

    ``width`` is the width of the terminal. Nothing is truncated to fit it, and few words are split;
    if it is too narrow, columns without a value are left out.
    """
    from rich.table import Table  # noqa: PLC0415

    page = list(rows)
    keys = columns_of(page)
    texts = [[text_of(row.get(key)) for key in keys] for row in page]
    if width is not None and _natural([keys, *texts]) > width:
        used = [at for at in range(len(keys)) if any(row[at] for row in texts)]
        keys, texts = [keys[at] for at in used], [[row[at] for at in used] for row in texts]
    made = Table(box=None, header_style="bold", pad_edge=False)
    widths = _widths([keys, *texts], width) if width is not None and keys else [None] * len(keys)
    for key, size in zip(keys, widths, strict=True):
        made.add_column(_folded(key, size, _HEAD_WORD), overflow="fold", width=size)
    for row in texts:
        folded = (_folded(text, size, _WORD) for text, size in zip(row, widths, strict=True))
        made.add_row(*map(escaped, folded))
    return made


def _folded(text: str, width: int | None, word: re.Pattern[str]) -> str:
    """Return ``text`` folded to lines of at most ``width``; longer words are not split."""
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
    """Return the width of a table in which nothing is folded."""
    from rich.cells import cell_len  # noqa: PLC0415

    widths = (max(cell_len(text) for text in of) + _BETWEEN for of in zip(*texts, strict=True))
    return sum(widths) - _BETWEEN


def _widths(texts: Sequence[Sequence[str]], width: int) -> Sequence[int]:
    """Return the width of each column within ``width``; short words are kept whole first.

    The first row of ``texts`` contains the headers.
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
    """Return a header with its words separated by spaces."""
    return " ".join(_HEAD_WORD.findall(head))


def columns_of(page: Sequence[Row]) -> list[str]:
    """Return the keys of all rows."""
    return list(dict.fromkeys(key for row in page for key in row))


def as_text(value: object) -> object:
    """Return a value that JSON cannot represent as text."""
    return str(value)


def value_of(value: object) -> object:
    """Return a value for a cell; values other than text and numbers are JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=as_text)
    return value


def escaped(text: str) -> str:
    """Return a text with rich's markup escaped."""
    return text.replace("[", r"\[")


def text_of(value: object) -> str:
    """Return the text of a cell; empty for ``None``."""
    value = value_of(value)
    return "" if value is None else str(value)
