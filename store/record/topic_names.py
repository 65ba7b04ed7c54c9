"""Topics that a broker treats specially because of their names.

Source: RocketMQ ``TopicValidator``, ``DefaultMessageStore.cleanUnusedTopic``.
"""

import re

from cqstore.store.record.message import LMQ_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

_VALID = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
INVALID = re.compile(r"[/\s\x00-\x1f\x7f]")
"""Characters that are invalid in the topic of a put: no broker accepts them."""


def is_name(text: str) -> bool:
    """Return whether a broker accepts all characters of a topic's or a group's name.

    For embedded logs: a store may contain other topics, which are read, checked and moved. Source:
    RocketMQ ``TopicValidator.isTopicOrGroupIllegal``, ``UtilAll.isBlank``.
    """
    return bool(text) and _VALID.issuperset(text)


def is_system_topic(topic: str) -> bool:
    """Return whether ``topic`` is a system topic of the broker; its prefix is case-insensitive."""
    return topic in SYSTEM_TOPICS or topic.lower().startswith(SYSTEM_PREFIX)


def is_reserved(topic: str) -> bool:
    """Return whether a broker refuses to create or delete ``topic``, because it is a system topic.

    The prefix is case-sensitive here. Source: RocketMQ ``TopicValidator.isSystemTopic``,
    ``AdminBrokerProcessor.deleteTopic``.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_exempt(topic: str) -> bool:
    """Return whether a broker keeps the queues of ``topic`` without an entry in its topic table.

    A broker creates its own topics at each start, and no table lists light queues.
    """
    return is_reserved(topic) or topic.startswith(LMQ_PREFIX)
