"""Names of topics and groups that a broker takes too.

Source: RocketMQ ``TopicValidator.validateTopic``, ``validateGroup``.
"""

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.topic_names import is_exempt, is_name

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
        raise IllegalMessageError(f"the topic {topic!r} is a broker's own, or a light queue")


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
    if not isinstance(name, str):
        raise TypeError(f"{what} is {name!r}, {type(name).__name__}: not a text")
    if len(name) > limit or not is_name(name):
        raise IllegalMessageError(
            f"{name!r:.200} is no name of a {what}: up to {limit} letters, digits and %|_-"
        )
