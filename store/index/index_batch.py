"""IndexBatch: keys that are being added to the index, in log order."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cqstore.store.index import _batch

TAGS_PREFIX = "T#"
"""Prefix of the complete TAGS text, if records are indexed by it (RocketMQ 5.5).

Source: RocketMQ ``MessageConst.INDEX_TAG_TYPE``, ``IndexService.buildKey``.
"""
KEY_ROW = np.dtype([
    ("phy_offset", np.int64), ("store_timestamp", np.int64), ("name_end", np.int64),
    ("key_hash", np.int32), ("topic_size", np.int32),
])  # fmt: skip
"""A row of ``entries``."""


class IndexBatch(_batch.KeyColumns):
    """Keys of records as rows; row *i* is one key of the record at ``phy_offset(i)``.

    Rows are in log order, rows of one record in the order in which they are indexed. One thread
    adds; other threads may call ``find`` concurrently. Each row has the hash of its key, see
    ``key_hash``.
    """

    __slots__ = ()

    def add_record(
        self,
        topic: str,
        uniq_key: str | None,
        keys: str | None,
        tags: str | None,
        phy_offset: int,
        store_timestamp: int,
    ) -> None:
        """Append a record's keys: the unique key, each word of ``keys``, the complete tags.

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

    def rows(self, start: int, end: int) -> Iterator[tuple[str, str, int, int]]:
        """Yield topic, key, phy offset and store timestamp of rows ``start:end``."""
        for row in range(start, end):
            yield *self.name(row), self.phy_offset(row), self.store_timestamp(row)

    def columns(self) -> NDArray[np.void]:
        """Return the current entries as rows with named fields, without a copy."""
        return np.frombuffer(memoryview(self.entries), KEY_ROW)
