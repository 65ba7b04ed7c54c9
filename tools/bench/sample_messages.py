"""The messages that the demonstrations put, and a digest of all that a store returns."""

import hashlib
import sys
from collections.abc import Iterator
from itertools import islice

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore


def put_messages(
    store: MessageStore, count: int, topics: int, queues_a_topic: int, *, repeats: int, limit: int
) -> None:
    """Put ``count`` messages in lists of ``limit``; a refusal ends the process.

    ``repeats`` makes their bodies longer.
    """
    left = _messages(count, topics, queues_a_topic, repeats)
    while group := list(islice(left, limit)):
        for result in store.put_messages(group):
            if not result.ok:
                sys.exit(f"refused: {result.reason}")


def _messages(count: int, topics: int, queues_a_topic: int, repeats: int) -> Iterator[Message]:
    """Yield the messages, neighbours in different queues."""
    for number in range(count):
        queue = number * 7919 % (topics * queues_a_topic)
        yield Message(
            topic=f"demo_topic_{queue % topics:05d}",
            queue_id=queue // topics,
            body=f"message {number} ".encode() * repeats,
            properties={"TAGS": f"Tag{number % 5}"},
        )


def read_back(store: MessageStore) -> tuple[str, int]:
    """Pull every queue from its first to its last message; return a digest of all and the count."""
    digest, count = hashlib.sha256(), 0
    for topic, queue_id in sorted(store.queue_keys()):
        offset = store.min_offset(topic, queue_id)
        while offset < store.max_offset(topic, queue_id):
            result = store.get_message(topic, queue_id, offset)
            for queue_offset, message in zip(result.queue_offsets, result.messages(), strict=True):
                place = f"{message.topic} {message.queue_id} {queue_offset} "
                digest.update(place.encode())
                digest.update(message.stored_body)
                count += 1
            offset = result.next_begin_offset
    return digest.hexdigest(), count
