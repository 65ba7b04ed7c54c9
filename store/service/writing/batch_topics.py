"""BatchTopics: the topics whose messages are put as inner batches, and how a topic becomes one.

The folder of its batch queues makes a topic one. For a topic without queues, the broker's metadata
counts (``queue.type=BatchCQ``); it is read when the first such topic is put, if there is any.

Source: RocketMQ ``QueueTypeUtils.getCQType``, ``TopicAttributes.QUEUE_TYPE_ATTRIBUTE``.
"""

from collections.abc import Callable

from cqstore.store.broker_files.known_topics import topic_table
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import IllegalMessageError, RefusedStoreError, StoreError
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QUEUE_TYPE, QueueType
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.queue_offsets import not_batch, not_plain

_LOG = StoreLogger(__name__)


class BatchTopics:
    """The BatchCQ topics of one store. Any thread may use it."""

    def __init__(
        self,
        paths: StorePaths,
        queues: ConsumeQueueStore,
        dispatcher: Dispatcher,
        check_writable: Callable[[], object],
    ) -> None:
        """The folder ``config`` of ``paths`` has the broker's metadata."""
        self._config = paths.config
        self._queues = queues
        self._dispatcher = dispatcher
        self._check_writable = check_writable
        self._known: frozenset[str] | None = None  # names in the metadata, once it was read

    def create(self, topic: str) -> None:
        """Make a topic without queues a BatchCQ topic, see ``MessageStore.create_batch_topic``.

        Raises:
            IllegalMessageError: the name is invalid, or the backend has no batch queues.
            RefusedStoreError: the topic has other queues.
            StoreError: as for ``MessageStore.put_message``.
        """
        self._queues.check_topic(topic)
        self._check_writable()
        if not self.has(topic):
            self._dispatcher.when_caught_up(lambda: self._create(topic))

    def require(self, topic: str) -> None:
        """Make ``topic`` a BatchCQ topic if the broker's metadata says so, unless it is one.

        Raises:
            IllegalMessageError: it is not a BatchCQ topic.
            CorruptionError, StoreIOError: the metadata cannot be read.
        """
        if self.has(topic):
            return
        if not self._queues.takes_batches(topic) or topic not in self._read():
            raise not_batch(topic)
        try:
            self.create(topic)
        except RefusedStoreError as exc:
            raise IllegalMessageError(exc.reason) from exc

    def refuse_plain(self, topic: str) -> None:
        """Refuse plain messages for a BatchCQ topic, also for one that has no queues yet.

        Raises:
            IllegalMessageError: it is a BatchCQ topic.
        """
        if self.covers(topic):
            raise not_plain(topic)

    def covers(self, topic: str) -> bool:
        """Return whether it is a BatchCQ topic, also if only the metadata has it yet."""
        return self.has(topic) or (self._queues.takes_batches(topic) and self._is_known(topic))

    def has(self, topic: str) -> bool:
        """Return whether the topic has batch queues, or was created for them."""
        return self._dispatcher.pending.offsets.has_batches(topic)

    def _is_known(self, topic: str) -> bool:
        """Return whether the metadata that was read first has this topic as a BatchCQ topic."""
        known = self._known
        if known is None:
            try:
                known = self._read()
            except StoreError as exc:
                _LOG.warning("cannot read which topics are BatchCQ topics: %s", exc)
                self._known = known = frozenset()
        return topic in known

    def _read(self) -> frozenset[str]:
        """Return the BatchCQ topics in the broker's metadata.

        Raises:
            CorruptionError, StoreIOError: the metadata cannot be read.
        """
        table = topic_table(self._config) if is_dir(self._config) else None
        self._known = known = frozenset(
            topic
            for topic, row in (table.topics.items() if table is not None else ())
            if isinstance(attributes := row.get("attributes"), dict)
            and attributes.get(QUEUE_TYPE) == QueueType.BATCH.value
        )
        return known

    def _create(self, topic: str) -> None:
        """Create the folder; no thread puts, and every unit is in its queue."""
        if self.has(topic):  # another thread was faster
            return
        if next(self._queues.queues(topic), None) is not None:
            raise RefusedStoreError(
                f"cannot create the BatchCQ topic {topic!r}: it has queues with one unit per"
                " message; delete the topic first, or use another name"
            )
        self._queues.create_batch_topic(topic)
