"""Rows of ``dump``: messages, queues and units, with the names and format of RocketMQ's dump."""

import hashlib
import ipaddress
import struct
from collections.abc import Iterator

from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import BlockStop, QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Host

_DIGEST = 16
_UNITS = 4096


def message_row(message: StoredMessage) -> dict[str, object]:
    """Return one record of the log; body and record are shown as the start of their SHA-1."""
    head, tail = message.head, message.tail
    return {
        "phy": head.phy_offset,
        "storeSize": head.total_size,
        "magic": f"{head.magic_code & 0xFFFFFFFF:x}",
        "bodyCRC": head.body_crc,
        "topic": message.topic,
        "queueId": head.queue_id,
        "flag": head.flag,
        "queueOffset": head.queue_offset,
        "sysFlag": head.sys_flag,
        "bornTimestamp": head.born_timestamp,
        "bornHost": host_text(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": tail.reconsume_times,
        "preparedTransactionOffset": tail.prepared_transaction_offset,
        "msgId": message.message_id,
        "bodyLength": tail.body_size,
        "body": digest(bytes(message.stored_body)),
        "record": digest(bytes(message.record)),
        "properties": dict(sorted(message.properties.items())),
    }


def queue_row(queues: ConsumeQueueStore, key: QueueKey) -> dict[str, object]:
    """Return one queue with its units from min to max offset; a missing unit is ``None``."""
    topic, queue_id = key
    low, high = queues.queue(*key).ends()
    return {
        "topic": topic,
        "queueId": queue_id,
        "type": queues.queue_type(topic).value,
        "min": low,
        "max": high,
        "units": list(unit_rows(queues, key, low, high)),
    }


def unit_rows(
    queues: ConsumeQueueStore, key: QueueKey, low: int, high: int
) -> Iterator[list[object] | None]:
    """Yield ``[queue offset, phy, size, tags code, store timestamp(, messages)]`` per unit."""
    queue = queues.queue(*key)
    if queues.queue_type(key.topic) is QueueType.BATCH:
        for unit in queue.iterate(low):
            if unit.queue_offset >= high:
                return
            row: list[object] = [*unit[:4], queue.unit_timestamp(unit.queue_offset)]
            yield [*row, unit.batch_num] if unit.batch_num > 1 else row
        return
    at = low
    while at < high:
        block = queue.read_units(at, min(_UNITS, high - at))
        for phy_offset, size, tags_code in block.rows():
            code = queue.resolve_tags_code(tags_code)
            yield [at, phy_offset, size, code, queue.unit_timestamp(at)]
            at += 1
        if block.stop is BlockStop.HOLE and block.hole is not None:
            yield from (None for _ in block.hole)
            at = block.hole.stop
        elif not block.count:
            return


def sorted_queues(queues: ConsumeQueueStore, topic: str | None = None) -> list[QueueKey]:
    """Return the queues in Java's order: by UTF-16 code units, then by queue id."""
    return sorted(
        queues.queues(topic),
        key=lambda key: (key.topic.encode("utf-16-be", "surrogatepass"), key.queue_id),
    )


def host_text(host: Host) -> str:
    """Return address and port as Java shows them: an IPv6 address without ``::``."""
    address = ipaddress.ip_address(host.wire[:-4])
    if isinstance(address, ipaddress.IPv6Address):
        groups = struct.unpack(">8H", address.packed)
        return f"{':'.join(f'{group:x}' for group in groups)} {host.port}"
    return f"{address} {host.port}"


def digest(data: bytes) -> str:
    """Return the first 16 hex digits of the SHA-1: enough to tell two records apart."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:_DIGEST]
