"""Changes to the offsets of a consumer group: reset, copy from another group, remove.

Source: RocketMQ ``AdminBrokerProcessor.resetOffset``, ``cloneGroupOffset``,
``ConsumerOffsetManager.cloneOffset``, ``removeOffset``.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from cqstore.broker.metadata.model import BrokerMetadata, Offsets, readings
from cqstore.broker.topic_kind import TopicKind, topic_kind
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.errors import NoSuchQueueError, RefusedStoreError
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.arguments import check_numbers
from cqstore.store.service.reading.store_times import Time, time_ms


class OffsetChange(NamedTuple):
    """Change of a group's offset in one queue."""

    topic: str
    queue_id: int
    before: int | None
    """``None``: the group has no committed offset."""
    after: int | None
    """``None``: the offset is removed."""


Target = Callable[[QueueKey, int, int], int]
"""Queue, its min offset and its max offset → the new offset of the group."""


def reset(
    store: MessageStore, found: BrokerMetadata, group: str, topic: str, queue_id: int | None,
    target: Target,
) -> Iterator[OffsetChange]:  # fmt: skip
    """Yield the new offset of each queue of ``topic``, or of queue ``queue_id``.

    Raises:
        NoSuchQueueError: there is no such queue.
    """
    row = found.offsets.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {})
    spans = [span for span in store.queue_spans(topic) if queue_id in {None, span.queue.queue_id}]
    if not spans:
        which = "queues" if queue_id is None else f"queue {queue_id}"
        raise NoSuchQueueError(f"topic {topic!r} has no {which}")
    for queue, low, high in spans:
        yield OffsetChange(topic, queue.queue_id, row.get(queue.queue_id), target(queue, low, high))


def copy(
    found: BrokerMetadata, source: str, group: str, topics: Collection[str]
) -> Iterator[OffsetChange]:
    """Yield the offsets of ``source`` for ``group``, in ``topics`` or all but retry topics."""
    for topic, row in rows_of(found, source).items():
        if topic in topics or (not topics and topic_kind(topic) is not TopicKind.RETRY):
            mine = found.offsets.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {})
            for queue_id, offset in sorted(row.items()):
                yield OffsetChange(topic, queue_id, mine.get(queue_id), offset)


def forget(found: BrokerMetadata, group: str, topics: Collection[str]) -> Iterator[OffsetChange]:
    """Yield the removal of all offsets of ``group``, in ``topics`` or in all topics."""
    for topic, row in rows_of(found, group).items():
        if not topics or topic in topics:
            for queue_id, offset in sorted(row.items()):
                yield OffsetChange(topic, queue_id, offset, None)


def rows_of(found: BrokerMetadata, group: str) -> dict[str, dict[int, int]]:
    """Return the offsets of ``group`` by topic.

    Raises:
        RefusedStoreError: a key ``topic@group`` can also belong to another group.
    """
    rows = {}
    for key, row in found.offsets.items():
        ways = list(readings(key))
        mine = [topic for topic, of in ways if of == group]
        if not mine:
            continue
        known = [way for way in ways if way[0] in found.topics and way[1] in found.groups]
        if len(ways) > 1 and [(mine[0], group)] != known:
            raise RefusedStoreError(
                f"the offsets of {key!r} are ambiguous: several topics and groups match: {ways}",
                path=found.path,
            )
        rows[mine[0]] = row
    return rows


def changed(offsets: Offsets, group: str, changes: Collection[OffsetChange]) -> Offsets:
    """Return a copy of ``offsets`` after ``changes``; topics without a queue are left out."""
    made = {key: dict(row) for key, row in offsets.items()}
    for change in changes:
        key = f"{change.topic}{TOPIC_GROUP_SEPARATOR}{group}"
        row = made.setdefault(key, {})
        if change.after is None:
            row.pop(change.queue_id, None)
        else:
            row[change.queue_id] = change.after
        if not row:
            del made[key]
    return made


def reset_target(store: MessageStore, to: str | int | None, time: Time | None) -> Target:
    """Return the target of a reset: ``to`` earliest, latest or an offset, or else by ``time``.

    Raises:
        RefusedStoreError: both arguments are given, or neither.
        TypeError: ``to`` is neither an end nor an offset.
    """
    if (to is None) == (time is None):
        raise RefusedStoreError("reset_group() takes exactly one of to= and time=")
    if time is not None:
        return at_time(store, time)
    if to == "latest":
        return end_of_queue
    if to == "earliest":
        return begin_of_queue
    check_numbers(to=to)
    assert to is not None
    return exactly(int(to))


def begin_of_queue(_queue: QueueKey, low: int, _high: int) -> int:
    """Return the min offset of a queue; a ``Target``."""
    return low


def end_of_queue(_queue: QueueKey, _low: int, high: int) -> int:
    """Return the max offset of a queue; a ``Target``."""
    return high


def at_time(store: MessageStore, time: Time) -> Target:
    """Return a target: the offset of the first message stored at or after a time.

    Raises:
        RefusedStoreError: the time is probably not in ms.
    """
    moment = time_ms(time, "time", up=True)
    return lambda queue, _low, _high: store.offset_at_time(*queue, moment)


def exactly(offset: int) -> Target:
    """Return a target: a fixed offset, which must be in range for the queue."""

    def target(queue: QueueKey, low: int, high: int) -> int:
        if not low <= offset <= high:
            raise RefusedStoreError(
                f"offset {offset} is out of range for queue {queue.queue_id} of topic"
                f" {queue.topic!r}: min offset {low}, max offset {high}"
            )
        return offset

    return target
