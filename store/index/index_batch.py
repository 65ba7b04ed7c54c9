"""IndexBatch: keys on their way into the index, as columns, in log order."""

from array import array
from collections.abc import Iterator, Sequence

TAGS_PREFIX = "T#"
"""Stands before the whole TAGS text where a record is indexed by it (RocketMQ 5.5).

Source: RocketMQ ``MessageConst.INDEX_TAG_TYPE``, ``IndexService.buildKey``.
"""


class IndexBatch:
    """Keys of records as columns; row *i* is one key of the record at ``phy_offsets[i]``.

    Rows stand in log order, those of one record in the order in which they are indexed. One thread
    adds; others may ``find`` meanwhile: ``keys`` grows last, and readers go by it. They ask for
    numbers one by one: an array of which somebody has a view cannot grow.
    """

    __slots__ = ("keys", "phy_offsets", "store_timestamps", "topics")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.phy_offsets = array("q")
        self.store_timestamps = array("q")
        self.keys: list[str] = []

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, topic: str, key: str, phy_offset: int, store_timestamp: int) -> None:
        """Append one key."""
        self.topics.append(topic)
        self.phy_offsets.append(phy_offset)
        self.store_timestamps.append(store_timestamp)
        self.keys.append(key)

    def add_record(
        self,
        topic: str,
        uniq_key: str | None,
        keys: str | None,
        tags: str | None,
        phy_offset: int,
        store_timestamp: int,
    ) -> None:
        """Append a record's keys: the unique key, each word of ``keys``, its whole tags.

        Source: RocketMQ ``IndexService.buildIndex``.
        """
        if uniq_key:
            self.add(topic, uniq_key, phy_offset, store_timestamp)
        if keys:
            for key in keys.split(" "):
                if key:
                    self.add(topic, key, phy_offset, store_timestamp)
        if tags:
            self.add(topic, TAGS_PREFIX + tags, phy_offset, store_timestamp)

    def add_tags(
        self,
        topics: Sequence[str],
        tags: Sequence[str | None],
        phy_offsets: Sequence[int],
        store_timestamps: Sequence[int],
    ) -> None:
        """Append the tags of records that have no other key, a row of the columns each."""
        if not all(tags):
            tagged = [at for at, text in enumerate(tags) if text]
            topics, tags = [topics[at] for at in tagged], [tags[at] for at in tagged]
            phy_offsets = [phy_offsets[at] for at in tagged]
            store_timestamps = [store_timestamps[at] for at in tagged]
        self.topics.extend(topics)
        self.phy_offsets.extend(phy_offsets)
        self.store_timestamps.extend(store_timestamps)
        self.keys.extend([f"{TAGS_PREFIX}{text}" for text in tags])

    def extend(self, other: "IndexBatch", start: int, end: int) -> None:
        """Append rows ``start:end`` of ``other``."""
        self.topics += other.topics[start:end]
        self.phy_offsets += other.phy_offsets[start:end]
        self.store_timestamps += other.store_timestamps[start:end]
        self.keys += other.keys[start:end]

    def rows(self, start: int, end: int) -> Iterator[tuple[str, str, int, int]]:
        """Yield topic, key, phy offset and store timestamp of rows ``start:end``."""
        span = slice(start, end)
        yield from zip(
            self.topics[span], self.keys[span], self.phy_offsets[span],
            self.store_timestamps[span], strict=True,
        )  # fmt: skip

    def find(self, topic: str, key: str) -> list[int]:
        """Return the rows of one key, newest first."""
        keys, topics, rows, at = self.keys, self.topics, list[int](), 0
        for _ in range(keys.count(key)):
            at = keys.index(key, at) + 1
            if topics[at - 1] == topic:
                rows.append(at - 1)
        return rows[::-1]
