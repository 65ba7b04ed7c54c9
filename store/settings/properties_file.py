r"""The lines of a ``broker.conf``, as Java's ``Properties.load`` splits them.

RocketMQ gives it a stream of bytes, so the text is ISO-8859-1 whatever the editor meant; others are
written as ``\uXXXX``. Nothing ends a value but the end of its line: no comment, no quote.

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
"""Of a ``broker.conf``."""
_SEPARATORS = "=:"
_LINE_ENDS = "\t\n\f\r"


class ConfLine(NamedTuple):
    """One key with its value."""

    number: int
    """Of its first line in the file, from 1."""
    key: str
    value: str
    has_separator: bool
    """Whether ``=`` or ``:`` is there; else the key ends at the first blank."""


def read_lines(path: Path) -> tuple[ConfLine, ...]:
    """Return the lines with a key, in the order of the file.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: it is no properties file, or no text.
    """
    import javaproperties  # noqa: PLC0415 - with it come HTTP and TLS, which few commands need

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
    """Return keys with their values; of a key that is there twice the last counts."""
    return {line.key: line.value for line in lines}


def read_properties(path: Path) -> Mapping[str, str]:
    """Return keys and values, not converted; of a key that is there twice the last.

    Raises:
        StoreError: as ``read_lines``.
    """
    return last_values(read_lines(path))


def _joined(text: str) -> str:
    """Return ``text`` with a blank line for each line that a lone backslash continues.

    Java begins anew behind it, so that a comment there is one; javaproperties goes on.
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
        StoreConfigError: it is a folder, or has control characters.
        StoreIOError: it cannot be read.
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
