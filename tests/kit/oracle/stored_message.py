"""A valid record of the log, read by Python: what ``StoredMessage`` is compared with."""

import zlib

from cqstore.store.errors import ChecksumError, CorruptionError
from cqstore.store.record.compression import decompress
from cqstore.store.record.host import Host
from cqstore.store.record.layout import Buffer
from cqstore.store.record.message_id import encode_message_id
from cqstore.store.record.properties import decode_properties
from cqstore.store.record.record_layout import HEAD, MAGIC_V2, TAIL


class OracleMessage:
    """The record that fills ``record``."""

    def __init__(self, record: Buffer) -> None:
        self.record, self.size = record, len(record)
        self.head = HEAD.unpack_from(record)
        self.queue_id, self.queue_offset = self.head.queue_id, self.head.queue_offset
        self.phy_offset, self.sys_flag = self.head.phy_offset, self.head.sys_flag
        self.is_passed_over = bool(self.sys_flag & 0x4000_0000)
        stored_at = HEAD.size + (20 if self.sys_flag & 0x10 else 8)
        body_at = stored_at + 8 + (20 if self.sys_flag & 0x20 else 8) + TAIL.size
        self.born_host = Host(bytes(record[HEAD.size : stored_at]))
        self.store_timestamp = int.from_bytes(record[stored_at : stored_at + 8], "big", signed=True)
        self.store_host = Host(bytes(record[stored_at + 8 : body_at - TAIL.size]))
        self.message_id = encode_message_id(self.store_host, self.phy_offset)
        self.tail = TAIL.unpack_from(record, body_at - TAIL.size)
        body_end = body_at + self.tail.body_size
        self.stored_body = record[body_at:body_end]
        topic_at = body_end + (2 if self.head.magic_code == MAGIC_V2 else 1)
        topic_end = topic_at + int.from_bytes(record[body_end:topic_at], "big")
        self._topic = bytes(record[topic_at:topic_end])
        self.properties_bytes = bytes(record[topic_end + 2 :])
        self.properties = decode_properties(self.properties_bytes)

    @property
    def topic(self) -> str:
        try:
            return self._topic.decode()
        except UnicodeDecodeError:
            raise CorruptionError("the topic is not UTF-8", phy_offset=self.phy_offset) from None

    @property
    def body(self) -> bytes:
        stored = bytes(self.stored_body)
        return decompress(stored, self.sys_flag, self.phy_offset) if self.sys_flag & 1 else stored

    def check_body(self) -> None:
        crc = zlib.crc32(self.stored_body) & 0x7FFFFFFF
        if len(self.stored_body) and crc != self.head.body_crc:
            raise ChecksumError(
                "the body's CRC does not match", phy_offset=self.phy_offset,
                expected=f"{self.head.body_crc:#010x}", got=f"{crc:#010x}",
            )  # fmt: skip

    def check_property_crc(self) -> None:
        data = bytes(self.record)
        number = str(zlib.crc32(data[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0")
        if data[-20:] != (expected := b"__CRC32#\x01%s\x02" % number.encode()):
            raise ChecksumError(
                "the record's CRC property does not match", phy_offset=self.phy_offset,
                expected=expected, got=data[-20:],
            )  # fmt: skip
