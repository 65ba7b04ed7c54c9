"""TopicKind: the kind of a topic by its name, and the group that owns it.

Source: RocketMQ ``KeyBuilder``, ``MixAll``, ``TopicValidator``.
"""

from collections.abc import Container
from enum import StrEnum

from cqstore.store.record.message import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX
from cqstore.store.record.topic_names import is_system_topic

_POP_RETRY_V2, _POP_RETRY_V1 = "+", "_"


class TopicKind(StrEnum):
    """Kinds of topics."""

    TOPIC = "topic"
    RETRY = "retry"
    """``%RETRY%group``; for POP, ``%RETRY%group+topic`` or ``%RETRY%group_topic``."""
    DLQ = "dlq"
    """``%DLQ%group``: messages that a group could not consume."""
    LIGHT = "light"
    """A light queue: its units point to records of other topics."""
    SYSTEM = "system"
    """A topic of the broker itself."""


def topic_kind(topic: str) -> TopicKind:
    """Return the kind of ``topic``."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    if topic.startswith(LMQ_PREFIX):
        return TopicKind.LIGHT
    if is_system_topic(topic):
        return TopicKind.SYSTEM
    return TopicKind.TOPIC


def group_of(topic: str, groups: Container[str] = ()) -> str | None:
    """Return the group of a retry or dead-letter topic; ``None`` for other topics.

    ``groups`` are the known groups. Without them, ``%RETRY%group_topic`` belongs to the group
    ``group_topic``.
    """
    if topic.startswith(DLQ_PREFIX):
        return topic.removeprefix(DLQ_PREFIX)
    if not topic.startswith(RETRY_PREFIX):
        return None
    rest = topic.removeprefix(RETRY_PREFIX)
    if rest in groups:
        return rest
    group, plus, _ = rest.partition(_POP_RETRY_V2)
    if plus:
        return group
    at = rest.rfind(_POP_RETRY_V1)
    while at > 0:  # the longest known group
        if rest[:at] in groups:
            return rest[:at]
        at = rest.rfind(_POP_RETRY_V1, 0, at)
    return rest
