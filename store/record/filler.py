"""Fillers: records that replace damaged ones that cannot be recovered.

A filler is a valid record of the same size as the damaged one. It keeps the queue offset, so that a
rebuild finds no gap in the queue. A bit of ``sys_flag`` that only cqstore uses makes readers skip
it; its body explains the filler to readers that do not support the bit.
"""

import zlib
from typing import NamedTuple

from cqstore.store.errors import CorruptionError
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import SysFlag
from cqstore.store.record.properties import CRC_PROPERTY_SIZE, crc_property
from cqstore.store.record.record_layout import (
    CRC_MASK,
    HEAD,
    HOST_V4_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    STORED,
    TAIL,
    RecordHead,
    RecordStored,
    RecordTail,
)

UNKNOWN_TOPIC = "CQSTORE"
"""Topic of a filler whose queue is unknown; the filler is in no queue."""
_BODY = b"This message was damaged and given up. cqstore kept its bytes in cqstore/cut. "
_MAX_V1 = 127
_CRC_PROPERTY = crc_property(0)[:-11]
"""Name of the property, without its ten digits and the terminator."""
_BODY_FLAGS = int(
    SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
)
"""Flags that describe the encoding of a body."""


class RecordPlace(NamedTuple):
    """The queue and queue offset of a record."""

    topic: str
    queue_id: int
    queue_offset: int


def readable(record: bytes, phy_offset: int) -> StoredMessage | None:
    """Return a damaged record with valid lengths; its size and phy offset are corrected."""
    if len(record) < MIN_RECORD_SIZE:
        return None
    for magic in (MAGIC_V1, MAGIC_V2):
        head = HEAD.unpack_from(record)._replace(
            total_size=len(record), magic_code=magic, phy_offset=phy_offset
        )
        try:
            message = StoredMessage(HEAD.pack(head) + record[HEAD.size :], phy_offset)
            _ = message.topic, message.properties
        except CorruptionError:
            continue
        return message
    return None


def filler(
    size: int,
    phy_offset: int,
    place: RecordPlace | None,
    like: StoredMessage | None,
    store_timestamp: int,
    properties: bytes = b"",
) -> bytes:
    """Return the filler of ``size`` bytes for ``phy_offset``.

    ``place`` is ``None`` if the filler must not be in a queue. All that can be read of the damaged
    record, ``like``, is kept except for the body; without ``like``, ``store_timestamp`` and
    ``properties`` are used. A CRC property at the end of the properties is filled in.

    Raises:
        CorruptionError: ``size`` is smaller than any record.
    """
    topic = (place.topic if place else UNKNOWN_TOPIC).encode()
    if like is not None and (place is None or like.topic != place.topic):
        like = None
    wide = len(topic) > _MAX_V1 if like is None else like.head.magic_code == MAGIC_V2
    head = HEAD.unpack_from(bytes(HEAD.size)) if like is None else like.head
    hosts = bytes(HOST_V4_SIZE), bytes(HOST_V4_SIZE)
    tail = RecordTail(0, 0, 0)
    if like is not None:
        hosts, tail = (like.born_host.wire, like.store_host.wire), like.tail
        properties, store_timestamp = like.properties_bytes, like.store_timestamp
    fixed = HEAD.size + sum(map(len, hosts)) + STORED.size + TAIL.size
    room = size - fixed - (2 if wide else 1) - len(topic) - 2 - len(properties)
    if room < 0:
        raise CorruptionError(
            "cannot replace the damaged record: its space is too small", phy_offset=phy_offset,
            expected=f"at least {size - room} bytes", got=f"{size} bytes",
        )  # fmt: skip
    body = (_BODY * (room // len(_BODY) + 1))[:room]
    head = _head(head, size, phy_offset, place, body, wide=wide)
    record = b"".join((
        HEAD.pack(head), hosts[0], STORED.pack(RecordStored(store_timestamp)), hosts[1],
        TAIL.pack(tail._replace(body_size=room)), body,
        len(topic).to_bytes(2 if wide else 1, "big"), topic,
        len(properties).to_bytes(2, "big"), properties,
    ))  # fmt: skip
    if properties[-CRC_PROPERTY_SIZE:].startswith(_CRC_PROPERTY):
        crc = zlib.crc32(record[:-CRC_PROPERTY_SIZE]) & CRC_MASK  # all but the property itself
        record = record[:-CRC_PROPERTY_SIZE] + crc_property(crc)
    return record


def _head(
    like: RecordHead,
    size: int,
    phy_offset: int,
    place: RecordPlace | None,
    body: bytes,
    *,
    wide: bool,
) -> RecordHead:
    """Return the head of a record that replaces a damaged one with the head ``like``.

    ``place`` is its queue and queue offset; ``None``: it is in no queue.
    """
    sys_flag = like.sys_flag & ~_BODY_FLAGS | SysFlag.PASSED_OVER
    if place is None:
        sys_flag |= SysFlag.TRANSACTION_ROLLBACK  # such records are in no queue
    return like._replace(
        total_size=size, magic_code=MAGIC_V2 if wide else MAGIC_V1, phy_offset=phy_offset,
        body_crc=zlib.crc32(body) & CRC_MASK, sys_flag=sys_flag,
        queue_id=place.queue_id if place else 0, queue_offset=place.queue_offset if place else 0,
    )  # fmt: skip
