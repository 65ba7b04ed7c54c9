"""Copies of messages: the fields that are checked are the fields that are written.

Another thread may change the caller's message, its properties and its body meanwhile, and their
methods may return something else at the second call.
"""

from collections.abc import Mapping
from operator import index

from cqstore.store.record.message import Message


def copy_message(message: Message) -> Message:
    """Return a copy of ``message``; each of its fields is read once.

    A mapping becomes a ``dict`` and a buffer ``bytes``; a text or number of a subclass becomes a
    plain one. A value of a wrong type is kept, and ``EncodingRules`` refuse it.

    Raises:
        AttributeError: ``message`` lacks a field.
        Exception: any exception that the caller's own mapping raises.
    """
    topic, body, properties = message.topic, message.body, message.properties
    sys_flag = message.sys_flag
    if type(topic) is not str and isinstance(topic, str):
        topic = str.__str__(topic)
    if type(body) is not bytes and isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body)
    if type(properties) is dict:
        properties = properties.copy()
    elif isinstance(properties, Mapping):
        properties = dict(properties)
    if type(sys_flag) is not int and hasattr(sys_flag, "__index__"):
        sys_flag = int.__pos__(index(sys_flag))
    return Message(
        topic, body, message.queue_id, properties, message.flag, sys_flag,
        message.born_timestamp, message.born_host, message.store_host,
        message.reconsume_times, message.prepared_transaction_offset,
    )  # fmt: skip


def with_properties(message: Message, properties: dict[str, str]) -> Message:
    """Return a message with other properties; the other fields are the same objects."""
    return Message(
        message.topic, message.body, message.queue_id, properties, message.flag,
        message.sys_flag, message.born_timestamp, message.born_host, message.store_host,
        message.reconsume_times, message.prepared_transaction_offset,
    )  # fmt: skip
