"""Writes metadata as the JSON files of a broker, each with a ``.bak`` that holds the same.

Source: RocketMQ ``ConfigManager.persist``, ``TopicConfigManager.encode``,
``SubscriptionGroupManager.encode``, ``ConsumerOffsetManager.encode``, ``LmqConsumerOffsetManager``,
``ScheduleMessageService.encode``.
"""

import json
from pathlib import Path

from metadata.json_form import (
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
    backup_of,
)
from metadata.model import SEPARATOR, BrokerMetadata, Json, Offsets, Table
from store.errors import os_errors
from store.files import make_folder, replace_file
from store.record.message import LMQ_PREFIX


def write_json(found: BrokerMetadata, config: Path, *, lmq: bool = False) -> None:
    """Write topics, groups and offsets into ``config``, durably.

    ``lmq``: also ``lmqConsumerOffset.json``, which a broker with ``enableLmq`` reads alone.

    Raises:
        StoreIOError: a file cannot be written.
    """
    topics: Json = {"topicConfigTable": found.topics}
    groups: Json = {"subscriptionGroupTable": found.groups, "forbiddenTable": found.forbidden}
    _write(config / TOPICS_FILE, topics | _version(found, Table.TOPICS))
    _write(config / GROUPS_FILE, groups | _version(found, Table.GROUPS))
    version = _version(found, Table.OFFSETS)
    offsets: Json = {
        "groupTopicMap": _topics_of_groups(found.offsets), "offsetTable": found.offsets,
    }  # fmt: skip
    _write(config / OFFSETS_FILE, offsets | version)
    if lmq:
        _write(config / LMQ_OFFSETS_FILE, _lmq_offsets(found.offsets) | version)


def write_delays(found: BrokerMetadata, config: Path) -> None:
    """Write the offsets of delay levels, if there are any, durably; the file of every form.

    Raises:
        StoreIOError: it cannot be written.
    """
    if found.delay_offsets:
        _write(config / DELAYS_FILE, {"offsetTable": found.delay_offsets})


def _write(path: Path, content: Json) -> None:
    data = json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":")).encode()
    with os_errors("write a file of the broker's", path):
        make_folder(path.parent)
        replace_file(path, data)
        replace_file(backup_of(path), data)


def _version(found: BrokerMetadata, table: Table) -> Json:
    version = found.versions.get(table)
    if version is None:
        return {}
    state, timestamp, counter = version
    return {"dataVersion": {"counter": counter, "stateVersion": state, "timestamp": timestamp}}


def _topics_of_groups(offsets: Offsets) -> dict[str, list[str]]:
    """Return the map that a broker writes and does not read: of names with one @ between them."""
    made: dict[str, list[str]] = {}
    for key in offsets:
        topic, _, group = key.partition(SEPARATOR)
        if topic and group and SEPARATOR not in group:
            made.setdefault(group, []).append(topic)
    return made


def _lmq_offsets(offsets: Offsets) -> Json:
    """Return both tables of ``lmqConsumerOffset.json``: an LMQ group has queue 0 alone there."""
    light = {
        key: row[0]
        for key, row in offsets.items()
        if 0 in row and key.partition(SEPARATOR)[2].startswith(LMQ_PREFIX)
    }
    rows = {key: row for key, row in offsets.items() if key not in light or len(row) > 1}
    return {"lmqOffsetTable": light, "offsetTable": rows}
