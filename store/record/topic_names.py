"""Topics that a broker treats apart, known by their names.

Source: RocketMQ ``TopicValidator``, ``DefaultMessageStore.cleanUnusedTopic``.
"""

from cqstore.store.record.message import LMQ_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

_VALID = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
NAME_CHARACTERS = "ASCII letters, digits and %|_-"
"""In a sentence, what ``is_name`` accepts."""


def is_name(text: str) -> bool:
    """Return whether a broker accepts all characters of a topic's or a group's name.

    Only puts ask: a store may hold other topics, and they are read, checked and moved.
    Source: RocketMQ ``TopicValidator.isTopicOrGroupIllegal``, ``UtilAll.isBlank``.
    """
    return bool(text) and _VALID.issuperset(text)


def has_blanks(topic: str) -> bool:
    """Return whether a topic has a blank, a line end or a control character, as no topic has."""
    return any(each.isspace() or (each < " " or each == "\x7f") for each in topic)


def is_system_topic(topic: str) -> bool:
    """Return whether ``topic`` is one of the broker's own, in whichever case its prefix is."""
    return topic in SYSTEM_TOPICS or topic.lower().startswith(SYSTEM_PREFIX)


def is_exempt(topic: str) -> bool:
    """Return whether a broker keeps the queues of ``topic`` whatever its table of topics says.

    It makes its own topics at each start, and no table lists light queues. Here the case of the
    prefix counts, as it does for RocketMQ.
    """
    return topic in SYSTEM_TOPICS or topic.startswith((SYSTEM_PREFIX, LMQ_PREFIX))
