"""OffsetFile: the rows of some topics in a JSON file of consumer offsets, and their removal.

A file is read once for many removals. Each of them writes it as a whole.
"""

import os
from collections.abc import Collection
from pathlib import Path

from cqstore.broker.metadata.json_text import file_text, row_text, rows_text, table_text, value_text
from cqstore.broker.metadata.model import Json
from cqstore.broker.metadata.topic_keys import OFFSET_TABLES, TopicKeys
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.broker_files.file_names import MAX_TABLE_BYTES, backup_of
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file, replacing
from cqstore.store.record.message import SCHEDULE_TOPIC


class DelayLevels:
    """All keys of a file of delay levels, which are numbers: they belong to one topic."""

    topics = frozenset({SCHEDULE_TOPIC})

    def topics_of(self, _key: str) -> list[str]:
        """Return that topic."""
        return [SCHEDULE_TOPIC]


class _Rows:
    """A table of a file: the rows of topics, and the text of all other rows."""

    def __init__(self, table: Json, keys: TopicKeys | DelayLevels) -> None:
        self.named = {key: row_text(key, row) for key, row in table.items() if keys.topics_of(key)}
        self._others = rows_text({key: row for key, row in table.items() if key not in self.named})

    def text(self, gone: Collection[str]) -> bytes:
        """Return the text of the table without the rows ``gone``."""
        named = [row for key, row in self.named.items() if key not in gone]
        return table_text([self._others, *named] if self._others else named)


class OffsetFile:
    """The content of a file, and of its backup if that is the same."""

    def __init__(self, content: Json, keys: TopicKeys | DelayLevels) -> None:
        """Keep the rows of ``keys`` apart; accesses no file."""
        self.paths: list[Path] = []
        self._is_of_levels = isinstance(keys, DelayLevels)
        self._fields: dict[str, bytes | _Rows] = {
            name: _Rows(value, keys)
            if name in OFFSET_TABLES and isinstance(value, dict)
            else value_text(value)
            for name, value in content.items()
        }
        self._tables = [each for each in self._fields.values() if isinstance(each, _Rows)]
        self._keys: dict[str, set[str]] = {}  # per topic
        for table in self._tables:
            for key in table.named:
                for topic in keys.topics_of(key):
                    self._keys.setdefault(topic, set()).add(key)

    def remove(self, keys: TopicKeys) -> None:
        """Remove the rows of ``keys``, durably. File times stay.

        Raises:
            StoreIOError: a file cannot be written.
        """
        there = set[str]().union(*(self._keys.get(topic, ()) for topic in keys.topics))
        gone = {key for key in there if self._is_of_levels or key in keys}
        if all(gone.isdisjoint(table.named) for table in self._tables):
            return
        data = file_text({
            name: each.text(gone) if isinstance(each, _Rows) else each
            for name, each in self._fields.items()
        })  # fmt: skip
        for path in self.paths:
            replace_keeping_time(path, data)
        for table in self._tables:
            for key in gone:
                table.named.pop(key, None)


def offset_files(path: Path, keys: TopicKeys | DelayLevels) -> list[OffsetFile]:
    """Return the content of a file and of its backup; as in a broker, one of them may be torn.

    Raises:
        CorruptionError: a broker can read neither.
        StoreIOError: a file cannot be read.
    """
    found: dict[bytes, OffsetFile] = {}
    fault: CorruptionError | None = None
    for each in (path, backup_of(path)):
        try:
            data = _read(each)
            if data.strip():
                if data not in found:
                    found[data] = OffsetFile(_parsed(each, data), keys)
                found[data].paths.append(each)
        except CorruptionError as exc:
            fault = fault or exc
    if fault is not None and not found:
        raise fault
    return [*found.values()]


def _read(path: Path) -> bytes:
    """Return the content of a file; empty if it does not exist."""
    with os_errors("read a table of offsets", path):
        try:
            return read_file(path, MAX_TABLE_BYTES)
        except FileNotFoundError:
            return b""


def _parsed(path: Path, data: bytes) -> Json:
    try:
        return broker_object(data)
    except ValueError as exc:
        raise CorruptionError(
            f"the offsets of the deleted topics cannot be removed: {exc} (cqstore meta repair)",
            path=path,
        ) from exc


def replace_keeping_time(path: Path, data: bytes) -> None:
    """Replace a file durably. It never exists with another modification time.

    Raises:
        StoreIOError: the file cannot be written.
    """
    with os_errors("remove the offsets of deleted topics", path):
        before = path.stat()
        with replacing(path) as file:
            file.write(data)
            file.flush()
            os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
