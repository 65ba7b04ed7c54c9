"""Decoding bytes into a StoredMessage, lazily, and checking one record.

Nothing from disk is trusted: for any bytes, the result is a message or a ``CorruptionError`` with
the phy offset.

Source: RocketMQ ``MessageDecoder.decode``, ``CommitLog.checkMessageAndReturnSize``.
"""

from struct import Struct

from cqstore.store.errors import CorruptionError, TruncatedRecordError
from cqstore.store.record._stored import StoredMessage
from cqstore.store.record.invalid_record import MAGICS, magic_error
from cqstore.store.record.layout import Buffer
from cqstore.store.record.record_layout import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAX_QUEUE_OFFSET,
    MIN_RECORD_SIZE,
)

__all__ = ["StoredMessage", "check_record", "record_span", "refuse_filler"]
_START = Struct(">ii")


def record_span(data: Buffer, position: int, left: int, phy_offset: int) -> int:
    """Return the size of the record at ``position`` of ``data``, or 0 for a blank record.

    ``left`` is the number of bytes from there to the end of the file; ``data`` must hold 8 of them.

    Raises:
        MagicCodeError: no record starts here (the normal end of a log).
        TruncatedRecordError: the record's size exceeds the rest of the file.
        CorruptionError: a blank record does not extend to the end of the file.
    """
    total_size, magic_code = _START.unpack_from(data, position)
    if magic_code == MAGIC_BLANK:
        if total_size != left:
            raise CorruptionError(
                "the blank record does not extend to the end of its file", phy_offset=phy_offset,
                expected=f"{left} bytes", got=f"{total_size} bytes",
            )  # fmt: skip
        return 0
    if magic_code not in MAGICS:
        raise magic_error(magic_code, phy_offset)
    if total_size < MIN_RECORD_SIZE or total_size + BLANK_SIZE > left:
        raise TruncatedRecordError(
            "invalid record size", phy_offset=phy_offset,
            expected=f"{MIN_RECORD_SIZE} to {left - BLANK_SIZE} bytes", got=f"{total_size} bytes",
        )  # fmt: skip
    return int(total_size)


def refuse_filler(message: StoredMessage) -> None:
    """Refuse a message whose record is a filler in place of a damaged record.

    Raises:
        CorruptionError: the record is a filler.
    """
    if message.is_passed_over:
        raise CorruptionError(
            "the message was damaged and has been skipped; its bytes are kept in cqstore/cut",
            phy_offset=message.phy_offset,
        )


def check_record(
    record: Buffer, phy_offset: int, *, check_crc: bool, property_crc: bool
) -> StoredMessage:
    """Return the record that fills ``record``, found at ``phy_offset``, fully checked.

    In addition to RocketMQ's check, the stored phy offset must be ``phy_offset``, and the queue
    offset must be valid for a queue: no checksum covers either.

    Raises:
        CorruptionError: a check failed.
    """
    message = StoredMessage(record, phy_offset)
    if message.phy_offset != phy_offset:
        raise CorruptionError(
            "the record holds another phy offset", phy_offset=phy_offset,
            expected=phy_offset, got=message.phy_offset,
        )  # fmt: skip
    if not 0 <= message.queue_offset < MAX_QUEUE_OFFSET:
        raise CorruptionError(
            "the record has an invalid queue offset", phy_offset=phy_offset,
            expected=f"0 to {MAX_QUEUE_OFFSET - 1}", got=message.queue_offset,
        )  # fmt: skip
    _ = message.topic
    if check_crc and property_crc:
        message.check_property_crc()
    elif check_crc:
        message.check_body()
    return message
