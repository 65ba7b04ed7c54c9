"""Offsets in topics, which are removed together with the queues of a deleted topic.

A topic that is used again begins at queue offset 0. An offset that remains makes a group skip the
new messages, so a broker removes both. Entry points provide the tables (``cqstore.positions``):
functions that take the folder ``config``, topics and the owner's form, read the tables, and return
a ``Removal``.

Source: RocketMQ ``AdminBrokerProcessor.deleteTopicInBroker``.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from cqstore.store.entry_points import entries
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.positions"


class Removal(Protocol):
    """The offsets in some topics, as read from the tables. One thread at a time."""

    def is_current(self) -> bool:
        """Return whether no one else changed the tables since they were read."""

    def remove(self, topics: Collection[str]) -> None:
        """Remove the offsets in ``topics``, durably; all topics are among those that were read.

        Raises:
            StoreIOError: a table cannot be written.
        """


Planner = Callable[[Path, Collection[str], str | None], Removal]


class PositionOwner(Protocol):
    """An object in this process that keeps offsets of the store in memory."""

    @property
    def form(self) -> str:
        """Return the form of its tables, which nothing else changes."""

    def deleting(self, topics: Collection[str]) -> AbstractContextManager[None]:
        """Remove the offsets in ``topics``, durably, and accept none for them until the exit.

        Raises:
            StoreError: the offsets cannot be written.
        """


class _Reading:
    """Topics whose offsets are read together, and the removals, once they are read."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics, self.removals = topics, list[Removal]()


class TopicPositions:
    """The offsets of a store that is open for writing. One thread at a time deletes."""

    def __init__(self, config: Path) -> None:
        """Create the object for the tables in the folder ``config``; accesses no file."""
        self._config = config
        self._reading: _Reading | None = None
        self.owner: PositionOwner | None = None

    @contextmanager
    def read_once(self, topics: Collection[str]) -> Iterator[None]:
        """Read the tables once for all deletions in the block of only these ``topics``.

        They are read when the first of these topics is deleted, and again after others changed
        them. Another thread may end this early with a block of its own.
        """
        if self._reading is not None and self._reading.topics.issuperset(topics):
            yield
            return
        self._reading = _Reading(frozenset(topics))
        try:
            yield
        finally:
            self._reading = None

    def check(self, topics: Collection[str]) -> None:
        """Raise the error that ``deleting`` would raise; changes nothing.

        Raises:
            CorruptionError, RefusedStoreError, StoreIOError: as for ``deleting``.
        """
        self._removals(topics)

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
            for each in self._removals(topics):
                each.remove(topics)
            yield

    def _removals(self, topics: Collection[str]) -> list[Removal]:
        """Return a removal of each provider that has read the offsets in ``topics``."""
        reading = self._reading
        if reading is None or not reading.topics.issuperset(topics):
            return self._planned(topics)
        if not reading.removals or not all(each.is_current() for each in reading.removals):
            reading.removals = self._planned(reading.topics)
        return reading.removals

    def _planned(self, topics: Collection[str]) -> list[Removal]:
        form = None if self.owner is None else self.owner.form
        plans: list[Planner] = [load_whole(entry) for entry in entries(_GROUP)]
        return [plan(self._config, topics, form) for plan in plans]
