"""Iteration over the records of a block of log bytes.

Compiled code reads sound records. All others go to ``check_record``, which finds their fault.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from cqstore.store.record import _scan
from cqstore.store.record.bounded_cache import BoundedCache
from cqstore.store.record.decoder import check_record, record_span
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET


class ScannedRecord(NamedTuple):
    """The fields of a record that dispatch needs, and no others."""

    phy_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


class ScanRules(NamedTuple):
    """Which checks a scan does."""

    check_crc: bool = True
    property_crc: bool = False
    """Check the CRC property instead of the body's CRC (``forceVerifyPropCRC``)."""


class TopicCache(BoundedCache[bytes, str]):
    """UTF-8 of topics → their names: the cache of a scan."""

    def __init__(self) -> None:
        super().__init__(16 << 20)

    def learn_name(self, name: bytes) -> str | None:
        """Return the topic and cache it; ``None`` if it is empty or not valid UTF-8."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return None
        return self.learn(name, topic, 2 * len(name)) or None


Look = Callable[[ScannedRecord], object]
"""Raises an error if a record is invalid."""


class RecordScan(Protocol):
    """The records of a block; can be iterated once."""

    behind: int
    """Phy offset after the record that was yielded last; before the first: start of the block."""

    def __iter__(self) -> Iterator[ScannedRecord]:
        """Yield the records in the order of the log."""

    def refusing(self, look: "Look") -> "RecordScan":
        """Call ``look`` with each record with a zero in topic or properties before it is yielded.

        Returns the block itself.
        """


def scan_block(
    data: bytes, phy_offset: int, left: int, rules: ScanRules, topics: "TopicCache"
) -> RecordScan:
    """Scan the records that lie wholly in ``data``, which starts at ``phy_offset``.

    ``left`` is how many bytes the file has from there. Stops without an error at a blank record
    and before a record that is cut off by the end of ``data`` but not of the file.

    Raises:
        CorruptionError: no valid record at the place it names.
    """
    scan: RecordScan = _scan.BlockScan(
        ScannedRecord, data, phy_offset, left, rules, topics, _check_one, MAX_QUEUE_OFFSET,
    )  # fmt: skip
    return scan


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
