"""LogTopics: the topics of a log and their numbers of queues, stored as a broker stores them.

The number is fixed before the first message of a topic is put: messages with the same key are in
the same queue as long as the number does not change.

Source: RocketMQ ``TopicConfigManager``, ``SelectMessageQueueByHash``.
"""

from collections.abc import Callable, Collection
from itertools import count

from cqstore.broker.metadata.model import Json
from cqstore.broker.metadata.owned_table import OwnedTable, Rows
from cqstore.embedded.errors import TooManyTopicsError
from cqstore.embedded.names import check_topic_name
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.progress import noop
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.made_topics import TopicQueues, topic_row
from cqstore.store.service.opening.components import components_of

_MAY_WRITE = 2
_MAX_QUEUES = 1 << 16
_DEFAULT_QUEUES = 16
"""Number of queues of a row without one, as in RocketMQ's ``TopicConfig``."""


class LogTopics:
    """The topics of one open store. Any thread; a new topic is durable before it is used."""

    def __init__(
        self,
        store: MessageStore,
        table: OwnedTable,
        queues: int,
        on_new: Callable[[str], object],
        max_new: int | None = None,
    ) -> None:
        """Take over the topics in ``table``; ``queues`` is the default for new topics.

        ``on_new`` is called with topics that have no queues. At most ``max_new`` topics are
        created; ``None``: no limit.

        Raises:
            RefusedStoreError: ``queues`` is out of range.
        """
        _check_count(queues)
        self._store = store
        self._queues = queues
        self._on_new = on_new
        self._table = table
        self._rows: Rows = table.take()
        self._writable: dict[str, int] = {}  # queues per topic, as used by puts
        self._lock = CheckedLock("the creation of a topic")  # guards _rows and the table
        self._turns = count()
        self._max_new, self._new = max_new, 0
        self.on_created: Callable[[str, Json], object] = noop
        """Called with each topic that was created, and its row."""

    def names(self) -> list[str]:
        """Return the names of the topics in the table."""
        return sorted(self._rows)

    def create(self, topic: str, queues: int | None = None) -> int:
        """Add ``topic`` to the table, durably; return its number of writable queues.

        The result is 0 for a topic that is being drained. Its readers are not affected.

        Raises:
            IllegalMessageError: a broker would not accept the name.
            RefusedStoreError: the topic exists with a different number of queues.
            TooManyTopicsError: the limit for new topics was reached.
            CorruptionError: the table has an invalid number of queues.
            StoreIOError: the table cannot be written; nothing has changed.
        """
        self.create_unless_known(topic, queues)
        found = self._number(topic, "writeQueueNums")
        if queues is not None and queues != found:
            raise RefusedStoreError(
                f"topic {topic!r} has {found} queues, not {queues}: the number is fixed when the"
                " topic is created"
            )
        return found

    def create_unless_known(self, topic: str, queues: int | None = None) -> None:
        """Create ``topic`` with ``queues`` queues, unless it exists with any number of queues.

        Raises:
            StoreError: as for ``create``.
        """
        check_topic_name(topic)
        if queues is not None:
            _check_count(queues)
        if topic not in self._rows:
            with self._lock.entry():
                if topic not in self._rows:
                    self._create(topic, queues or self._queues)

    def knows(self, topic: str) -> bool:
        """Return whether ``topic`` is in the table."""
        return topic in self._rows

    def rows(self) -> dict[str, Json]:
        """Return a copy of the table: topic → its configuration."""
        with self._lock.entry():
            return {topic: dict(row) for topic, row in self._rows.items()}

    def forget(self, topics: Collection[str]) -> None:
        """Remove ``topics``, whose queues were deleted, from the table, durably.

        Raises:
            StoreIOError: the table cannot be written; nothing has changed.
        """
        with self._lock.entry():
            if known := [topic for topic in topics if topic in self._rows]:
                self._table.write(dict.fromkeys(known))
            for topic in topics:
                self._rows.pop(topic, None)
                self._writable.pop(topic, None)

    def queue_of(self, topic: str, key: str | None) -> int:
        """Return the queue for a message: by the hash of its key, or else each queue in turn.

        Raises:
            StoreError: as for ``create``.
        """
        queues = self._writable.get(topic)
        if queues is None:
            queues = self.create(topic)
            if not queues:
                raise RefusedStoreError(
                    f"topic {topic!r} accepts no messages: it is being drained (writeQueueNums=0)"
                )
            perm = self._rows[topic].get("perm", _MAY_WRITE)
            if not isinstance(perm, int) or not perm & _MAY_WRITE:
                raise RefusedStoreError(f"topic {topic!r} is not writable: perm is {perm!r}")
            self._writable[topic] = queues
        if key is None:
            return next(self._turns) % queues
        return abs(java_hash(key)) % queues

    def queues_to_read(self, topic: str) -> list[int]:
        """Return the ids of all queues of ``topic`` that have or may get messages.

        Raises:
            StoreError: as for ``create``.
        """
        if topic.startswith(LMQ_PREFIX):
            return [0]
        self.create(topic)
        there = {key.queue_id for key in self._store.queue_keys(topic)}
        return sorted(there.union(range(self._number(topic, "readQueueNums"))))

    def _create(self, topic: str, queues: int) -> None:
        if self._max_new is not None and self._new >= self._max_new:
            raise TooManyTopicsError(
                f"cannot create topic {topic!r}: the limit of {self._max_new} new topics is reached"
            )
        there = [key.queue_id + 1 for key in self._store.queue_keys(topic)]
        if not there:
            self._on_new(topic)
        row = topic_row(topic, TopicQueues(queues=max([queues, *there])))
        self._table.write({topic: row})
        self._rows[topic] = row
        self._new += 1
        self.on_created(topic, row)

    def _number(self, topic: str, name: str) -> int:
        """Return a number of queues from the table of topics.

        Raises:
            CorruptionError: the value is not a valid number of queues.
        """
        found = self._rows[topic].get(name, _DEFAULT_QUEUES)
        if type(found) is not int or not 0 <= found <= _MAX_QUEUES:
            raise CorruptionError(
                f"invalid {name} of topic {topic!r}", expected=f"0 to {_MAX_QUEUES}",
                path=components_of(self._store).paths.topics, got=repr(found),
            )  # fmt: skip
        return found


def _check_count(queues: int) -> None:
    if type(queues) is not int or not 0 < queues <= _MAX_QUEUES:
        raise RefusedStoreError(f"invalid number of queues {queues!r}: expected 1 to {_MAX_QUEUES}")
