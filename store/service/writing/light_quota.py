"""LightQuota: how many light queues a store may have.

RocketMQ has the setting and the status but enforces neither; here they hold where the setting is
given. Light queues are counted once, when the first one is put to.
"""

from cqstore.store.errors import IllegalMessageError
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.dispatching.queue_offsets import QueueOffsets


class LightQuotaError(IllegalMessageError):
    """A message would make more light queues than the store may have."""


class LightQuota:
    """Counts the light queues of one store; used under the append lock."""

    def __init__(self, queues: ConsumeQueueStore, offsets: QueueOffsets, limit: int | None) -> None:
        """``limit``: ``None`` for any number."""
        self._queues = queues
        self._offsets = offsets
        self._limit = limit
        self._count: int | None = None
        self._counted_before = False

    def check(self, new: int) -> None:
        """Admit a message that makes ``new`` light queues; ``count`` them when they are made.

        Raises:
            LightQuotaError: there would be too many.
        """
        if self._limit is None or not new:
            return
        there = self._there()
        if there + new > self._limit:
            raise LightQuotaError(
                f"cannot add {new} light queues to the {there} that exist: maxLmqConsumeQueueNum is"
                f" {self._limit}"
            )

    def count(self, new: int) -> None:
        """Count light queues that are made; no unit of theirs waits for dispatch yet."""
        if self._limit is not None and new:
            self._count = self._there() + new

    def _there(self) -> int:
        if self._count is None:
            held = self._offsets.held_topics  # they are about to be deleted
            self._count = sum(topic not in held for topic in self._queues.topics(LMQ_PREFIX))
        return self._count

    def hold(self) -> None:
        """Take note that topics are held from now on, see ``release``."""
        self._counted_before = self._count is not None

    def release(self, gone: int) -> None:
        """Take note that ``gone`` light queues among the topics that are held were deleted."""
        if self._count is not None and self._counted_before:
            self._count -= gone
