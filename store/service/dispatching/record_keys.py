"""RecordKeys: the index keys of a record of the log.

Source: RocketMQ ``CommitLogDispatcherBuildIndex``, ``IndexService.buildIndex``.
"""

from cqstore.store.index.index_batch import TAGS_PREFIX, IndexBatch
from cqstore.store.record.message import TRANSACTION_MASK, SysFlag
from cqstore.store.record.properties import DispatchProperties
from cqstore.store.record.scan import ScannedRecord


class RecordKeys:
    """Derives keys under one configuration. Any thread may use it."""

    def __init__(self, *, wanted: bool, tags: bool) -> None:
        """``wanted``: there is an index; ``tags``: also index the complete tags."""
        self.wanted = wanted
        self.tags = wanted and tags

    def add_scanned(
        self, keys: IndexBatch, record: ScannedRecord, properties: DispatchProperties
    ) -> None:
        """Add the keys of a record with offsets; ``properties`` are those of the record."""
        timestamp = record.store_timestamp
        self.add(keys, record.topic, record.sys_flag, properties, record.phy_offset, timestamp)

    def add(
        self,
        keys: IndexBatch,
        topic: str,
        sys_flag: int,
        properties: DispatchProperties,
        phy_offset: int,
        timestamp: int,
    ) -> None:
        """Add the keys of one record to ``keys``; a ROLLBACK has none."""
        if sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
            return
        tags = properties.tags if self.tags else None
        if not properties.only_tags:
            uniq_key, words = properties.uniq_key, properties.keys
            keys.add_record(topic, uniq_key, words, tags, phy_offset, timestamp)
        elif tags:
            keys.add(topic, TAGS_PREFIX + tags, phy_offset, timestamp)
