"""Orphans: rows of topics missing in the broker's metadata, for example after a deletion.

A broker with RocksDB queues deletes them: ten minutes after its start, then every
``cleanRocksDBDirtyCQIntervalMin`` minutes. Its own topics and light queues are exempt.

Source: RocketMQ ``RocksDBConsumeQueueStore.cleanDirty``,
``RocksDBConsumeQueueOffsetTable.iterateOffsetTable2FindDirty``.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from cqstore.store.record.topic_names import is_exempt


@dataclass(slots=True)
class Orphan:
    """Queues and units of a topic that is missing in the broker's metadata."""

    queue_ids: set[int] = field(default_factory=set)
    units: int = 0
    expired_units: int = 0
    """Number of these units below the log's minimum."""


class Orphans:
    """Collects the topics that are not in ``known``."""

    def __init__(self, known: Collection[str]) -> None:
        """``known``: all topics of the broker's metadata."""
        self._known = known
        self.found: dict[str, Orphan] = {}

    def of(self, topic: str, queue_id: int) -> Orphan | None:
        """Return the counters for a queue's topic; ``None``: the topic is known or exempt."""
        if topic in self._known or is_exempt(topic):
            return None
        orphan = self.found.setdefault(topic, Orphan())
        orphan.queue_ids.add(queue_id)
        return orphan
