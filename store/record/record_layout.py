"""The commit log record: its fixed parts, each declared once, and their order.

A record is HEAD, born host, store timestamp, store host, TAIL, body, topic length, topic,
properties length, properties. A host has 8 bytes, or 20 if its bit in ``sys_flag`` is set (IPv6).
The topic length has one byte (V1) or two (V2).

Source: RocketMQ ``MessageExtEncoder``, ``MessageDecoder``, ``CommitLog.checkMessageAndReturnSize``.
"""

from struct import Struct
from typing import Annotated, NamedTuple

from cqstore.store.record.layout import Layout, Wire
from cqstore.store.record.message import SysFlag

MAGIC_V1 = -626843481
"""0xDAA320A7"""
MAGIC_V2 = -626843477
"""0xDAA320AB: the topic length has two bytes"""
MAGIC_BLANK = -875286124
"""0xCBD43194: no record follows in this file"""
BLANK_SIZE = 4 + 4
"""Bytes of a blank record, and the space that every record must leave free after it in its file."""
MAX_QUEUE_OFFSET = 1 << 58
"""Limit of queue offsets, so that 20 bytes per unit, plus one file, fit Java's ``long``."""
CRC_MASK = 0x7FFFFFFF
"""Checksums are stored without their sign bit."""


class RecordHead(NamedTuple):
    """The first fixed part of a record."""

    total_size: Annotated[int, Wire("i", "whole record, bytes")]
    magic_code: Annotated[int, Wire("i", "0xDAA320A7 (V1), 0xDAA320AB (V2)")]
    body_crc: Annotated[int, Wire("i", "`crc` of the stored body")]
    queue_id: Annotated[int, Wire("i", "queue of the topic")]
    flag: Annotated[int, Wire("i", "application-defined")]
    queue_offset: Annotated[int, Wire("q", "units from the start of the queue; 0 if not queued")]
    phy_offset: Annotated[int, Wire("q", "start of this record")]
    sys_flag: Annotated[int, Wire("i", "compression, transaction, host and batch bits")]
    born_timestamp: Annotated[int, Wire("q", "producer's time, ms since the epoch")]


class RecordStored(NamedTuple):
    """The fixed part between the two hosts."""

    store_timestamp: Annotated[int, Wire("q", "store time, ms since the epoch")]


class RecordTail(NamedTuple):
    """The fixed part between the store host and the body."""

    reconsume_times: Annotated[int, Wire("i", "number of redeliveries")]
    prepared_transaction_offset: Annotated[int, Wire("q", "phy offset of its half message")]
    body_size: Annotated[int, Wire("i", "bytes of the body that follows")]


class BlankRecord(NamedTuple):
    """The end of a file: no record follows in it."""

    total_size: Annotated[int, Wire("i", "bytes from here to the end of the file")]
    magic_code: Annotated[int, Wire("i", "0xCBD43194")]


HEAD = Layout(RecordHead)
STORED = Layout(RecordStored)
TAIL = Layout(RecordTail)
BLANK = Layout(BlankRecord)
HOST_V4_SIZE = 4 + 4
HOST_V6_SIZE = 16 + 4
QUEUE_OFFSET_POSITION = HEAD.offset("queue_offset")

FIXED_V4 = Struct(
    ">"
    + "".join(
        layout.struct.format.lstrip(">") + host
        for layout, host in ((HEAD, "8s"), (STORED, "8s"), (TAIL, ""))
    )
)
"""All fixed parts of a record with two IPv4 hosts, as nearly all records have: 88 bytes."""

PLACE = Struct(f">ii{HEAD.offset('phy_offset') - 8}xqi")
"""Total size, magic, phy offset and sys flag of a head, to check that a record is in place."""

MIN_RECORD_SIZE = FIXED_V4.size + 1 + 2


def born_host_size(sys_flag: int) -> int:
    """Return the size of the born host in bytes."""
    return HOST_V6_SIZE if sys_flag & SysFlag.BORN_HOST_V6 else HOST_V4_SIZE


def store_host_size(sys_flag: int) -> int:
    """Return the size of the store host in bytes."""
    return HOST_V6_SIZE if sys_flag & SysFlag.STORE_HOST_V6 else HOST_V4_SIZE


def store_timestamp_position(sys_flag: int) -> int:
    """Return the position of the store timestamp, in bytes from the start of the record."""
    return HEAD.size + born_host_size(sys_flag)


def body_position(sys_flag: int) -> int:
    """Return the position of the body, in bytes from the start of the record."""
    return store_timestamp_position(sys_flag) + STORED.size + store_host_size(sys_flag) + TAIL.size
