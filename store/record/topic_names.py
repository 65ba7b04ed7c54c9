"""Topics that a broker treats apart, known by their names.

Source: RocketMQ ``TopicValidator``, ``DefaultMessageStore.cleanUnusedTopic``.
"""

import re

from cqstore.store.record.message import LMQ_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

_VALID = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
INVALID = re.compile(r"[/\s\x00-\x1f\x7f]")
"""What no topic that is put may have: no broker has it, and no folder or line can show it."""


def is_name(text: str) -> bool:
    """Return whether a broker accepts all characters of a topic's or a group's name.

    Embedded logs ask: a store may hold other topics, and they are read, checked and moved.
    Source: RocketMQ ``TopicValidator.isTopicOrGroupIllegal``, ``UtilAll.isBlank``.
    """
    return bool(text) and _VALID.issuperset(text)


def is_system_topic(topic: str) -> bool:
    """Return whether ``topic`` is one of the broker's own, in whichever case its prefix is."""
    return topic in SYSTEM_TOPICS or topic.lower().startswith(SYSTEM_PREFIX)


def is_reserved(topic: str) -> bool:
    """Return whether a broker refuses to create or delete ``topic``, since it is its own.

    Here the case of the prefix counts. Source: RocketMQ ``TopicValidator.isSystemTopic``,
    ``AdminBrokerProcessor.deleteTopic``.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_exempt(topic: str) -> bool:
    """Return whether a broker keeps the queues of ``topic`` whatever its table of topics says.

    It makes its own topics at each start, and no table lists light queues.
    """
    return is_reserved(topic) or topic.startswith(LMQ_PREFIX)
