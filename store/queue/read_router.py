"""ReadRouter: selects the backend that serves a topic."""

from collections.abc import Iterator, Sequence

from cqstore.store.errors import NoSuchQueueError
from cqstore.store.queue.backend_replica import BackendReplica
from cqstore.store.queue.class_of_topic import ClassOfTopic
from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits, PulledUnits
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import UnitLocation
from cqstore.store.queue.light_home import is_light
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.topic_choice import is_left, takes_batches
from cqstore.store.queue.units import CqUnit, QueueKey, UnitBlock
from cqstore.store.record.message import LMQ_PREFIX


class ReadRouter:
    """Selects the backend of a combined store that serves a topic.

    This is ``read``; for light queues that only one backend has, ``light``; for topics that the
    settings name in ``apart``, the backend named there, if it has all of the topic.
    """

    def __init__(
        self, read: ConsumeQueueStore, replicas: Sequence[BackendReplica], left: frozenset[str]
    ) -> None:
        """Route to ``read``, one of ``replicas``, and to others that have not failed.

        ``left``: topics that a move left in files, see ``topic_choice``.
        """
        self.read = read
        self._left = left
        self._replicas = replicas
        self.light: ConsumeQueueStore | None = None
        """The only backend with the light queues; ``None``: all backends have them."""
        self.apart: ClassOfTopic[str] | None = None
        """The backend that serves a topic, empty: ``read``. ``None`` until all backends have caught
        up, and without such settings."""

    def reader(self, topic: str) -> ConsumeQueueStore:
        """Return the backend that serves ``topic`` now.

        Raises:
            NoSuchQueueError: a move left the topic in files that are not in use.
        """
        if topic in self._left and not takes_batches(self._replicas, topic):
            raise NoSuchQueueError(is_left(topic))
        if self.light and is_light(topic):
            return self.light
        return self.read if self.apart is None else self._read_apart(topic, self.apart)

    def _read_apart(self, topic: str, apart: ClassOfTopic[str]) -> ConsumeQueueStore:
        """Return the backend that the settings name for ``topic``, if it has all its units."""
        name = apart.of(topic)
        if not name or name == self.read.name:
            return self.read
        return next((s for s in self._complete_backends(topic) if s.name == name), self.read)

    def _complete_backends(self, topic: str) -> Iterator[ConsumeQueueStore]:
        """Yield the backends that have all units of ``topic``."""
        for replica in [each for each in self._replicas if each.failure is None]:
            if replica.lags_from is None and replica.accepts(topic):
                yield replica.store

    def alike(self, topic: str) -> tuple[ConsumeQueueStore, ConsumeQueueStore] | None:
        """Return the backend that serves ``topic``, and another one with the same units.

        ``None``: no other backend has all of its units.
        """
        answers = self.reader(topic)
        others = (store for store in self._complete_backends(topic) if store is not answers)
        other = next(others, None)
        return None if other is None else (answers, other)

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield the queues of the store that is read; separately stored light queues are last."""
        if topic is not None:
            yield from self.reader(topic).queues(topic, after)
            return
        if self.light is None or self.light is self.read:
            yield from self.read.queues(None, after, prefix)
            return
        if after is None or not is_light(after.topic):
            for key in self.read.queues(None, after, prefix):
                if not is_light(key.topic):
                    yield key
            after = None
        if LMQ_PREFIX.startswith(prefix) or is_light(prefix):
            yield from self.light.queues(None, after, max(prefix, LMQ_PREFIX, key=len))


class QueueApart(ConsumeQueue):
    """A queue of a topic that is read from another backend, which is selected at each call.

    That backend may be detached at any time.
    """

    __slots__ = ("_router",)

    def __init__(
        self, router: ReadRouter, context: QueueStoreContext, topic: str, queue_id: int
    ) -> None:
        """Use ``router`` to find the backend of ``topic``."""
        self._router, self.context = router, context
        self.topic, self.queue_id = topic, queue_id

    def _now(self) -> ConsumeQueue:
        return self._router.reader(self.topic).queue(self.topic, self.queue_id)

    def max_offset(self) -> int:
        """Call the backend that serves the topic."""
        return self._now().max_offset()

    def ends(self) -> tuple[int, int]:
        """Call the backend that serves the topic."""
        return self._now().ends()

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Call the backend that serves the topic."""
        return self._now().pull(queue_offset, max_count)

    def fast_units(self, queue_offset: int, max_count: int) -> FastUnits | None:
        """Call the backend that serves the topic."""
        return self._now().fast_units(queue_offset, max_count)

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Call the backend that serves the topic."""
        return self._now().read_units(queue_offset, max_count)

    def unit_timestamp(self, queue_offset: int) -> int:
        """Call the backend that serves the topic."""
        return self._now().unit_timestamp(queue_offset)

    def unit_location(self, queue_offset: int) -> UnitLocation:
        """Call the backend that serves the topic."""
        return self._now().unit_location(queue_offset)

    def resolve_tags_code(self, tags_code: int) -> int | None:
        """Call the backend that serves the topic."""
        return self._now().resolve_tags_code(tags_code)

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Call the backend that serves the topic."""
        return self._now().iterate(queue_offset)

    def offset_by_time(self, timestamp: int, boundary: BoundaryType) -> int:
        """Call the backend that serves the topic."""
        return self._now().offset_by_time(timestamp, boundary)
