"""Checks of the topics and queues that a command names; errors suggest similar names."""

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice

from cqstore.store.errors import NoSuchQueueError
from cqstore.store.queue.topic_choice import is_left, left_topics
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_COMPARED = 20_000
"""Maximum number of topic names that an unknown name is compared with; more take seconds."""
_SHOWN = 8


def require_topic(store: MessageStore, topic: str) -> list[int]:
    """Return the queue ids of a topic, ascending.

    Raises:
        NoSuchQueueError: the topic has no queue; the error suggests similar names.
    """
    ids = sorted(key.queue_id for key in store.queue_keys(topic))
    if not ids and topic in left_topics(components_of(store).layout.backend_state.choice):
        raise NoSuchQueueError(is_left(topic))
    if not ids:
        raise NoSuchQueueError(f"no topic {topic!r} in this store{near(store, topic)}")
    return ids


def require_queue(store: MessageStore, topic: str, queue_id: int) -> None:
    """Refuse a queue that does not exist.

    Raises:
        NoSuchQueueError: the topic does not exist, or has no queue with this id.
    """
    ids = require_topic(store, topic)
    if queue_id not in ids:
        raise NoSuchQueueError(
            f"topic {topic!r} has no queue {queue_id}; it has {', '.join(_listed(ids))}"
        )


def near(store: MessageStore, topic: str) -> str:
    """Return topics with similar names as the end of an error message."""
    names = list(islice(store.topics(), _COMPARED))
    found = get_close_matches(topic, names, n=3)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def _listed(ids: list[int]) -> Iterator[str]:
    """Yield the ids, with consecutive ids as one range."""
    if ids == list(range(ids[0], ids[-1] + 1)) and len(ids) > 1:
        yield f"{ids[0]} to {ids[-1]}"
        return
    yield from map(str, ids[:_SHOWN])
    if len(ids) > _SHOWN:
        yield f"{len(ids) - _SHOWN} more up to {ids[-1]}"
