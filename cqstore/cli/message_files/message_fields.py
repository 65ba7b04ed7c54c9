"""A message as fields: printed by ``get``, ``tail`` and ``export``, read by ``put`` and ``import``.

``FIELDS`` lists all fields. The fields in ``PLACES`` are the position and store time of the
message; a put assigns new ones, so they are read and dropped. All other fields are kept.
"""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from cqstore.cli.message_files.dump_rows import host_text
from cqstore.cli.output import body_fields
from cqstore.cli.table import Row
from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.client_batch import decode_client_batch
from cqstore.store.record.compression import compress
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import (
    COMPRESSION_SHIFT,
    CompressionType,
    Host,
    Message,
    MessageProperty,
    SysFlag,
)

PLACES = ("queueOffset", "phy", "msgId", "storeTimestamp")
COLUMNS = {
    "topic": "string", "queueId": "int32", "queueOffset": "int64", "phy": "int64",
    "msgId": "string", "storeTimestamp": "time", "bornTimestamp": "time", "bornHost": "string",
    "storeHost": "string", "flag": "int32", "sysFlag": "int32", "reconsumeTimes": "int32",
    "preparedTransactionOffset": "int64", "properties": "properties", "body": "binary",
}  # fmt: skip
"""Column → type. Times are timestamps in ms, UTC; properties are a map of strings."""
FIELDS = (*COLUMNS, "bodyBase64")
OF_THE_RECORD = (MessageProperty.CRC32, MessageProperty.INNER_MULTI_QUEUE_OFFSET)
"""Properties that the store itself adds to a record: checksum and light queue offsets."""
_BATCH_BITS = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_COMPRESSED_BITS = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE)
_PORT_BYTES = 4
_KNOWN_HOSTS = 4096
"""Size of the cache of host texts: formatting a host takes as long as reading a message."""
shown_host = lru_cache(_KNOWN_HOSTS)(host_text)
"""Return a host as shown in rows: address, space, port."""
_PORT = re.compile(r"-?\d{1,10}")


class ReadMessage(NamedTuple):
    """A message that was read: its fields, with the body decompressed, and its record.

    ``queue_id`` and ``queue_offset`` refer to the queue that was read.
    """

    queue_id: int
    queue_offset: int
    message: Message
    stored: StoredMessage


def read_messages(
    queue_offset: int, stored: StoredMessage, queue_id: int | None = None
) -> Iterator[ReadMessage]:
    """Yield the message of a record, or all messages of a batch queue's record.

    A batch that cannot be split is yielded as one message; its flag makes a put refuse it.

    Raises:
        CorruptionError: the body of the record cannot be decompressed.
    """
    message = Message(
        stored.topic, stored.body, stored.queue_id, stored.properties, stored.head.flag,
        stored.sys_flag, stored.head.born_timestamp, stored.born_host, stored.store_host,
        stored.tail.reconsume_times, stored.tail.prepared_transaction_offset,
    )  # fmt: skip
    inner = [message]
    if stored.sys_flag & SysFlag.INNER_BATCH:
        message.sys_flag &= ~(_BATCH_BITS | _COMPRESSED_BITS)
        try:
            inner = decode_client_batch(message)
        except IllegalMessageError:
            message.sys_flag = stored.sys_flag
    for at, each in enumerate(inner, queue_offset):
        yield ReadMessage(stored.queue_id if queue_id is None else queue_id, at, each, stored)


def message_fields(read: ReadMessage) -> Row:
    """Return a message as a row; a body that is not UTF-8 is Base64."""
    return {**_head_fields(read), **body_fields(bytes(read.message.body))}


def flat_fields(read: ReadMessage) -> Row:
    """Return a message as a row with all ``FIELDS``; one of the two body fields is empty."""
    body = {"body": "", "bodyBase64": "", **body_fields(bytes(read.message.body))}
    return {**_head_fields(read), **body}


def _head_fields(read: ReadMessage) -> dict[str, object]:
    """Return the fields of a message that are common to all output formats."""
    message, stored = read.message, read.stored
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": read.queue_offset,
        "phy": stored.phy_offset,
        "msgId": stored.message_id,
        "storeTimestamp": stored.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": shown_host(message.born_host),
        "storeHost": shown_host(message.store_host),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
    }


def to_put(message: Message) -> Message:
    """Return a message ready for a put: its body compressed again according to ``sys_flag``.

    The properties that the store adds to each record are removed.

    Raises:
        IllegalMessageError: the flag specifies an unknown compression.
    """
    for name in OF_THE_RECORD:
        if name in message.properties:
            message.properties = {
                name: text for name, text in message.properties.items() if name not in OF_THE_RECORD
            }
            break
    if message.sys_flag & SysFlag.COMPRESSED:
        number = (message.sys_flag & SysFlag.COMPRESSION_TYPE) >> COMPRESSION_SHIFT
        try:
            kind = CompressionType(number)
        except ValueError as exc:
            raise IllegalMessageError(
                f"invalid sysFlag {message.sys_flag}: unknown compression type {number}"
            ) from exc
        message.body, _ = compress(bytes(message.body), kind)
    return message


@lru_cache(_KNOWN_HOSTS)
def host_of(field: str, text: str) -> Host:
    """Return the host that ``host_text`` formats as ``text``: address, space, port.

    Raises:
        IllegalMessageError: the text is not a valid host.
    """
    address, _, port = text.rpartition(" ")
    try:
        if not _PORT.fullmatch(port):
            raise ValueError  # noqa: TRY301 - handled like an invalid address
        packed = ipaddress.ip_address(address).packed
        return Host(packed + int(port).to_bytes(_PORT_BYTES, "big", signed=True))
    except (ValueError, OverflowError) as exc:
        raise IllegalMessageError(
            f"invalid {field} {text!r:.60}: expected an address, a space and a port"
        ) from exc
