"""ReadInterceptor: sees each read of an open store.

A store has none, and then a read costs one look at an attribute more; or a mirror, a recorder, or
a recorder in front of a mirror.
"""

from typing import Protocol

from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.reading.puller import Puller, TagFilter
from cqstore.store.service.results import GetMessageResult


class ReadInterceptor(Protocol):
    """Answers reads as the store would. Any thread may call any method."""

    def samples_this(self) -> bool:
        """Return whether to intercept the read that comes now; else it goes past."""

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull, see ``Puller.get``."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset whose record is in the log."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
    ) -> int:
        """Return the offset that a time leads to."""

    def estimate(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate how many messages of a range match a filter."""


class DirectReads:
    """Answers reads from the store's own queues: what is behind the last interceptor."""

    def __init__(self, puller: Puller, queues: ConsumeQueueStore) -> None:
        self.pull = puller.get
        self._queues = queues

    def samples_this(self) -> bool:
        """Return False: no read is to be noted."""
        return False

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the minimum of the store's queue."""
        return self._queues.queue(topic, queue_id).min_offset()

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of the store's queue."""
        return self._queues.queue(topic, queue_id).max_offset()

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
    ) -> int:
        """Search in the store's queue."""
        return self._queues.queue(topic, queue_id).offset_by_time(timestamp, boundary)

    def estimate(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate from the store's queue."""
        queue = self._queues.queue(topic, queue_id)
        return queue.estimate_message_count(from_offset, to_offset, tags.may_match, tags.plain)
