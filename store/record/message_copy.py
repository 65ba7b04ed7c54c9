"""A message as it is at one moment: what is checked of it is what is written.

The caller's message, its properties and its body may change in another thread's hands, or answer
otherwise the second time.
"""

from collections.abc import Mapping
from operator import index

from cqstore.store.record.message import Message


def copy_message(message: Message) -> Message:
    """Return a message of our own, of each field of ``message`` read once.

    A mapping becomes a ``dict``, a buffer ``bytes``; a text and a number of a class of its own lose
    that. What is of a wrong type stays as it is: ``EncodingRules`` refuse it.

    Raises:
        AttributeError: it lacks a field.
        Exception: whatever the caller's own mapping raises.
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
