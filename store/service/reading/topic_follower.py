"""TopicFollower: messages of a topic that the queues of a read-only store do not have (yet).

A store that another process writes has records in its log before a reader sees their units; RocksDB
keeps those in memory. So the records are read from the log, from where the queues end, and then as
they arrive.
"""

from collections.abc import Iterator
from typing import Protocol

from cqstore.store.errors import CorruptionError
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.log_follower import LogFollower
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import LMQ_PREFIX, MessageProperty, is_queued
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.reading.topic_reader import TopicMessage


class FollowedComponents(Protocol):
    """The components of a read-only store that are needed, see ``StoreComponents``."""

    layout: StoreLayout
    queues: ConsumeQueueStore
    deleted: DeletedTopics

    @property
    def log(self) -> CommitLog:
        """Return the log, to whose files another process may append."""


class TopicFollower:
    """Reads records after the ends of the queues of ``store``, a read-only store. One thread.

    A record is visible when it is complete in the log, which may be before it is on disk or was
    acknowledged. Prepared and rolled back messages are in no queue, and left out; so are those of
    topics that were deleted when the store was opened.
    """

    def __init__(self, store: FollowedComponents) -> None:
        self._queues = store.queues
        self._deleted = store.deleted
        low, high = store.log.min_phy_offset(), store.log.max_phy_offset()
        start = min(max(store.queues.dispatch_from_phy_offset(), low, 0), high)
        self.opened_at = high
        """Phy offset at which the log ended when the store was opened."""
        self._log = LogFollower(store.layout.log_folders, start)
        self._shown: dict[tuple[str, int], int] = {}

    def poll(self, topic: str, end: int | None = None) -> Iterator[TopicMessage]:
        """Yield the messages of ``topic`` that exist now and were not read yet, in log order.

        Messages of a light queue are found in the records of the topics to which they were put.
        With ``end`` it stops at the first record that begins at or after it, and yields nothing
        more.

        Raises:
            RefusedStoreError: the log was truncated.
            StoreIOError: the log cannot be read.
        """
        for message in self._log.poll():
            if end is not None and message.phy_offset >= end:
                return
            place = self._place(message, topic)
            if place is not None and not self._is_shown(message, topic, place[0]):
                yield TopicMessage(*place, message)

    @property
    def has_passed_opening(self) -> bool:
        """Return whether it has read all records that existed when the store was opened.

        From there on it does not use the store.
        """
        return self._log.phy_offset >= self.opened_at

    def topics(self) -> set[str]:
        """Return the topics whose queues lack messages; reads the current log."""
        found = set[str]()
        for message in self._log.poll():
            topic = message.topic
            place = None if topic in found else self._place(message, topic)
            if place is not None and not self._is_shown(message, topic, place[0]):
                found.add(topic)
        return found

    def passed_over(self) -> Iterator[CorruptionError]:
        """Yield, once each, the errors of damaged records, and of records that expired unread."""
        faults, self._log.passed_over = self._log.passed_over, []
        yield from faults
        if self._log.expired:
            yield CorruptionError(
                f"{self._log.expired} bytes of the log were deleted before they were read",
                phy_offset=self._log.phy_offset,
            )
            self._log.expired = 0

    def _is_shown(self, message: StoredMessage, topic: str, queue_id: int) -> bool:
        """Return whether the queue of an opened store has the message."""
        if message.phy_offset >= self.opened_at:
            return False
        shown = self._shown.get((topic, queue_id))
        if shown is None:
            queue = self._queues.queue(topic, queue_id)
            last = next(iter(queue.iterate(queue.max_offset() - 1)), None)
            shown = self._shown[topic, queue_id] = -1 if last is None else last.phy_offset
        return message.phy_offset <= shown

    def _place(self, message: StoredMessage, topic: str) -> tuple[int, int] | None:
        """Return queue id and offset of the message in ``topic``; ``None``: it is not in it."""
        if message.is_passed_over or not is_queued(message.sys_flag):
            return None
        if self._deleted.has_record(topic, message.phy_offset):
            return None
        if message.topic == topic:
            return message.queue_id, message.queue_offset
        if not topic.startswith(LMQ_PREFIX):
            return None
        offset = light_offsets(message).get(topic)
        return None if offset is None else (0, offset)


def light_offsets(message: StoredMessage) -> dict[str, int]:
    """Return the light queues that have a unit of ``message``, and the queue offset in each."""
    properties = message.properties
    names = properties.get(MessageProperty.INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(MessageProperty.INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if len(names) != len(offsets):
        return {}
    found = zip(names, offsets, strict=True)
    return {name: int(offset) for name, offset in found if offset.isdecimal()}
