"""Walk over the records of a block of log bytes, as fast as Python goes.

The fast path takes records with IPv4 hosts and a one-byte topic length, which nearly all are;
whatever else it meets goes to ``check_record``, which also names the fault of a bad one.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from store.core import SLOW_PATH_ONLY
from store.record import _scan
from store.record.bounded_cache import BoundedCache
from store.record.decoder import check_record, record_span
from store.record.record_layout import (
    BLANK_SIZE,
    CRC_MASK,
    FIXED_V4,
    MAGIC_V1,
    MAX_QUEUE_OFFSET,
)


class ScannedRecord(NamedTuple):
    """What a scan reads of a record: enough to dispatch it, no more."""

    phy_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


class ScanRules(NamedTuple):
    """How far a scan checks."""

    check_crc: bool = True
    property_crc: bool = False
    """Check the CRC property instead of the body's CRC (``forceVerifyPropCRC``)."""


_V6_BITS = 0x30
_MAX_PROPERTIES = 0x7FFF
_MAX_V1_TOPIC = 127
_unpack = FIXED_V4.unpack_from
_fixed = FIXED_V4.size
_new = tuple.__new__


class TopicCache(BoundedCache[bytes, str]):
    """UTF-8 of topics → their names: the memory of those who scan."""

    def __init__(self) -> None:
        super().__init__(16 << 20)

    def learn_name(self, name: bytes) -> str | None:
        """Return the topic, remembered from now on; ``None`` if it is empty or no UTF-8."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return None
        return self.learn(name, topic, 2 * len(name)) or None


Look = Callable[[ScannedRecord], object]
"""Raises what is wrong with a record."""


class Scan(Protocol):
    """The records of a block, once."""

    behind: int
    """Phy offset behind the last record that was yielded, of the block before the first."""

    def __iter__(self) -> Iterator[ScannedRecord]:
        """Yield them."""

    def refusing(self, look: "Look") -> "Scan":
        """Let ``look`` see each record with a zero in topic or properties before it is yielded.

        Returns the block itself.
        """


def scan_block(
    data: bytes, phy_offset: int, left: int, rules: ScanRules, topics: "TopicCache"
) -> Scan:
    """Scan the records that lie wholly in ``data``, which starts at ``phy_offset``.

    ``left`` is how many bytes the file has from there. Stops without an error at a blank record
    and before a record that is cut off by the end of ``data`` but not of the file.

    Raises:
        CorruptionError: no valid record at the place it names.
    """
    if SLOW_PATH_ONLY:
        return _Scan(data, phy_offset, left, rules, topics)
    scan: Scan = _scan.BlockScan(
        ScannedRecord, data, phy_offset, left, rules, topics, _check_one,
        MAX_QUEUE_OFFSET, MAGIC_V1,
    )  # fmt: skip
    return scan


class _Scan:
    """What the core does, or asks for where it has to."""

    def __init__(
        self, data: bytes, phy_offset: int, left: int, rules: ScanRules, topics: TopicCache
    ) -> None:
        self.behind = phy_offset
        self._records = _records(data, phy_offset, left, rules, topics)
        self._look: Look | None = None

    def refusing(self, look: Look) -> "_Scan":
        self._look = look
        return self

    def __iter__(self) -> Iterator[ScannedRecord]:
        for record in self._records:
            if self._look and (b"\0" in record.properties or "\0" in record.topic):
                self._look(record)
            self.behind = record.phy_offset + record.size
            yield record


def _records(
    data: bytes, phy_offset: int, left: int, rules: ScanRules, topics: "TopicCache"
) -> Iterator[ScannedRecord]:
    position, available = 0, len(data)
    last_end = min(available, left - BLANK_SIZE)
    check_crc, fast = rules.check_crc, not rules.property_crc
    crc32, learn = zlib.crc32, topics.learn_name
    while position + _fixed < available:
        (size, magic, body_crc, queue_id, _, queue_offset, phy, sys_flag, _, _, timestamp,
         _, _, _, body_size) = _unpack(data, position)  # fmt: skip
        end = position + size
        body_at = position + _fixed
        body_end = body_at + body_size
        if (
            magic == MAGIC_V1
            and fast
            and not sys_flag & _V6_BITS
            and body_at <= body_end < end - 2
            and end <= last_end
            and data[body_end] <= _MAX_V1_TOPIC
            and (topic_end := body_end + 1 + data[body_end]) < end - 1
            and end - topic_end - 2 == (data[topic_end] << 8) | data[topic_end + 1]
            and end - topic_end - 2 <= _MAX_PROPERTIES
            and phy == phy_offset + position
            and 0 <= queue_offset < MAX_QUEUE_OFFSET
            and (topic := topics.get(name := data[body_end + 1 : topic_end]) or learn(name))
            and (
                not check_crc
                or not body_size
                or crc32(data[body_at:body_end]) & CRC_MASK == body_crc
            )
        ):
            yield _new(
                ScannedRecord,
                (phy, size, topic, queue_id, queue_offset, sys_flag, timestamp,
                 data[topic_end + 2 : end]),
            )  # fmt: skip
        else:
            record = _check_one(data, position, left - position, phy_offset + position, rules)
            if record is None:
                return
            yield record
            end = position + record.size
        position = end


def _check_one(
    data: bytes, position: int, left: int, phy_offset: int, rules: ScanRules
) -> ScannedRecord | None:
    """Check the record at ``position`` at length; ``None`` for a blank one or one cut off."""
    size = record_span(data, position, left, phy_offset)
    if size == 0 or position + size > len(data):
        return None
    message = check_record(
        data[position : position + size],
        phy_offset,
        check_crc=rules.check_crc,
        property_crc=rules.property_crc,
    )
    return ScannedRecord(
        phy_offset,
        size,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.sys_flag,
        message.store_timestamp,
        message.properties_bytes,
    )
