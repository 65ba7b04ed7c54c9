"""Names of topics and groups that a broker takes too.

Source: RocketMQ ``TopicValidator.validateTopic``, ``validateGroup``.
"""

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.topic_names import is_exempt, is_name
from cqstore.store.service.reading.arguments import check_texts

_MAX_TOPIC, _MAX_GROUP = 127, 255
"""Characters."""


def check_topic_name(topic: str) -> None:
    """Refuse a topic that a program cannot make.

    Raises:
        IllegalMessageError: a broker would not take it, or it is one of its own.
        TypeError: it is no text.
    """
    _check("topic", topic, _MAX_TOPIC)
    if is_exempt(topic):
        raise IllegalMessageError(
            f"invalid topic name {topic!r}: reserved for brokers and light queues"
        )


def is_topic_name(topic: str) -> bool:
    """Return whether a broker could have a topic of the name."""
    return len(topic) <= _MAX_TOPIC and is_name(topic)


def check_group_name(group: str) -> None:
    """Refuse a group that no broker would take.

    Raises:
        IllegalMessageError: it has other characters than letters, digits and ``%|_-``.
        TypeError: it is no text.
    """
    _check("group", group, _MAX_GROUP)


def _check(what: str, name: str, limit: int) -> None:
    check_texts(**{what: name})
    if len(name) > limit or not is_name(name):
        raise IllegalMessageError(
            f"invalid {what} name {name!r:.200}: expected 1 to {limit} letters, digits or %|_-"
        )
