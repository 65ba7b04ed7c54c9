"""A block of log bytes record by record, in Python: what the core's scan is compared with."""

import zlib
from collections.abc import Iterator

from cqstore.store.record.record_layout import (
    BLANK_SIZE,
    CRC_MASK,
    FIXED_V4,
    MAGIC_V1,
    MAX_QUEUE_OFFSET,
)
from cqstore.store.record.scan import Look, ScannedRecord, ScanRules, TopicCache, _check_one

_V6_BITS = 0x30
_MAX_PROPERTIES = 0x7FFF
_MAX_V1_TOPIC = 127


class OracleScan:
    """As ``scan_block``; what is not plain is asked of the same check."""

    def __init__(
        self, data: bytes, phy_offset: int, left: int, rules: ScanRules, topics: TopicCache
    ) -> None:
        self.behind = phy_offset
        self._records = _records(data, phy_offset, left, rules, topics)
        self._look: Look | None = None

    def refusing(self, look: Look) -> "OracleScan":
        self._look = look
        return self

    def __iter__(self) -> Iterator[ScannedRecord]:
        for record in self._records:
            if self._look and (b"\0" in record.properties or "\0" in record.topic):
                self._look(record)
            self.behind = record.phy_offset + record.size
            yield record


def _records(
    data: bytes, phy_offset: int, left: int, rules: ScanRules, topics: TopicCache
) -> Iterator[ScannedRecord]:
    position, available = 0, len(data)
    last_end = min(available, left - BLANK_SIZE)
    while position + FIXED_V4.size < available:
        (size, magic, body_crc, queue_id, _, queue_offset, phy, sys_flag, _, _, timestamp,
         _, _, _, body_size) = FIXED_V4.unpack_from(data, position)  # fmt: skip
        end = position + size
        body_at = position + FIXED_V4.size
        body_end = body_at + body_size
        if (
            magic == MAGIC_V1
            and not rules.property_crc
            and not sys_flag & _V6_BITS
            and body_at <= body_end < end - 2
            and end <= last_end
            and data[body_end] <= _MAX_V1_TOPIC
            and (topic_end := body_end + 1 + data[body_end]) < end - 1
            and end - topic_end - 2 == (data[topic_end] << 8) | data[topic_end + 1]
            and end - topic_end - 2 <= _MAX_PROPERTIES
            and phy == phy_offset + position
            and 0 <= queue_offset < MAX_QUEUE_OFFSET
            and (
                topic := topics.get(name := data[body_end + 1 : topic_end])
                or topics.learn_name(name)
            )
            and (
                not rules.check_crc
                or not body_size
                or zlib.crc32(data[body_at:body_end]) & CRC_MASK == body_crc
            )
        ):
            yield ScannedRecord(
                phy, size, topic, queue_id, queue_offset, sys_flag, timestamp,
                data[topic_end + 2 : end],
            )  # fmt: skip
        else:
            record = _check_one(data, position, left - position, phy_offset + position, rules)
            if record is None:
                return
            yield record
            end = position + record.size
        position = end
