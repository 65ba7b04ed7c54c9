"""Names of topics and groups that a broker accepts too.

Source: RocketMQ ``TopicValidator.validateTopic``, ``validateGroup``.
"""

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.topic_names import is_exempt, is_name
from cqstore.store.service.reading.arguments import check_texts

_MAX_TOPIC, _MAX_GROUP = 127, 255
"""Maximum lengths in characters."""


def check_topic_name(topic: str) -> None:
    """Refuse a topic name that a program cannot use.

    Raises:
        IllegalMessageError: a broker would not accept the name, or it is reserved.
        TypeError: the name is not a string.
    """
    _check("topic", topic, _MAX_TOPIC)
    if is_exempt(topic):
        raise IllegalMessageError(
            f"invalid topic name {topic!r}: reserved for brokers and light queues"
        )


def is_topic_name(topic: str) -> bool:
    """Return whether a broker accepts the name for a topic."""
    return len(topic) <= _MAX_TOPIC and is_name(topic)


def check_group_name(group: str) -> None:
    """Refuse a group name that a broker would not accept.

    Raises:
        IllegalMessageError: it is too long, or has characters other than letters, digits, ``%|_-``.
        TypeError: the name is not a string.
    """
    _check("group", group, _MAX_GROUP)


def _check(what: str, name: str, limit: int) -> None:
    check_texts(**{what: name})
    if len(name) > limit or not is_name(name):
        raise IllegalMessageError(
            f"invalid {what} name {name!r:.200}: expected 1 to {limit} letters, digits or %|_-"
        )
