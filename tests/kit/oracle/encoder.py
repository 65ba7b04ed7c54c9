"""MessageEncoder: a message to the bytes of its record, or why not, in Python.

What the core encodes is compared with it, and so are the sentences of ``EncodingRules``. Queue
offset, phy offset and store timestamp are filled in by ``assemble``.

Source: RocketMQ ``MessageExtEncoder``, ``DefaultAppendMessageCallback``.
"""

import time
import zlib
from collections.abc import Callable
from struct import Struct, error
from typing import NamedTuple

from cqstore.store.errors import IllegalMessageError, PropertiesTooLongError
from cqstore.store.record.encoding_rules import LearntTopic
from cqstore.store.record.message import Message, MessageProperty, SysFlag
from cqstore.store.record.message_check import illegal
from cqstore.store.record.properties import (
    CRC_PROPERTY_SIZE,
    MAX_PROPERTIES,
    DispatchProperties,
    crc_property,
    dispatch_properties_of,
    encode_properties,
)
from cqstore.store.record.record_layout import (
    CRC_MASK,
    FIXED_V4,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    TAIL,
)
from cqstore.store.settings.config import StoreConfig

MAX_V1_TOPIC_CHARS = 127
MAX_TOPIC_BYTES = 255

_START = Struct(">ii")  # total size, magic: written last
_PREFIX = Struct(">iii")  # body CRC, queue id, flag
_OFFSETS = Struct(">qq")  # queue offset, phy offset
_MIDDLE = Struct(">iq")  # sys flag, born timestamp
_STAMP = Struct(">q")


class EncodedRecord(NamedTuple):
    """A record in the pieces between the fields that the append fills in."""

    size: int
    start: bytes
    """Total size and magic code: 8 bytes."""
    prefix: bytes
    """Up to the queue offset."""
    middle: bytes
    """From the sys flag to the store timestamp."""
    tail: bytes
    """From the store host to the end."""
    topic: str
    queue_id: int
    sys_flag: int
    dispatch: DispatchProperties


_new = tuple.__new__


class MessageEncoder:
    """Encodes messages under one configuration. Any thread may use it.

    ``check_topic`` says which names the queues can hold, and raises ``IllegalMessageError`` for
    others.
    """

    def __init__(self, config: StoreConfig, check_topic: Callable[[str], None]) -> None:
        self._max_body = config.max_message_size
        self._auto_version = config.auto_message_version_on_topic_len
        self._append_crc = config.enabled_append_prop_crc
        self._check_topic = check_topic

    def encode(self, message: Message) -> EncodedRecord:
        """Return ``message`` encoded, checked as RocketMQ checks it, in its order.

        Raises:
            PropertiesTooLongError: more than 32,767 bytes of properties.
            IllegalMessageError: a field that no record can hold: of a wrong type, out of its range,
                too large; or one that RocketMQ could not read back.
        """
        try:
            magic, name, topic = self._learn_topic(message.topic)
            encoded, dispatch = self._encode_properties(message.properties)
            body, queue_id = message.body, message.queue_id
            if type(body) is not bytes:
                body = _copied(body)
            if len(body) > self._max_body:
                raise IllegalMessageError(
                    f"body too large: {len(body)} bytes, at most {self._max_body}"
                )
            if type(queue_id) is not int or queue_id < 0:
                raise TypeError  # noqa: TRY301 - as what the packing below raises
            size = FIXED_V4.size + len(body) + len(name) + len(encoded)
            sys_flag = message.sys_flag
            born, stored = message.born_host.wire, message.store_host.wire
            if sys_flag & _RARE_BITS or len(born) + len(stored) != _TWO_V4:
                if sys_flag & SysFlag.PASSED_OVER:
                    raise IllegalMessageError(
                        "invalid sys_flag: bit 0x40000000 marks a skipped record"
                    )
                sys_flag = _host_bits(sys_flag, len(born), len(stored))
                size += len(born) + len(stored) - _TWO_V4
            prefix = _PREFIX.pack(zlib.crc32(body) & CRC_MASK, queue_id, message.flag)
            born_timestamp = message.born_timestamp or time.time_ns() // 1_000_000
            middle = _MIDDLE.pack(sys_flag, born_timestamp) + born
            fixed = _TAIL_PACK(
                message.reconsume_times, message.prepared_transaction_offset, len(body)
            )
            start = _START.pack(size, magic)
            tail = b"".join((stored, fixed, body, name, encoded))
        except (TypeError, ValueError, AttributeError, error) as exc:
            raise illegal(message, exc) from exc
        return _new(
            EncodedRecord,
            (size, start, prefix, middle, tail, topic, queue_id, sys_flag, dispatch),
        )

    def _encode_properties(self, properties: dict[str, str]) -> "_Encoded":
        if self._append_crc and MessageProperty.CRC32 in properties:
            properties = {k: v for k, v in properties.items() if k != MessageProperty.CRC32}
        encoded, dispatch = encode_properties(properties), dispatch_properties_of(properties)
        if self._append_crc:
            encoded += bytes(CRC_PROPERTY_SIZE)
        if len(encoded) > MAX_PROPERTIES:
            raise PropertiesTooLongError(
                f"properties too long: {len(encoded)} bytes, at most {MAX_PROPERTIES}"
            )
        return len(encoded).to_bytes(2, "big") + encoded, dispatch

    def _learn_topic(self, topic: str) -> LearntTopic:
        if not isinstance(topic, str):
            raise TypeError
        self._check_topic(topic)
        try:
            name = topic.encode()
        except UnicodeEncodeError as exc:
            raise IllegalMessageError(f"the topic is not valid Unicode: {topic!r}") from exc
        if len(name) > MAX_TOPIC_BYTES:
            raise IllegalMessageError(
                f"topic too long: {len(name)} bytes, at most {MAX_TOPIC_BYTES}"
            )
        utf16_units = len(topic.encode("utf-16-be")) // 2  # as Java counts characters
        if self._auto_version and utf16_units > MAX_V1_TOPIC_CHARS:
            learnt = MAGIC_V2, len(name).to_bytes(2, "big") + name, name.decode()
        elif len(name) > MAX_V1_TOPIC_CHARS:
            raise IllegalMessageError(
                f"topic too long: {len(name)} bytes, at most 127 in a V1 record"
            )
        else:
            learnt = MAGIC_V1, len(name).to_bytes(1, "big") + name, name.decode()
        return learnt  # never a class of its own


_Encoded = tuple[bytes, DispatchProperties]
"""The properties with their length before them, and what dispatch needs of them."""
_TAIL_PACK = TAIL.struct.pack
_TWO_V4 = 16
_V6_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


def _copied(body: object) -> bytes:
    """Return what may change in the caller's hands as what does not."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(body)


_RARE_BITS = _V6_BITS | int(SysFlag.PASSED_OVER)


def _host_bits(sys_flag: int, born_size: int, stored_size: int) -> int:
    """Set the host bits from the hosts, whatever the caller had set."""
    if not {born_size, stored_size} <= {HOST_V4_SIZE, HOST_V6_SIZE}:
        raise TypeError
    sys_flag &= ~_V6_BITS
    if born_size == HOST_V6_SIZE:
        sys_flag |= int(SysFlag.BORN_HOST_V6)
    if stored_size == HOST_V6_SIZE:
        sys_flag |= int(SysFlag.STORE_HOST_V6)
    return sys_flag


def assemble(record: EncodedRecord, queue_offset: int, phy_offset: int, timestamp: int) -> bytes:
    """Return the bytes of ``record`` behind its first eight."""
    return b"".join(
        (
            record.prefix,
            _OFFSETS.pack(queue_offset, phy_offset),
            record.middle,
            _STAMP.pack(timestamp),
            record.tail,
        )
    )


def with_property_crc(start: bytes, rest: bytes) -> bytes:
    """Return ``rest`` (all but the 8 bytes ``start``) with its last 20 bytes filled in.

    The checksum covers the whole record but the property itself; its ten digits stand with the
    least significant first, as RocketMQ writes them.
    """
    crc = zlib.crc32(rest[:-CRC_PROPERTY_SIZE], zlib.crc32(start)) & CRC_MASK
    return rest[:-CRC_PROPERTY_SIZE] + crc_property(crc)
