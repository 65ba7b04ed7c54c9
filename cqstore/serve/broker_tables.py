"""BrokerTables: topics and groups of the served store, as a broker would have them.

Rows come from the store's own tables, whatever their form. A topic that has queues and no row gets
one from its queues: a store without tables can be read, too.

Source: RocketMQ ``TopicConfigManager``, ``SubscriptionGroupManager``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Json, Offsets, Table
from cqstore.store.queue.light_home import is_light
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.made_topics import TopicQueues, topic_row

READABLE, WRITABLE = 4, 2
"""Bits of ``perm``."""
_DEFAULT_QUEUES = 16
_DEFAULT_PERM = 6


class TopicInfo(NamedTuple):
    """The part of a topic's row that requests use."""

    row: Json
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int

    @property
    def is_readable(self) -> bool:
        """Return whether clients may pull from the topic."""
        return bool(self.perm & READABLE)

    @property
    def is_writable(self) -> bool:
        """Return whether producers may send to the topic."""
        return bool(self.perm & WRITABLE)


@dataclass(slots=True)
class BrokerTables:
    """Topics and groups at one moment. Any thread; topics without a row are read from queues."""

    topics: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    forbidden: dict[str, dict[str, int]] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    versions: dict[Table, DataVersion] = field(default_factory=dict)
    _known: dict[str, TopicInfo] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: BrokerMetadata | None) -> "BrokerTables":
        """Return the tables in ``metadata``; ``None``: the store has none."""
        if metadata is None:
            return cls()
        return cls(
            metadata.topics,
            metadata.groups,
            metadata.forbidden,
            metadata.offsets,
            metadata.versions,
        )

    def without_known(self) -> "BrokerTables":
        """Return the same tables for a store that was opened again, and may have new queues."""
        return BrokerTables(self.topics, self.groups, self.forbidden, self.offsets, self.versions)

    def with_topic(self, topic: str, row: Json) -> "BrokerTables":
        """Return the same tables, and one topic more."""
        topics = {**self.topics, topic: row}
        return BrokerTables(topics, self.groups, self.forbidden, self.offsets, self.versions)

    def topic(self, store: MessageStore, topic: str) -> TopicInfo | None:
        """Return a topic; ``None``: it has neither a row nor a queue."""
        found = self._known.get(topic)
        if found is None:
            row = self.topics.get(topic) or _row_from_queues(store, topic)
            if row is None:
                return None
            found = self._known[topic] = topic_info(row)
        return found

    def topic_names(self, store: MessageStore) -> list[str]:
        """Return the names of all topics, light queues without a row excepted."""
        queues = (each for each in store.topics() if not is_light(each))
        return sorted({*self.topics, *queues})

    def version(self, table: Table) -> Json:
        """Return the version of a table as JSON."""
        return self.versions.get(table, DataVersion()).as_json()


ReadMetadata = Callable[[], BrokerMetadata | None]


def _row_from_queues(store: MessageStore, topic: str) -> Json | None:
    found = [span.queue.queue_id for span in store.queue_spans(topic)]
    return topic_row(topic, TopicQueues(queues=max(found) + 1)) if found else None


def topic_info(row: Json) -> TopicInfo:
    """Return the topic of a row, with RocketMQ's defaults for what the row lacks."""
    return TopicInfo(
        row,
        row_number(row, "readQueueNums", _DEFAULT_QUEUES),
        row_number(row, "writeQueueNums", _DEFAULT_QUEUES),
        row_number(row, "perm", _DEFAULT_PERM),
        row_number(row, "topicSysFlag", 0),
    )


def row_number(row: Json, name: str, default: int) -> int:
    """Return a number in a row; a value that is not an integer is the default."""
    found = row.get(name, default)
    return found if type(found) is int else default
