"""Why a record is invalid: the slow path of ``StoredMessage``, with its error messages.

Source: RocketMQ ``MessageDecoder.decode``.
"""

import zlib
from typing import NoReturn

from cqstore.store.errors import (
    ChecksumError,
    CorruptionError,
    MagicCodeError,
    TruncatedRecordError,
)
from cqstore.store.record.layout import Buffer
from cqstore.store.record.properties import CRC_PROPERTY_SIZE, crc_property
from cqstore.store.record.record_layout import (
    CRC_MASK,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    TAIL,
    RecordHead,
    body_position,
    store_timestamp_position,
)

MAGICS = {MAGIC_V1, MAGIC_V2}


def refuse_record(record: Buffer, phy_offset: int | None = None) -> NoReturn:
    """Raise the error for bytes that ``StoredMessage`` does not accept as a record.

    Raises:
        CorruptionError: lengths and size are inconsistent, or the magic code is invalid.
    """
    check_lengths(record, phy_offset)
    raise RuntimeError("the fast path and the slow path read a record differently")


def check_lengths(record: Buffer, phy_offset: int | None) -> None:
    """Check head and lengths of the record that fills ``record``, found at ``phy_offset``.

    Raises:
        CorruptionError: lengths and size are inconsistent, or the magic code is invalid.
    """
    head, size = _checked_head(record, phy_offset), len(record)
    where = head.phy_offset if phy_offset is None else phy_offset
    body_at = body_position(head.sys_flag)
    if body_at > size:
        raise TruncatedRecordError(
            "the record ends inside its fixed fields", phy_offset=where,
            expected=f"{body_at} bytes", got=f"{size} bytes",
        )  # fmt: skip
    body_size = TAIL.unpack_from(record, body_at - TAIL.size).body_size
    at, width = body_at + body_size, 2 if head.magic_code == MAGIC_V2 else 1
    if body_size < 0 or at + width > size:
        raise _length_error("body", body_size, where)
    topic_size = int.from_bytes(record[at : at + width], "big", signed=True)
    at += width + topic_size
    if topic_size < 0 or at + 2 > size:
        raise _length_error("topic", topic_size, where)
    properties_size = int.from_bytes(record[at : at + 2], "big", signed=True)
    at += 2 + properties_size
    if properties_size < 0 or at != size:
        raise CorruptionError(
            "the lengths inside the record do not add up to its size", phy_offset=where,
            expected=f"{size} bytes", got=f"{at} bytes",
        )  # fmt: skip


def _checked_head(record: Buffer, phy_offset: int | None) -> RecordHead:
    """Return the head of a record.

    Raises:
        CorruptionError: the head is inconsistent with itself or with the record's size.
    """
    if len(record) < MIN_RECORD_SIZE:
        raise TruncatedRecordError(
            "the record is too short", phy_offset=phy_offset,
            expected=f"at least {MIN_RECORD_SIZE} bytes", got=f"{len(record)} bytes",
        )  # fmt: skip
    head = HEAD.unpack_from(record)
    where = head.phy_offset if phy_offset is None else phy_offset
    if head.magic_code not in MAGICS:
        raise magic_error(head.magic_code, where)
    if head.total_size != len(record):
        raise TruncatedRecordError(
            "the record has another size than its header states", phy_offset=where,
            expected=f"{head.total_size} bytes", got=f"{len(record)} bytes",
        )  # fmt: skip
    if store_timestamp_position(head.sys_flag) > len(record):
        raise TruncatedRecordError("the record ends inside its born host", phy_offset=where)
    return head


def magic_error(magic_code: int, phy_offset: int) -> MagicCodeError:
    """Return the error for bytes that do not begin with the magic code of a record."""
    return MagicCodeError(
        "no record starts here", phy_offset=phy_offset,
        expected="magic 0xdaa320a7 or 0xdaa320ab", got=f"{magic_code & 0xFFFFFFFF:#010x}",
    )  # fmt: skip


def _length_error(what: str, size: int, where: int) -> TruncatedRecordError:
    return TruncatedRecordError(
        f"the {what} runs past the end of the record", phy_offset=where, got=f"{size} bytes"
    )


def decode_topic(topic: bytes, phy_offset: int) -> str:
    """Return the topic of the record at ``phy_offset``.

    Raises:
        CorruptionError: the topic is not valid UTF-8.
    """
    try:
        return topic.decode()
    except UnicodeDecodeError as exc:
        raise CorruptionError("the topic is not UTF-8", phy_offset=phy_offset) from exc


def check_body_crc(body: Buffer, expected: int, phy_offset: int) -> None:
    """Check the CRC of a stored body.

    Raises:
        ChecksumError: the CRC differs.
    """
    crc = zlib.crc32(body) & CRC_MASK
    if crc != expected:
        raise ChecksumError(
            "the body's CRC does not match", phy_offset=phy_offset, expected=f"{expected:#010x}",
            got=f"{crc:#010x}",
        )  # fmt: skip


def check_property_crc(record: Buffer, phy_offset: int) -> None:
    """Check the CRC over the whole record that ``enabledAppendPropCRC`` appends.

    Raises:
        ChecksumError: the CRC is missing or differs.
    """
    covered = len(record) - CRC_PROPERTY_SIZE
    crc = zlib.crc32(record[:covered]) & CRC_MASK
    expected, found = crc_property(crc), bytes(record[covered:])
    if found != expected:
        raise ChecksumError(
            "the record's CRC property does not match", phy_offset=phy_offset, expected=expected,
            got=found,
        )  # fmt: skip
