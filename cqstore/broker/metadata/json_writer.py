"""Writer of metadata as JSON files of a broker, each with an identical ``.bak``.

Source: RocketMQ ``ConfigManager.persist``, ``TopicConfigManager.encode``,
``SubscriptionGroupManager.encode``, ``ConsumerOffsetManager.encode``, ``LmqConsumerOffsetManager``,
``ScheduleMessageService.encode``.
"""

from collections.abc import Iterable
from pathlib import Path

from cqstore.broker.metadata.lmq_offsets import lmq_tables
from cqstore.broker.metadata.locations import FILES
from cqstore.broker.metadata.model import BrokerMetadata, Json, Table
from cqstore.store.broker_files.fastjson import encoded
from cqstore.store.broker_files.file_names import (
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    TOPIC_GROUP_SEPARATOR,
    TOPICS_FILE,
    replace_both,
)
from cqstore.store.errors import os_errors
from cqstore.store.files import make_folder, replace_file

GROUP_TOPICS = "groupTopicMap"
"""Field that is derived from the keys of the offsets."""


def write_json(found: BrokerMetadata, config: Path, *, lmq: bool = False) -> None:
    """Write topics, groups and offsets into ``config``, durably.

    ``lmq``: also write ``lmqConsumerOffset.json``, the only offset file that a broker with
    ``enableLmq`` reads.

    Raises:
        StoreIOError: a file cannot be written.
    """
    for name in FILES if lmq else FILES[:-1]:
        data = encoded(content_of(name, found))
        with os_errors("write the broker's metadata file", config):
            make_folder(config)
            replace_both(config / name, data)


def content_of(name: str, found: BrokerMetadata) -> Json:
    """Return the content of the file ``name``, one of ``FILES``, for ``found``."""
    if name == TOPICS_FILE:
        return {"topicConfigTable": found.topics} | _version(found, Table.TOPICS)
    if name == GROUPS_FILE:
        tables: Json = {
            "subscriptionGroupTable": found.groups, "forbiddenTable": found.forbidden,
        }  # fmt: skip
        return tables | _version(found, Table.GROUPS)
    tables = (
        lmq_tables(found.offsets, 0)
        if name == LMQ_OFFSETS_FILE
        else {GROUP_TOPICS: topics_of_groups(found.offsets), "offsetTable": found.offsets}
    )
    return tables | _version(found, Table.OFFSETS)


def write_delays(found: BrokerMetadata, config: Path) -> None:
    """Write the offsets of delay levels, if any, durably. All forms use this file.

    Raises:
        StoreIOError: the file cannot be written.
    """
    if found.delay_offsets:
        path = config / DELAYS_FILE
        with os_errors("write the broker's metadata file", path):
            make_folder(config)
            replace_file(path, encoded({"offsetTable": found.delay_offsets}))


def _version(found: BrokerMetadata, table: Table) -> Json:
    version = found.versions.get(table)
    return {} if version is None else {"dataVersion": version.as_json()}


def topics_of_groups(offsets: Iterable[str]) -> dict[str, list[str]]:
    """Return group → topics of the keys with one @; a broker writes this and does not read it."""
    made: dict[str, list[str]] = {}
    for key in offsets:
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        if topic and group and TOPIC_GROUP_SEPARATOR not in group:
            made.setdefault(group, []).append(topic)
    return made
