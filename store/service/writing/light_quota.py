"""LightQuota: the limit of light queues of a store.

RocketMQ has the setting and the status but enforces neither; here they are enforced if the setting
is given. Light queues are counted once, at the first put to one.
"""

from cqstore.store.errors import IllegalMessageError
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.dispatching.queue_offsets import QueueOffsets


class LightQuotaError(IllegalMessageError):
    """A message would create more light queues than the store may have."""


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
        """Admit a message that creates ``new`` light queues; call ``count`` when they exist.

        Raises:
            LightQuotaError: the limit would be exceeded.
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
        """Count new light queues; no unit of theirs waits for dispatch yet."""
        if self._limit is not None and new:
            self._count = self._there() + new

    def _there(self) -> int:
        if self._count is None:
            held = self._offsets.held_topics  # they are about to be deleted
            self._count = sum(topic not in held for topic in self._queues.topics(LMQ_PREFIX))
        return self._count

    def hold(self) -> None:
        """Record that topics are held from now on, see ``release``."""
        self._counted_before = self._count is not None

    def release(self, gone: int, kept: int) -> None:
        """Record that ``gone`` light queues of the held topics were deleted, and ``kept`` were not.

        A count that was made while the topics were held has neither.
        """
        if self._count is not None:
            self._count += -gone if self._counted_before else kept
