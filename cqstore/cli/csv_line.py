"""Rows of comma-separated values that any RFC 4180 reader reads back byte for byte."""

import csv
import io
from collections.abc import Iterable

_END = "\r\n"
"""Line terminator for Python's CSV writer, which quotes values that contain one of its characters.
With ``\\n`` alone, it would leave a carriage return unquoted, and readers would end the row
there."""


def csv_line(values: Iterable[object]) -> str:
    """Return the values as one row that ends with a line feed."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=_END).writerow(values)
    return text.getvalue().removesuffix(_END) + "\n"
