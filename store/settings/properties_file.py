r"""Reader of the lines of a ``broker.conf``, split as by Java's ``Properties.load``.

RocketMQ passes a stream of bytes, so the text is always read as ISO-8859-1; other characters must
be written as ``\uXXXX``. A value extends to the end of its line: comments and quotes are part of
it.

Source: RocketMQ ``BrokerStartup.SystemConfigFileHelper.loadConfig``; ``java.util.Properties``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import exists, is_dir, is_file

MAX_CONFIG_BYTES = 1 << 20
"""Maximum size of a ``broker.conf``, in bytes."""
_SEPARATORS = "=:"
_LINE_ENDS = "\t\n\f\r"


class ConfLine(NamedTuple):
    """One key and its value."""

    number: int
    """Number of its first line in the file, counted from 1."""
    key: str
    value: str
    has_separator: bool
    """Whether the line has ``=`` or ``:``; otherwise the key ends at the first blank."""


def read_lines(path: Path) -> tuple[ConfLine, ...]:
    """Return the lines that have a key, in file order.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: the file is not a properties file, or not a text file.
    """
    import javaproperties  # noqa: PLC0415 - imports HTTP and TLS, which few commands need

    number, found = 1, list[ConfLine]()
    try:
        for element in javaproperties.parse(_joined(_text(path))):
            source = element.source
            if isinstance(element, javaproperties.KeyValue):
                separated = any(mark in source for mark in _SEPARATORS)
                found.append(ConfLine(number, element.key, element.value, separated))
            number += source.count("\n") or source.count("\r")
    except javaproperties.InvalidUEscapeError as exc:
        raise StoreConfigError(
            f"not a properties file: line {number}: {exc}; a broker does not start with it",
            path=path,
        ) from exc
    return tuple(found)


def last_values(lines: tuple[ConfLine, ...]) -> Mapping[str, str]:
    """Return key → value; if a key is given twice, the last value counts."""
    return {line.key: line.value for line in lines}


def read_properties(path: Path) -> Mapping[str, str]:
    """Return key → value, not converted; if a key is given twice, the last value counts.

    Raises:
        StoreError: see ``read_lines``.
    """
    return last_values(read_lines(path))


def _joined(text: str) -> str:
    """Return ``text`` with a blank line for each line that a lone backslash continues.

    Java starts a new line after it, so a comment there is a comment; javaproperties continues
    the line.
    """
    lines, is_continued = list[str](), False
    for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text):
        bare = line.strip(" \t\f\r\n")
        if bare == "\\" and not is_continued and line.rstrip("\r\n").endswith("\\"):
            lines.append("\n")
            continue
        is_comment = not is_continued and bare.startswith(("#", "!"))
        body = line.rstrip("\r\n")
        is_continued = not is_comment and (len(body) - len(body.rstrip("\\"))) % 2 == 1
        lines.append(line)
    return "".join(lines)


def _text(path: Path) -> str:
    """Return the text of a properties file.

    Raises:
        StoreConfigError: the path is a folder, or the file has control characters.
        StoreIOError: the file cannot be read.
    """
    if is_dir(path):
        raise StoreConfigError("this is a folder, not a properties file", path=path)
    if exists(path) and not is_file(path):
        raise StoreConfigError("this is a device or a pipe, not a properties file", path=path)
    with os_errors("read the configuration", path):
        text = read_file(path, MAX_CONFIG_BYTES).decode("iso-8859-1")
    found = (at for at, char in enumerate(text) if char < " " and char not in _LINE_ENDS)
    if (at := next(found, None)) is not None:
        raise StoreConfigError(
            f"not a properties file: found the control character {text[at]!r} after {at}"
            " bytes, expected text",
            path=path,
        )
    return text
