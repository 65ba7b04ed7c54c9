"""Client batches: several messages of one queue in one body, which the put unpacks.

Source: RocketMQ ``MessageDecoder.encodeMessages``, ``MessageExtEncoder.encode(MessageExtBatch)``.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from cqstore.store.errors import IllegalMessageError, PropertiesTooLongError
from cqstore.store.record._encode import split_client_batch
from cqstore.store.record.layout import Layout, Wire
from cqstore.store.record.message import Message
from cqstore.store.record.message_check import fault_of
from cqstore.store.record.message_copy import copy_message
from cqstore.store.record.properties import MAX_PROPERTIES, encode_properties


class ClientBatchHead(NamedTuple):
    """Head of one message of a client batch; body, properties length and properties follow."""

    total_size: Annotated[int, Wire("i", "this message with head and properties, bytes")]
    magic_code: Annotated[int, Wire("i", "0, not used")]
    body_crc: Annotated[int, Wire("i", "0, not used")]
    flag: Annotated[int, Wire("i", "application-defined")]
    body_size: Annotated[int, Wire("i", "bytes of the body that follows")]


CLIENT_BATCH_HEAD = Layout(ClientBatchHead)
_LENGTH = 2


def encode_client_batch(messages: Sequence[Message]) -> bytes:
    """Return the batch body that holds flag, body and properties of ``messages``.

    Raises:
        IllegalMessageError: a message has a field that no record can hold.
        PropertiesTooLongError: one has more properties than a record can hold.
    """
    parts: list[bytes] = []
    for message in map(copy_message, messages):
        if (fault := fault_of(message)) is not None:
            raise IllegalMessageError(fault)
        properties = encode_properties(message.properties)
        if len(properties) > MAX_PROPERTIES:
            raise PropertiesTooLongError(
                f"properties too long: {len(properties)} bytes, at most {MAX_PROPERTIES}"
            )
        body = message.body
        size = CLIENT_BATCH_HEAD.size + len(body) + _LENGTH + len(properties)
        head = ClientBatchHead(size, 0, 0, message.flag, len(body))
        parts += [
            CLIENT_BATCH_HEAD.pack(head),
            body,
            len(properties).to_bytes(_LENGTH, "big"),
            properties,
        ]
    return b"".join(parts)


def decode_client_batch(batch: Message) -> list[Message]:
    """Return the messages of ``batch``, with its topic, queue, flags and hosts.

    As in RocketMQ 5.5.1, a message gets only its own properties, not those of the batch.

    Raises:
        IllegalMessageError: the lengths in the body are inconsistent.
    """
    data = bytes(batch.body)
    messages, at = split_client_batch(data)
    if at < len(data):
        if at + CLIENT_BATCH_HEAD.size > len(data):
            raise IllegalMessageError(
                f"the batch is truncated inside the message head at byte {at}"
            )
        raise IllegalMessageError(f"inconsistent lengths in the message at byte {at}")
    return [
        Message(
            topic=batch.topic,
            body=body,
            queue_id=batch.queue_id,
            properties=properties,
            flag=flag,
            sys_flag=batch.sys_flag,
            born_timestamp=batch.born_timestamp,
            born_host=batch.born_host,
            store_host=batch.store_host,
            reconsume_times=batch.reconsume_times,
        )
        for flag, body, properties in messages
    ]
