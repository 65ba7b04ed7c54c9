"""Rows for topics that have queues but no metadata, derived from the queues.

Source: RocketMQ ``TopicConfig``, ``TopicAttributes.QUEUE_TYPE_ATTRIBUTE``.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cqstore.store.broker_files.fastjson import encoded
from cqstore.store.broker_files.file_names import replace_both
from cqstore.store.errors import os_errors
from cqstore.store.files import make_folder
from cqstore.store.queue.facts import QUEUE_TYPE, QueueSpan, QueueType
from cqstore.store.record.topic_names import is_exempt

_READ_AND_WRITE = 6
Json = dict[str, object]


@dataclass(slots=True)
class TopicQueues:
    """The configuration of one topic that its queues show."""

    queues: int = 0
    """The highest queue id plus 1: the number of queues for producers and consumers."""
    units: int = 0
    queue_type: QueueType = QueueType.SIMPLE


def topics_of_spans(spans: Iterable[QueueSpan]) -> dict[str, TopicQueues]:
    """Return the queues of each topic that a broker would not create by itself."""
    found: dict[str, TopicQueues] = {}
    for (topic, queue_id), low, high in spans:
        if not is_exempt(topic):
            one = found.setdefault(topic, TopicQueues())
            one.queues = max(one.queues, queue_id + 1)
            one.units += high - low
    return found


def topic_row(topic: str, shown: TopicQueues) -> Json:
    """Return the configuration of a topic: RocketMQ's defaults, and the values from the queues."""
    return {
        "attributes": _attributes({}, shown),
        "order": False,
        "perm": _READ_AND_WRITE,
        "readQueueNums": shown.queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": shown.queues,
    }


def with_queue_type(row: Json, shown: TopicQueues) -> Json:
    """Return ``row``, the topic's configuration elsewhere, with the type of its queues here.

    A broker does not start if they differ.
    """
    attributes = _attributes(row.get("attributes"), shown)
    return row if attributes == (row.get("attributes") or {}) else {**row, "attributes": attributes}


def _attributes(known: object, shown: TopicQueues) -> Json:
    """Return the attributes ``known``, with the type of the queues."""
    others = dict(known) if isinstance(known, dict) else {}
    others.pop(QUEUE_TYPE, None)
    if shown.queue_type is QueueType.BATCH:  # read as another type, its units are torn
        others[QUEUE_TYPE] = QueueType.BATCH.value
    return others


def write_topics(path: Path, rows: Mapping[str, Json]) -> None:
    """Write a new ``topics.json`` that a broker imports with either form, durably.

    Raises:
        StoreIOError: the file cannot be written.
    """
    version = {"counter": 1, "stateVersion": 0, "timestamp": time.time_ns() // 1_000_000}
    with os_errors("write the topics of a broker", path):
        make_folder(path.parent)
        replace_both(path, encoded({"topicConfigTable": rows, "dataVersion": version}))
