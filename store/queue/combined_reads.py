"""CombinedReads: the reading half of the combined store. One part answers, light queues apart."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from store.queue.backend_replica import BackendReplica
from store.queue.changes import Changes
from store.queue.class_of_topic import ClassOfTopic
from store.queue.consume_queue import ConsumeQueue, PulledUnits
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import QueueStoreContext
from store.queue.facts import QueueSpan, QueueType
from store.queue.light_home import is_light
from store.queue.time_search import BoundaryType
from store.queue.units import CqUnit, QueueKey, UnitBlock
from store.record.message import LMQ_PREFIX


class CombinedReads(ConsumeQueueStore):
    """Asks ``_read``, of light queues ``_light`` if those lie apart, of ``read_topics`` another."""

    _read: ConsumeQueueStore
    _light: ConsumeQueueStore | None

    def __init__(self, context: QueueStoreContext) -> None:
        """Keep ``context``; touches no file."""
        super().__init__(context)
        self.changes = Changes()
        """The writes to all parts: between two of them the parts are alike."""
        self._apart: ClassOfTopic[str] | None = None  # the backend to read from, empty: as all
        # None before the parts are whole, and where no settings tell it.

    @abstractmethod
    def _live(self) -> list[BackendReplica]:
        """Return the parts that have not failed."""

    def reader(self, topic: str) -> ConsumeQueueStore:
        """Return the part that answers for ``topic`` now."""
        if self._light and is_light(topic):
            return self._light
        return self._read if self._apart is None else self._read_apart(topic, self._apart)

    def _read_apart(self, topic: str, apart: ClassOfTopic[str]) -> ConsumeQueueStore:
        """Return whom the settings name for ``topic``, if that one has all of it."""
        name = apart.of(topic)
        if not name or name == self._read.name:
            return self._read
        return next((s for s in self._complete_backends(topic) if s.name == name), self._read)

    def _complete_backends(self, topic: str) -> Iterator[ConsumeQueueStore]:
        """Yield those that have all units of ``topic``."""
        for part in self._live():
            if part.behind is None and part.accepts(topic):
                yield part.store

    def alike(self, topic: str) -> tuple[ConsumeQueueStore, ConsumeQueueStore] | None:
        """Return who answers for ``topic``, and a part that ought to answer alike.

        ``None``: no other part is whole and gets its units.
        """
        answers = self.reader(topic)
        others = (store for store in self._complete_backends(topic) if store is not answers)
        other = next(others, None)
        return None if other is None else (answers, other)

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield the queues of the store that is read; light queues, if they lie apart, last."""
        if topic is not None:
            yield from self.reader(topic).queues(topic, after)
            return
        if self._light is None or self._light is self._read:
            yield from self._read.queues(None, after, prefix)
            return
        if after is None or not is_light(after.topic):
            for key in self._read.queues(None, after, prefix):
                if not is_light(key.topic):
                    yield key
            after = None
        if LMQ_PREFIX.startswith(prefix) or is_light(prefix):
            yield from self._light.queues(None, after, max(prefix, LMQ_PREFIX, key=len))

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield those of the store that is read; light queues may be another one's."""
        return super().spans(topic, after) if self._light else self._read.spans(topic, after)

    def unit_timestamps(self, units: Iterable[tuple[QueueKey, int]]) -> Iterator[int]:
        """Ask the store that is read for all at once, unless some are another one's."""
        apart = self._light is not None or self._apart is not None
        return super().unit_timestamps(units) if apart else self._read.unit_timestamps(units)

    def queues_estimate(self) -> int | None:
        """Ask the store that is read; light queues apart count where those are more."""
        asked = (store.queues_estimate() for store in (self._read, self._light) if store)
        return max((count for count in asked if count is not None), default=None)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return that of the part that is read, which is the same from the recovery on.

        But who is to answer for a topic that is read apart may be set aside at any time.
        """
        if self._apart is not None and self._apart.of(topic):
            return _QueueApart(self, topic, queue_id)
        return self.reader(topic).queue(topic, queue_id)

    @property
    def units_per_file(self) -> int:
        """Ask the store that is read."""
        return self._read.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Return ``BATCH`` if any part says so, else ask the store that is read."""
        kinds = {part.store.queue_type(topic) for part in self._live()}
        return QueueType.BATCH if QueueType.BATCH in kinds else self.reader(topic).queue_type(topic)


class _QueueApart(ConsumeQueue):
    """A queue of a topic that is read apart: each call asks who is to answer."""

    __slots__ = ("_store",)

    def __init__(self, store: CombinedReads, topic: str, queue_id: int) -> None:
        self._store, self.context = store, store.context
        self.topic, self.queue_id = topic, queue_id

    def _now(self) -> ConsumeQueue:
        return self._store.reader(self.topic).queue(self.topic, self.queue_id)

    def max_offset(self) -> int:
        """Ask the one that is to answer."""
        return self._now().max_offset()

    def ends(self) -> tuple[int, int]:
        """Ask the one that is to answer."""
        return self._now().ends()

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Ask the one that is to answer."""
        return self._now().pull(queue_offset, max_count)

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Ask the one that is to answer."""
        return self._now().read_units(queue_offset, max_count)

    def unit_timestamp(self, queue_offset: int) -> int:
        """Ask the one that is to answer."""
        return self._now().unit_timestamp(queue_offset)

    def resolve_tags_code(self, tags_code: int) -> int | None:
        """Ask the one that is to answer."""
        return self._now().resolve_tags_code(tags_code)

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Ask the one that is to answer."""
        return self._now().iterate(queue_offset)

    def offset_by_time(self, timestamp: int, boundary: BoundaryType) -> int:
        """Ask the one that is to answer."""
        return self._now().offset_by_time(timestamp, boundary)
