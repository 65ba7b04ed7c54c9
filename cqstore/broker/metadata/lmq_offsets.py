"""Conversion between the two files of consumer offsets that a broker may read.

A broker with ``enableLmq`` and file queues reads only ``lmqConsumerOffset.json``; any other broker
reads only ``consumerOffset.json``. In ``lmqConsumerOffset.json``, the offsets of LMQ groups are in
a separate table without queue ids, because an LMQ has only queue 0.

Source: RocketMQ ``LmqConsumerOffsetManager``, ``ConsumerOffsetManager``,
``RocksDBConsumerOffsetManager``, ``BrokerController``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from cqstore.broker.metadata.merged_offsets import Offsets, offsets_in
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.errors import CorruptionError
from cqstore.store.record.message import LMQ_PREFIX

LMQ_TABLE = "lmqOffsetTable"
_TABLE, _VERSION = "offsetTable", "dataVersion"
_QUEUE = "0"
Json = dict[str, Any]
K = TypeVar("K", int, str)


def all_offsets(content: Json | None, path: Path) -> Offsets:
    """Return the offsets in either file; those of LMQ groups get queue id 0.

    Raises:
        CorruptionError: the offset table is missing or invalid.
    """
    lmq = (content or {}).get(LMQ_TABLE) or {}
    if not isinstance(lmq, dict) or not all(type(each) is int for each in lmq.values()):
        raise CorruptionError(f"{LMQ_TABLE} is not a table of offsets", path=path)
    rows = offsets_in(content, path)
    return rows | {key: {_QUEUE: offset} for key, offset in lmq.items()}


def consumer_offset(offsets: Offsets, version: Json) -> Json:
    """Return the content of ``consumerOffset.json``."""
    return {_TABLE: offsets, _VERSION: version}


def lmq_consumer_offset(offsets: Offsets, version: Json) -> Json:
    """Return the content of ``lmqConsumerOffset.json``.

    For an LMQ group, a broker reads only the offset of queue 0 there. Its other queues stay in the
    first table, in which the broker does not look up that group.
    """
    return {**lmq_tables(offsets, _QUEUE), _VERSION: version}


def lmq_tables(offsets: Mapping[str, Mapping[K, int]], queue: K) -> Json:
    """Return both tables of ``lmqConsumerOffset.json``; ``queue`` is queue 0 in ``offsets``."""
    flat = {key: row[queue] for key, row in offsets.items() if _is_lmq(key) and queue in row}
    rows = {key: row for key, row in offsets.items() if key not in flat or len(row) > 1}
    return {LMQ_TABLE: flat, _TABLE: rows}


def _is_lmq(key: str) -> bool:
    """Return whether a key ``topic@group`` belongs to an LMQ group."""
    return key.partition(TOPIC_GROUP_SEPARATOR)[2].startswith(LMQ_PREFIX)
