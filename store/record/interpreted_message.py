"""PyMessageView: one record of the log, read by Python; the slow path of ``StoredMessage``.

This module is the specification: what a valid record is, which error is raised for an invalid one,
and the error messages.

Source: RocketMQ ``MessageDecoder.decode``.
"""

import zlib
from functools import cached_property

from cqstore.store.errors import (
    ChecksumError,
    CorruptionError,
    MagicCodeError,
    TruncatedRecordError,
)
from cqstore.store.record.compression import decompress
from cqstore.store.record.described import described
from cqstore.store.record.layout import Buffer
from cqstore.store.record.message import Host, SysFlag
from cqstore.store.record.message_id import encode_message_id
from cqstore.store.record.properties import CRC_PROPERTY_SIZE, crc_property, decode_properties
from cqstore.store.record.record_layout import (
    CRC_MASK,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    STORED,
    TAIL,
    RecordHead,
    born_host_size,
    store_host_size,
    store_timestamp_position,
)

MAGICS = {MAGIC_V1, MAGIC_V2}


class PyMessageView:
    """One record of the log. Numbers are read at once, body and properties on first access.

    Keeps the buffer alive that it was created from; copy with ``bytes(message.record)`` to release
    a mapped file.
    """

    def __init__(self, record: Buffer, phy_offset: int | None = None) -> None:
        """Read the record that fills ``record``; ``phy_offset`` is its position in the log.

        Raises:
            CorruptionError: lengths and size are inconsistent, or the magic code is invalid.
        """
        self.record = record
        head = _checked_head(record, phy_offset)
        self.head: RecordHead = head
        where = head.phy_offset if phy_offset is None else phy_offset
        position = store_timestamp_position(head.sys_flag)
        self._stored_at = position
        stored_host_at = position + STORED.size
        tail_at = stored_host_at + store_host_size(head.sys_flag)
        if tail_at + TAIL.size > len(record):
            raise TruncatedRecordError(
                "the record ends inside its fixed fields", phy_offset=where,
                expected=f"{tail_at + TAIL.size} bytes", got=f"{len(record)} bytes",
            )  # fmt: skip
        self.store_timestamp: int = STORED.unpack_from(record, position).store_timestamp
        self.tail = TAIL.unpack_from(record, tail_at)
        self._store_host_at = stored_host_at
        self._body_at = tail_at + TAIL.size
        self._walk_lengths(where)

    def __repr__(self) -> str:
        return described(self)

    def _walk_lengths(self, where: int) -> None:
        """Find topic and properties after the body; every length must stay inside the record."""
        record, size = self.record, len(self.record)
        at = self._body_at + self.tail.body_size
        width = 2 if self.head.magic_code == MAGIC_V2 else 1
        if self.tail.body_size < 0 or at + width > size:
            raise _length_error("body", self.tail.body_size, where)
        topic_size = int.from_bytes(record[at : at + width], "big", signed=True)
        self._topic_at = at + width
        self._topic_end = at = self._topic_at + topic_size
        if topic_size < 0 or at + 2 > size:
            raise _length_error("topic", topic_size, where)
        properties_size = int.from_bytes(record[at : at + 2], "big", signed=True)
        self._properties_at = at + 2
        if properties_size < 0 or self._properties_at + properties_size != size:
            raise CorruptionError(
                "the lengths inside the record do not add up to its size", phy_offset=where,
                expected=f"{size} bytes", got=f"{self._properties_at + properties_size} bytes",
            )  # fmt: skip

    # ---- numbers of the head and tail

    @property
    def queue_id(self) -> int:
        """Return the queue id."""
        return self.head.queue_id

    @property
    def queue_offset(self) -> int:
        """Return the queue offset in units; 0 if the record is not queued."""
        return self.head.queue_offset

    @property
    def phy_offset(self) -> int:
        """Return the phy offset of the record, as stored in the record."""
        return self.head.phy_offset

    @property
    def sys_flag(self) -> int:
        """Return the flag bits as stored."""
        return self.head.sys_flag

    @property
    def is_passed_over(self) -> bool:
        """Return whether this record is a filler that replaces a damaged record."""
        return bool(self.head.sys_flag & SysFlag.PASSED_OVER)

    @property
    def size(self) -> int:
        """Return the size of the whole record in bytes."""
        return self.head.total_size

    # ---- variable parts

    @cached_property
    def topic(self) -> str:
        """Return the topic.

        Raises:
            CorruptionError: the topic is not valid UTF-8.
        """
        try:
            return bytes(self.record[self._topic_at : self._topic_end]).decode()
        except UnicodeDecodeError as exc:
            raise CorruptionError(
                "the topic is not UTF-8", phy_offset=self.head.phy_offset
            ) from exc

    @property
    def stored_body(self) -> Buffer:
        """Return the body as stored in the log, possibly compressed: a view, no copy."""
        return self.record[self._body_at : self._body_at + self.tail.body_size]

    @cached_property
    def body(self) -> bytes:
        """Return the body, decompressed.

        Raises:
            CorruptionError: the body cannot be decompressed.
            UnsupportedFormatError: the compression type is unknown.
        """
        stored = bytes(self.stored_body)
        if self.head.sys_flag & SysFlag.COMPRESSED:
            return decompress(stored, self.head.sys_flag, self.head.phy_offset)
        return stored

    @property
    def properties_bytes(self) -> bytes:
        """Return the properties as stored."""
        return bytes(self.record[self._properties_at :])

    @cached_property
    def properties(self) -> dict[str, str]:
        """Return the properties as a dict."""
        return decode_properties(self.properties_bytes)

    @property
    def born_host(self) -> Host:
        """Return the producer's address."""
        return Host(bytes(self.record[HEAD.size : self._stored_at]))

    @property
    def store_host(self) -> Host:
        """Return the broker's address."""
        end = self._store_host_at + store_host_size(self.head.sys_flag)
        return Host(bytes(self.record[self._store_host_at : end]))

    @property
    def message_id(self) -> str:
        """Return the offset message id: store host, port and phy offset in hex."""
        return encode_message_id(self.store_host, self.head.phy_offset)

    # ---- checks

    def check_body(self) -> None:
        """Check the body's CRC.

        Raises:
            ChecksumError: the CRC differs. An empty body has no CRC to check.
        """
        if self.tail.body_size:
            crc = zlib.crc32(self.stored_body) & CRC_MASK
            if crc != self.head.body_crc:
                raise ChecksumError(
                    "the body's CRC does not match", phy_offset=self.head.phy_offset,
                    expected=f"{self.head.body_crc:#010x}", got=f"{crc:#010x}",
                )  # fmt: skip

    def check_property_crc(self) -> None:
        """Check the CRC over the whole record that ``enabledAppendPropCRC`` appends.

        Raises:
            ChecksumError: the CRC is missing or differs.
        """
        covered = len(self.record) - CRC_PROPERTY_SIZE
        crc = zlib.crc32(self.record[:covered]) & CRC_MASK
        expected, found = crc_property(crc), bytes(self.record[covered:])
        if found != expected:
            raise ChecksumError(
                "the record's CRC property does not match", phy_offset=self.head.phy_offset,
                expected=expected, got=found,
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
    if born_host_size(head.sys_flag) + HEAD.size > len(record):
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
