"""Files of messages that are text: JSON lines, CSV and lines of ``--format``, written and read.

A writer takes messages and says how many bytes are complete; a reader yields the messages of rows,
each with its number.
"""

import csv
import io
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from cqstore.cli.csv_line import csv_line
from cqstore.cli.message_files.message_fields import (
    FIELDS,
    ReadMessage,
    flat_fields,
    message_fields,
)
from cqstore.cli.message_files.message_format import MessageFormat
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

_NUMBERS = {
    "queueId", "queueOffset", "phy", "storeTimestamp", "bornTimestamp", "flag", "sysFlag",
    "reconsumeTimes", "preparedTransactionOffset",
}  # fmt: skip
MAX_LINE_BYTES = 256 << 20
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class FileFormat(StrEnum):
    """What files of messages can be, by the words of ``--format``."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    STORE = "store"
    ARCHIVE = "archive"
    """A folder of batches: ``cqstore archive`` writes it, export does not."""


class MessageWriter(ABC):
    """Writes messages somewhere."""

    @abstractmethod
    def write(self, read: ReadMessage) -> None:
        """Write one message; it may be in memory until ``finish``."""

    @abstractmethod
    def finish(self) -> None:
        """Write the messages that are still in memory; nothing may be written after that."""


class TextWriter(MessageWriter):
    """Writes lines into ``file``."""

    def __init__(self, file: BinaryIO) -> None:
        """Write where the file's position is."""
        self._file = file

    @abstractmethod
    def line(self, read: ReadMessage) -> str:
        """Return the line of a message, with its end."""

    def head(self) -> None:
        """Write what precedes the first message."""

    def write(self, read: ReadMessage) -> None:
        """Write the line of a message, at once."""
        self._file.write(self.line(read).encode("utf-8", "surrogateescape"))

    def finish(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()


class JsonLinesWriter(TextWriter):
    """Writes each message as a JSON object on a line, see ``message_fields``."""

    def line(self, read: ReadMessage) -> str:
        """Return the message as a JSON object on one line."""
        return to_json(message_fields(read)) + "\n"


class CsvWriter(TextWriter):
    """Comma-separated values under a head line, see ``flat_fields``; properties as JSON."""

    def head(self) -> None:
        """Write the names of the columns."""
        self._file.write((",".join(FIELDS) + "\n").encode())

    def line(self, read: ReadMessage) -> str:
        """Return the message as a row of comma-separated values."""
        row = {**flat_fields(read), "properties": to_json(read.message.properties)}
        return csv_line(row[name] for name in FIELDS)


class PatternWriter(TextWriter):
    """Writer of each message as a line by the pattern of ``--format``."""

    def __init__(self, file: BinaryIO, pattern: MessageFormat) -> None:
        """Write a line of ``pattern``, as ``--format`` has it, for each message."""
        super().__init__(file)
        self._pattern = pattern

    def line(self, read: ReadMessage) -> str:
        """Return the message formatted by the pattern."""
        return self._pattern.line(read)


def read_json_lines(path: Path, first: int) -> Iterator[MessageLine]:
    """Yield the messages of a file of JSON lines from line ``first`` on.

    Raises:
        IllegalLineError: a line is no message; those before it were yielded.
        StoreIOError: the file cannot be read.
    """
    with text_input(path) as file:
        yield from message_lines(bounded_lines(file), first)


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; one that no message has would fill the memory.

    Raises:
        IllegalLineError: there is such a line.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise IllegalLineError.at(
                number, f"line {number} has more than {MAX_LINE_BYTES:,} bytes"
            )
        yield line


def read_csv(path: Path, first: int) -> Iterator[MessageLine]:
    """Yield the messages of a file of comma-separated values; line 1 names the columns.

    The number of a message is that of its row, 1 for the first below the names.

    Raises:
        IllegalLineError: a row, or the head, is wrong; messages before it were yielded.
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
            raise IllegalLineError.at(max(number, 1), f"{where}: {exc.reason}") from exc
        except (csv.Error, UnicodeDecodeError) as exc:
            where = f"row {number + 1} (line {rows.line_num})" if head_is_read else "line 1"
            raise IllegalLineError.at(number + 1, f"{where}: invalid CSV: {exc}") from exc


def _check_names(names: list[str]) -> None:
    if unknown := sorted(set(names) - set(FIELDS)):
        raise IllegalMessageError(
            f"unknown columns: {', '.join(unknown)[:200]}; known columns: {', '.join(FIELDS)}"
        )
    if "topic" not in names or len(set(names)) != len(names):
        raise IllegalMessageError("the header has no column topic, or has a column twice")


def _fields(names: list[str], row: list[str]) -> dict[str, object]:
    """Return the fields of a row, with either body or bodyBase64, whichever is not empty."""
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
