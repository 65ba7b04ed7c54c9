"""The broker's tables in JSON, an entry at a time: a million topics make files of 300 MB.

Source: RocketMQ ``TopicConfigManager``, ``ConsumerOffsetManager``.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from cqstore.store.broker_files.fastjson import quoted_keys
from cqstore.store.broker_files.file_names import MAX_TABLE_BYTES
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file

_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()
"""Bytes of a table of the broker's, which may name a million topics."""


def table_entries(path: Path, table: str) -> Iterator[tuple[str, object]]:
    """Yield key and value of every entry of the object ``table`` in the object in ``path``.

    Nothing if there is no such table. The text is in memory, the entries are not.

    Raises:
        CorruptionError: it is no JSON object, or ``table`` is none.
        StoreIOError: it cannot be read.
    """
    with os_errors("read a table of the broker's", path):
        data = read_file(path, MAX_TABLE_BYTES)
    text = quoted_keys(data.decode("utf-8", "surrogateescape"))
    try:
        for name, at in _members(text, 0):
            if name == table:
                for key, start in _members(text, at):
                    yield key, _DECODER.raw_decode(text, start)[0]
                return  # to go on would decode the whole table at once
    except (ValueError, RecursionError) as exc:
        raise CorruptionError(f"not a table of the broker's: {exc}", path=path) from exc


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield each key of the object at ``at``, and where its value starts."""
    at = _expect(text, at, "{")
    if text.startswith("}", at):
        return
    while True:
        key, at = _DECODER.raw_decode(text, at)
        if not isinstance(key, str):
            raise ValueError(f"a key is no text: char {at}")  # noqa: TRY004 - it is the text's
        at = _expect(text, at, ":")
        yield key, at
        at = _skip(text, _DECODER.raw_decode(text, at)[1])
        if not text.startswith(",", at):
            _expect(text, at, "}")
            return
        at = _skip(text, at + 1)


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"expecting {sign!r}: char {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at
