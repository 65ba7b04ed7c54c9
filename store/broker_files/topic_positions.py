"""Offsets in topics, which are removed together with the queues of a deleted topic.

A topic that is used again begins at queue offset 0. An offset that remains makes a group skip the
new messages, so a broker removes both. Entry points provide the tables (``cqstore.positions``):
functions that take the folder ``config`` and topics, read the tables, and return the changes to
write.

Source: RocketMQ ``AdminBrokerProcessor.deleteTopicInBroker``.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from cqstore.store.entry_points import entries
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.positions"
Planner = Callable[[Path, Collection[str]], "list[Callable[[], None]]"]


class PositionOwner(Protocol):
    """An object in this process that keeps offsets of the store in memory."""

    def deleting(self, topics: Collection[str]) -> AbstractContextManager[None]:
        """Remove the offsets in ``topics``, durably, and accept none for them until the exit.

        Raises:
            StoreError: the offsets cannot be written.
        """


class TopicPositions:
    """The offsets of a store that is open for writing. One thread at a time deletes."""

    def __init__(self, config: Path) -> None:
        """Create the object for the tables in the folder ``config``; accesses no file."""
        self._config = config
        self.owner: PositionOwner | None = None

    def check(self, topics: Collection[str]) -> None:
        """Raise the error that ``deleting`` would raise; changes nothing.

        Raises:
            CorruptionError, RefusedStoreError, StoreIOError: as for ``deleting``.
        """
        self._planned(topics)

    def remove(self, topics: Collection[str]) -> None:
        """Remove the offsets in ``topics``, which have no queues, as ``deleting`` does."""
        with self.deleting(topics):
            pass

    @contextmanager
    def deleting(self, topics: Collection[str]) -> Iterator[None]:
        """Remove the offsets in ``topics``, durably; the caller deletes the queues in the block.

        Offsets are removed before queues: after a crash in between a group reads messages again,
        and skips none.

        Raises:
            CorruptionError: a table cannot be read.
            RefusedStoreError: a table is in a form that cannot be changed here.
            StoreIOError: a table cannot be written.
        """
        owned = nullcontext() if self.owner is None else self.owner.deleting(topics)
        with owned:
            for change in self._planned(topics):
                change()
            yield

    def _planned(self, topics: Collection[str]) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        for entry in entries(_GROUP):
            plan: Planner = load_whole(entry)
            found += plan(self._config, topics)
        return found
