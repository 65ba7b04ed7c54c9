"""EncodingRules: checks whether a record can hold a message, and explains why a put refuses it.

Compiled code encodes, see ``EncodedMessages``. A message that it declines is checked here field by
field, in RocketMQ's order, so that the error names the first invalid field. No check encodes more
than the properties.

Source: RocketMQ ``MessageExtEncoder``.
"""

from collections.abc import Callable
from struct import Struct, error

from cqstore.store.errors import IllegalMessageError, PropertiesTooLongError
from cqstore.store.record.bounded_cache import BoundedCache
from cqstore.store.record.message import Message, MessageProperty, SysFlag
from cqstore.store.record.message_check import illegal
from cqstore.store.record.properties import CRC_PROPERTY_SIZE, MAX_PROPERTIES, encode_properties
from cqstore.store.record.record_layout import (
    FIXED_V4,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
)
from cqstore.store.settings.config import StoreConfig

MAX_V1_TOPIC_CHARS = 127
MAX_TOPIC_BYTES = 255

LearntTopic = tuple[int, bytes, str]
"""Magic code, the name preceded by its length, the name as a plain ``str``."""
_TOPICS_BYTES = 64 << 20
"""Enough for 132,000 topics of 12 bytes or 89,000 of 60; each takes 250 to 400 bytes in fact."""
_NUMBERS = Struct(">iiiqiqi")
"""Queue id, flag, sys flag, born timestamp, reconsume times, prepared transaction offset, size."""
_HOST_SIZES = {HOST_V4_SIZE, HOST_V6_SIZE}
_PASSED_OVER = int(SysFlag.PASSED_OVER)


class EncodingRules:
    """Caches topics, and checks messages, under one configuration. Any thread may use it.

    ``check_topic`` checks that the queues can hold a topic. It is called before the first use of a
    topic, and raises ``IllegalMessageError`` for an invalid one.
    """

    def __init__(self, config: StoreConfig, check_topic: Callable[[str], None]) -> None:
        self._max_body = config.max_message_size
        self._auto_version = config.auto_message_version_on_topic_len
        self._append_crc = config.enabled_append_prop_crc
        self._check_topic = check_topic
        self.topics = BoundedCache[str, LearntTopic](_TOPICS_BYTES)
        """Topics that are valid in a put."""

    def learnt(self, message: Message) -> LearntTopic:
        """Return the encoded form of a message's topic, after checking that it is valid.

        Raises:
            IllegalMessageError: the topic is invalid, or missing.
        """
        try:
            return self.topics.get(message.topic) or self._learn_topic(message.topic)
        except (TypeError, ValueError, AttributeError) as exc:
            raise illegal(message, exc) from exc

    def check(self, message: Message) -> None:
        """Refuse a message that no record can hold; ``message`` is a copy of the caller's.

        Raises:
            PropertiesTooLongError: more than 32,767 bytes of properties.
            IllegalMessageError: no record can hold a field, because its type is wrong, it is out of
                range, or too large; or RocketMQ could not read the field back.
        """
        try:
            _, name, _ = self.learnt(message)
            size = FIXED_V4.size + len(name) + self._properties_size(message.properties)
            size += self._body_size(message.body)
            if type(message.queue_id) is not int or message.queue_id < 0:
                raise TypeError  # noqa: TRY301 - as what the packing below raises
            hosts = len(message.born_host.wire), len(message.store_host.wire)
            if message.sys_flag & _PASSED_OVER:
                raise IllegalMessageError("invalid sys_flag: bit 0x40000000 marks a skipped record")
            if not _HOST_SIZES.issuperset(hosts):
                raise TypeError  # noqa: TRY301 - likewise
            _NUMBERS.pack(
                message.queue_id, message.flag, message.sys_flag, message.born_timestamp or 0,
                message.reconsume_times, message.prepared_transaction_offset,
                size + sum(hosts) - 2 * HOST_V4_SIZE,
            )  # fmt: skip
        except (TypeError, ValueError, AttributeError, error) as exc:
            raise illegal(message, exc) from exc

    def stored_properties(self, properties: dict[str, str]) -> dict[str, str]:
        """Return ``properties`` without a checksum property that the record's own replaces."""
        if not (self._append_crc and MessageProperty.CRC32 in properties):
            return properties
        return {k: v for k, v in properties.items() if k != MessageProperty.CRC32}

    def _properties_size(self, properties: dict[str, str]) -> int:
        """Return the size of the properties with their length field, in bytes."""
        properties = self.stored_properties(properties)
        size = len(encode_properties(properties)) + (CRC_PROPERTY_SIZE if self._append_crc else 0)
        if size > MAX_PROPERTIES:
            raise PropertiesTooLongError(
                f"properties too long: {size} bytes, at most {MAX_PROPERTIES}"
            )
        return 2 + size

    def _body_size(self, body: object) -> int:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError
        size = body.nbytes if isinstance(body, memoryview) else len(body)
        if size > self._max_body:
            raise IllegalMessageError(f"body too large: {size} bytes, at most {self._max_body}")
        return size

    def _learn_topic(self, topic: str) -> LearntTopic:
        """Check a topic and cache its encoded form.

        Raises:
            IllegalMessageError: no record can hold the topic.
            TypeError: the topic is not a ``str``.
        """
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
        utf16_units = len(topic)  # Java counts UTF-16 code units
        if not topic.isascii():
            utf16_units += sum(each > "\uffff" for each in topic)
        if self._auto_version and utf16_units > MAX_V1_TOPIC_CHARS:
            learnt = MAGIC_V2, len(name).to_bytes(2, "big") + name, name.decode()
        elif len(name) > MAX_V1_TOPIC_CHARS:
            raise IllegalMessageError(
                f"topic too long: {len(name)} bytes, at most 127 in a V1 record"
            )
        else:
            learnt = MAGIC_V1, len(name).to_bytes(1, "big") + name, name.decode()
        return self.topics.learn(learnt[2], learnt, 5 * len(name) // 4)  # a plain ``str``
