"""A row of comma-separated values that any reader of RFC 4180 reads back, byte for byte."""

import csv
import io
from collections.abc import Iterable

_END = "\r\n"
"""What Python's writer is to end rows with: it quotes a value with one of these characters, but
with ``\\n`` alone it would leave a carriage return unquoted, and readers end the row there."""


def csv_line(values: Iterable[object]) -> str:
    """Return a row, which ends with a line feed."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=_END).writerow(values)
    return text.getvalue().removesuffix(_END) + "\n"
