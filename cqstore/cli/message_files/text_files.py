"""Text files of messages: their writer, and readers of JSON lines and CSV.

A writer writes messages to a file. A reader yields each message with the number of its row.
"""

import csv
import io
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from cqstore.cli.csv_line import csv_line
from cqstore.cli.message_files.message_fields import (
    COLUMNS,
    FIELDS,
    ReadMessage,
    flat_fields,
    message_fields,
)
from cqstore.cli.message_files.message_lines import (
    IllegalLineError,
    MessageLine,
    json_fault,
    message_lines,
    refuse_beyond,
    to_message,
)
from cqstore.cli.message_files.text_input import text_input
from cqstore.cli.output import to_json
from cqstore.store.errors import IllegalMessageError

_NUMBERS = {name for name, kind in COLUMNS.items() if kind in {"int32", "int64", "time"}}
MAX_LINE_BYTES = 256 << 20
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class FileFormat(StrEnum):
    """Formats of message files, as named by ``--format``."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    STORE = "store"
    ARCHIVE = "archive"
    """A folder of batches, written by ``cqstore archive``, not by export."""


class MessageWriter(ABC):
    """Interface of a writer of messages."""

    @abstractmethod
    def write(self, read: ReadMessage) -> None:
        """Write one message; it may stay in memory until ``finish``."""

    @abstractmethod
    def finish(self) -> None:
        """Write the messages that are still in memory; nothing may be written after that."""


class TextWriter(MessageWriter):
    """Writes messages as lines at the current position of a file."""

    def __init__(self, file: BinaryIO, line: Callable[[ReadMessage], str]) -> None:
        """``line`` returns the line of a message, including the line end."""
        self._file, self._line = file, line

    def write(self, read: ReadMessage) -> None:
        """Write the line of a message immediately."""
        self._file.write(self._line(read).encode("utf-8", "surrogateescape"))

    def finish(self) -> None:
        """Flush the written data to the operating system."""
        self._file.flush()


def json_line(read: ReadMessage) -> str:
    """Return a message as a JSON object on a line, see ``message_fields``."""
    return to_json(message_fields(read)) + "\n"


def csv_row(read: ReadMessage) -> str:
    """Return a message as comma-separated ``FIELDS``, see ``flat_fields``; properties as JSON."""
    row = {**flat_fields(read), "properties": to_json(read.message.properties)}
    return csv_line(row[name] for name in FIELDS)


def read_json_lines(path: Path, first: int) -> Iterator[MessageLine]:
    """Yield the messages of a file of JSON lines from line ``first`` on.

    Raises:
        IllegalLineError: a line is not a valid message; messages before it were yielded.
        StoreIOError: the file cannot be read.
    """
    with text_input(path) as file:
        yield from message_lines(bounded_lines(file), first)


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; refuse a line too long for a message, to bound memory.

    Raises:
        IllegalLineError: a line is too long.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise IllegalLineError(f"line {number} has more than {MAX_LINE_BYTES:,} bytes", number)
        yield line


def read_csv(path: Path, first: int) -> Iterator[MessageLine]:
    """Yield the messages of a file of comma-separated values; line 1 names the columns.

    The number of a message is its row number, counted from 1 below the header.

    Raises:
        IllegalLineError: a row or the header is invalid; messages before it were yielded.
        BeyondEndError: the rows end before ``first``.
        StoreIOError: the file cannot be read.
    """
    csv.field_size_limit(sys.maxsize)
    with text_input(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        rows = csv.reader(text, strict=True)
        number, head_is_read = 0, False
        try:
            names = next(rows, [])
            _check_names(names)
            head_is_read = True
            for number, row in enumerate(rows, 1):
                if number >= first:
                    yield MessageLine(number, to_message(_fields(names, row)))
            refuse_beyond(first, number)
        except IllegalMessageError as exc:
            where = f"row {number} (line {rows.line_num})" if head_is_read else "line 1"
            raise IllegalLineError(f"{where}: {exc.reason}", max(number, 1)) from exc
        except (csv.Error, UnicodeDecodeError) as exc:
            where = f"row {number + 1} (line {rows.line_num})" if head_is_read else "line 1"
            raise IllegalLineError(f"{where}: invalid CSV: {exc}", number + 1) from exc


def _check_names(names: list[str]) -> None:
    if unknown := sorted(set(names) - set(FIELDS)):
        raise IllegalMessageError(
            f"unknown columns: {', '.join(unknown)[:200]}; known columns: {', '.join(FIELDS)}"
        )
    if "topic" not in names or len(set(names)) != len(names):
        raise IllegalMessageError("the header has no column topic, or has a column twice")


def _fields(names: list[str], row: list[str]) -> dict[str, object]:
    """Return the fields of a row, with the one of body and bodyBase64 that is not empty."""
    if len(row) != len(names):
        raise IllegalMessageError(f"{len(row)} values, but the header has {len(names)} columns")
    fields: dict[str, object] = {}
    for name, text in zip(names, row, strict=True):
        if name in _NUMBERS:
            if not _WHOLE.fullmatch(text):
                raise IllegalMessageError(f"{name} is {text!r:.60}, not a whole number")
            fields[name] = int(text)
        elif name == "properties":
            fields[name] = _properties(text)
        else:
            fields[name] = text
    if fields.get("bodyBase64") and not fields.get("body"):
        fields.pop("body", None)
    elif not fields.get("bodyBase64"):
        fields.pop("bodyBase64", None)
    return fields


def _properties(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError) as exc:
        raise IllegalMessageError(f"properties are not JSON: {json_fault(exc)}") from exc
