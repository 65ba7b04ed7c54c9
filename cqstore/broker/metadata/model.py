"""BrokerMetadata: topics, subscription groups and offsets, independent of their form.

Source: RocketMQ ``TopicConfigManager``, ``SubscriptionGroupManager``, ``ConsumerOffsetManager``,
``DataVersion``.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.errors import StoreError

Json = dict[str, object]
Offsets = dict[str, dict[int, int]]
"""``topic@group`` → queue id → next offset. A queue without an entry has no committed offset."""
Changes = Mapping[str, Json | dict[int, int] | None]
"""Key → new row of one table: a topic, a group, or the offsets of ``topic@group``. ``None`` and an
empty row remove the key."""


class Form(StrEnum):
    """Format in which a broker keeps its metadata."""

    JSON = "json"
    """JSON files below ``config/``."""
    V1 = "v1"
    """Three RocksDB databases below ``config/`` (``storeType=defaultRocksDB``)."""
    SINGLE = "single"
    """One database, ``config/metadata`` (``useSingleRocksDBForAllConfigs``)."""
    V2 = "v2"
    """One database, ``config/rdb`` (``configManagerVersion=v2``)."""


class Table(StrEnum):
    """A table that has a ``DataVersion``."""

    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"


FIELDS_OF_TABLE = {
    Table.TOPICS: ("topics",),
    Table.GROUPS: ("groups", "forbidden"),
    Table.OFFSETS: ("offsets", "pull_offsets"),
}
"""Table → its fields in ``BrokerMetadata``."""


class Remark(StrEnum):
    """Note on how a form was read; its value is the code of a finding of ``meta --check``."""

    BACKUP_ALONE = "backup-alone"
    OLDER_BACKUP = "older-backup"
    PULL_OFFSETS = "pull-offsets-unread"
    PULLS_LEFT_OUT = "pull-offsets-left-out"


REMARKS = {
    Remark.BACKUP_ALONE: "these files are missing; their .bak is read instead, as by a broker",
    Remark.OLDER_BACKUP: "a broker cannot read these files and starts with their older .bak",
    Remark.PULLS_LEFT_OUT: (
        "pull offsets are left out: these groups continue from their committed offsets, and"
        " messages that POP delivered without an acknowledgement are delivered again"
    ),
    Remark.PULL_OFFSETS: "the pullOffsetTable of RocketMQ 5.5.0 is ignored, as by every broker",
}


class DataVersion(NamedTuple):
    """Change counter and time of a table; a broker uses the table with the higher counter."""

    state_version: int = 0
    timestamp: int = 0
    """Milliseconds since the epoch."""
    counter: int = 0

    @classmethod
    def of(cls, found: object) -> Self:
        """Return the version from its JSON value, which is of the kind ``VERSION``.

        Raises:
            ValueError: the version or its counter is null.
        """
        if not isinstance(found, dict):
            raise ValueError("dataVersion is null")  # noqa: TRY004 - the input is invalid, not the caller
        numbers = [found.get(name, 0) for name in ("stateVersion", "timestamp", "counter")]
        if None in numbers:
            raise ValueError("the counter of dataVersion is null")
        return cls(*numbers)

    def as_json(self) -> Json:
        """Return the version as a broker writes it."""
        state, timestamp, counter = self
        return {"counter": counter, "stateVersion": state, "timestamp": timestamp}


@dataclass(slots=True)
class BrokerMetadata:
    """The readable content of one form of a broker's metadata."""

    form: Form
    path: Path
    """The folder ``config``, or the folder of the database."""
    topics: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    forbidden: dict[str, dict[str, int]] = field(default_factory=dict)
    """Group → topic → bits of the denied permissions."""
    offsets: Offsets = field(default_factory=dict)
    pull_offsets: Offsets = field(default_factory=dict)
    delay_offsets: dict[int, int] = field(default_factory=dict)
    """Delay level → next offset of its queue; from a JSON file with every form."""
    versions: dict[Table, DataVersion] = field(default_factory=dict)
    faults: list[StoreError] = field(default_factory=list)
    """Errors about unreadable parts. A table with a fault is read from its ``.bak``, or empty."""
    remarks: dict[Remark, list[str]] = field(default_factory=dict)
    """Remark → the files that it is about."""

    def remark(self, kind: Remark, name: str) -> None:
        """Add the file ``name`` to a remark."""
        self.remarks.setdefault(kind, []).append(name)

    def raise_counters(self) -> None:
        """Make each counter at least 1: a broker loads files if its database has a lower one."""
        now = time.time_ns() // 1_000_000
        for table in Table:
            version = self.versions.get(table, DataVersion(timestamp=now))
            self.versions[table] = version._replace(counter=max(1, version.counter))

    def sentences(self) -> list[str]:
        """Return one sentence per remark."""
        return [f"{REMARKS[kind]}: {', '.join(names)}" for kind, names in self.remarks.items()]


def readings(key: str) -> Iterator[tuple[str, str]]:
    """Yield each possible topic and group of ``topic@group``: several if names contain @."""
    at = key.find(TOPIC_GROUP_SEPARATOR)
    while at >= 0:
        if 0 < at < len(key) - 1:
            yield key[:at], key[at + 1 :]
        at = key.find(TOPIC_GROUP_SEPARATOR, at + 1)
