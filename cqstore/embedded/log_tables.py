"""LogTables: topics and consumer offsets of one open store, which its process maintains."""

from collections.abc import Callable, Collection
from typing import NamedTuple, Self

from cqstore.broker.conversion.owned_tables import OwnedTables
from cqstore.embedded.consumer_offsets import ConsumerOffsets
from cqstore.embedded.log_topics import LogTopics
from cqstore.store.progress import noop
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class LogTables(NamedTuple):
    """The tables of one store that was opened for writing."""

    topics: LogTopics
    offsets: ConsumerOffsets

    @classmethod
    def take_over(
        cls,
        store: MessageStore,
        queues: int,
        interval: float,
        on_deleted: Callable[[Collection[str]], object] = noop,
        max_new_topics: int | None = None,
    ) -> Self:
        """Read the tables of ``store``; they are written from now on, and closed with the store.

        ``queues`` is the number of queues of a new topic; ``interval`` and ``on_deleted``: see
        ``ConsumerOffsets``; ``max_new_topics``: see ``LogTopics``.

        Raises:
            StoreError: a table cannot be read, or ``queues`` is out of range.
        """
        components = components_of(store)
        backends = [each.name for each in components.queues.backends()]
        tables = OwnedTables(components.paths, backends, components.config)
        components.services.append(tables)
        offsets = ConsumerOffsets(store, tables.offsets, interval, on_deleted)
        components.clean.positions.owner = offsets
        topics = LogTopics(store, tables.topics, queues, offsets.forget_topic, max_new_topics)
        offsets.start()
        return cls(topics, offsets)
