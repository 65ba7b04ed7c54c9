"""Text of a broker's JSON file, assembled from rows that are each encoded once.

``encoded`` of ``fastjson`` takes 25 µs per row, and a file must be written as a whole. Here, a row
is in one line.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from cqstore.broker.metadata.json_writer import GROUP_TOPICS, content_of, topics_of_groups
from cqstore.broker.metadata.model import BrokerMetadata, Json
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.store.broker_files.file_names import OFFSETS_FILE

_ROW_END = ",\n\t\t"
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ROWS = json.JSONEncoder(ensure_ascii=False, separators=(_ROW_END, ":"))


def value_text(value: object) -> bytes:
    """Return the text of any value, in one line."""
    return _JSON.encode(value).encode()


def row_text(key: str, row: object) -> bytes:
    """Return the text of a row of a table, with its key."""
    return f"{_JSON.encode(key)}:{_JSON.encode(row)}".encode()


def rows_text(rows: Mapping[str, object]) -> bytes:
    """Return the text of several rows for ``table_text``; empty if there are none."""
    return _ROWS.encode(rows)[1:-1].encode()


def table_text(rows: Iterable[bytes]) -> bytes:
    """Return the text of a table from those of its rows."""
    lines = _ROW_END.encode().join(rows)
    return b"{\n\t\t%b\n\t}" % lines if lines else b"{}"


def file_text(fields: Mapping[str, bytes]) -> bytes:
    """Return the content of a file from the texts of its fields."""
    return b"{\n\t%b\n}" % b",\n\t".join(
        b"%b:%b" % (value_text(name), value) for name, value in fields.items()
    )


class Former(NamedTuple):
    """What a change of a ``FileText`` replaced."""

    version: object
    rows: dict[str, dict[str, bytes | None]]
    """Table → key → text; ``None``: there was no row."""


class FileText:
    """The text of a JSON file of a broker, kept row by row."""

    def __init__(self, name: str, others: Json) -> None:
        """Set the name, one of ``FILES``, and the fields besides those of ``content_of``."""
        self._name, self._others = name, others
        self._version: object = None
        self._tables: dict[str, dict[str, bytes]] = {}
        self._group_topics: bytes | None = None  # until a key is new or removed

    def forget(self, keys: TopicKeys) -> bool:
        """Remove ``keys`` from the other fields; return whether there were any."""
        before, self._others = self._others, keys.removed_from(self._others)
        return before != self._others

    def change(self, made: BrokerMetadata, keys: Collection[str]) -> Former:
        """Replace the rows of ``keys`` by those of ``made``; return what was replaced.

        A key without a row in ``made`` is removed. The version is also that of ``made``.
        """
        fields = content_of(self._name, made)
        former = Former(self._version, {})
        self._version = fields.pop("dataVersion", None)
        fields.pop(GROUP_TOPICS, None)
        for name, rows in fields.items():
            assert isinstance(rows, dict)
            texts = self._tables.setdefault(name, {})
            former.rows[name] = {key: texts.get(key) for key in keys}
            self._put(
                name, {key: row_text(key, rows[key]) if key in rows else None for key in keys}
            )
        return former

    def restore(self, former: Former) -> None:
        """Undo a change."""
        self._version = former.version
        for name, rows in former.rows.items():
            self._put(name, rows)

    def _put(self, name: str, rows: Mapping[str, bytes | None]) -> None:
        texts = self._tables[name]
        for key, text in rows.items():
            if (key in texts) != (text is not None):
                self._group_topics = None
            if text is not None:
                texts[key] = text
            else:
                texts.pop(key, None)

    def text(self) -> bytes:
        """Return the content of the file."""
        fields = {name: value_text(value) for name, value in self._others.items()}
        if self._name == OFFSETS_FILE:
            if self._group_topics is None:
                self._group_topics = value_text(topics_of_groups(self._tables["offsetTable"]))
            fields[GROUP_TOPICS] = self._group_topics
        fields |= {name: table_text(rows.values()) for name, rows in self._tables.items()}
        if self._version is not None:
            fields["dataVersion"] = value_text(self._version)
        return file_text(fields)
