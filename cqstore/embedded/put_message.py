"""Creates the message of a put to an embedded log, and checks the result of the put."""

from collections.abc import Mapping

from cqstore.embedded.errors import PutRefusedError
from cqstore.embedded.log_topics import LogTopics
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.record.properties import check_key, check_tag
from cqstore.store.service.reading.arguments import (
    check_kind,
    check_numbers,
    check_optional_texts,
    check_texts,
)
from cqstore.store.service.results import PutMessageResult


def put_message_of(
    topics: LogTopics,
    topic: str,
    body: bytes,
    key: str | None,
    tags: str | None,
    properties: Mapping[str, str] | None,
    queue_id: int | None,
    delay_level: int | None,
) -> Message:
    """Return the message to put, with the queue for its key; see ``EmbeddedLog.put``.

    Raises:
        IllegalMessageError: ``key`` is not a single key, or ``tags`` not a single tag.
        RefusedStoreError: the topic has no such queue, or the delay level is invalid.
        StoreError: as for ``LogTopics.queue_of``.
    """
    if properties is not None:
        check_kind(Mapping, "a mapping", properties=properties)
    check_optional_texts(key=key, tags=tags)
    given = dict(properties or {})
    if delay_level is not None:
        given[MessageProperty.DELAY] = str(checked_level(delay_level))
    if key is not None:
        check_key(key)
        given[MessageProperty.KEYS] = key
    if tags is not None:
        check_tag(tags)
        given[MessageProperty.TAGS] = tags
    if type(topic) is not str:
        check_texts(topic=topic)
    chosen = topics.queue_of(topic, key)
    if queue_id is not None:
        check_numbers(queue_id=queue_id)
        queues = topics.create(topic)
        if not 0 <= queue_id < queues:
            raise RefusedStoreError(
                f"topic {topic!r} has no queue {queue_id}: expected 0 to {queues - 1}"
            )
        chosen = int(queue_id)
    return Message(topic, body, chosen, given)


def checked_level(level: int) -> int:
    """Return ``level`` if it is an integer, as a delay level must be.

    Raises:
        RefusedStoreError: it is not an integer.
    """
    if type(level) is not int:
        raise RefusedStoreError(f"invalid delay level {level!r}: expected an integer")
    return level


def stored(result: PutMessageResult) -> PutMessageResult:
    """Return the result of a put that has stored its message.

    Raises:
        PutRefusedError: the message was not stored.
    """
    if not result.ok:
        raise PutRefusedError(
            f"the message was not stored: {result.reason or result.status.name}",
            status=result.status,
        )
    return result
