"""GroupMembers: the consumers of one group and topic in this process, and their queues.

A queue has one consumer at a time. It is handed over when its consumer requests its next message,
is closed, or is garbage-collected: then everything delivered and committed is before the handover.
"""

import weakref
from collections.abc import Collection
from itertools import count
from typing import Protocol

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import RefusedStoreError


class Member(Protocol):
    """One consumer of a group, as seen by the group."""

    @property
    def is_closed(self) -> bool:
        """Return whether the consumer has stopped reading."""

    def wake(self) -> None:
        """Make the consumer check its share of the queues. Any thread; does not block."""


class GroupMembers:
    """The consumers of one group and topic. Any thread."""

    def __init__(self, topic: str, queue_ids: list[int], filtered_by: str) -> None:
        """``filtered_by``: the tags that all consumers of the group read."""
        self.topic = topic
        self._queue_ids = queue_ids
        self._filtered_by = filtered_by
        self._lock = CheckedLock("a change of consumers")  # guards all fields below
        self._members: list[weakref.ref[Member]] = []
        self._holders: dict[int, weakref.ref[Member]] = {}
        self._versions = count(1)
        self.version = 0
        """Changes whenever shares may have changed."""

    @property
    def has_any(self) -> bool:
        """Return whether there is a consumer."""
        return bool(self._live())

    def join(self, member: Member, filtered_by: str) -> None:
        """Add a consumer; the queues are distributed again.

        Raises:
            RefusedStoreError: it filters by other tags, so messages that one consumer skips would
                be lost to the other.
        """
        with self._lock.entry():
            if filtered_by != self._filtered_by and self._live():
                raise RefusedStoreError(
                    f"cannot read tags {filtered_by!r}: the group's other consumers read tags"
                    f" {self._filtered_by!r}. All consumers of a group must read the same tags"
                )
            self._filtered_by = filtered_by
            live = [weakref.ref(each, self._forget) for each in (*self._live(), member)]
            self._members = live
        self.change()

    def share(self, member: Member) -> tuple[int, set[int]]:
        """Return the version, and the queues that ``member`` now has.

        Releases queues that are no longer in its share, and takes those in its share that are
        free. It gets the rest of its share when the current consumers release them.
        """
        with self._lock.entry():
            version = self.version
            live = self._live()
            if member not in live:  # closed by another thread just now
                return version, set()
            fair = set(self._queue_ids[live.index(member) :: len(live)])
            released = [each for each in self._held_by(member) if each not in fair]
            for each in released:
                del self._holders[each]
            for each in fair:
                holder = self._holders.get(each)
                if holder is None or (alive := holder()) is None or alive.is_closed:
                    self._holders[each] = weakref.ref(member)
            mine = self._held_by(member)
        if released:
            self.change()
        return version, mine

    def change(self, *_: object) -> None:
        """Wake all consumers so that they check their shares.

        Any thread, also during a garbage collection.
        """
        self.version = next(self._versions)
        for member in self._live():
            member.wake()

    def _forget(self, gone: "weakref.ref[Member]") -> None:
        """Remove a garbage-collected consumer; takes no lock."""
        if gone in self._members:
            self._members.remove(gone)
        self.change()

    def _live(self) -> list[Member]:
        found = [ref() for ref in [*self._members]]
        return [member for member in found if member is not None and not member.is_closed]

    def _held_by(self, member: Member) -> set[int]:
        return {each for each, holder in self._holders.items() if holder() is member}


class LogMembers(dict[tuple[str, str], GroupMembers]):
    """The consumers of each topic and group of one log. Any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = CheckedLock("the creation of a tail")

    def of(self, topic: str, group: str, queue_ids: list[int], tags: str) -> GroupMembers:
        """Return the consumers of ``group`` and ``topic``; created if there are none."""
        with self._lock.entry():
            members = self.get((topic, group))
            if members is None:
                members = self[topic, group] = GroupMembers(topic, queue_ids, tags)
            return members

    def share_anew(self, topics: Collection[str]) -> None:
        """Make the consumers of ``topics``, which were deleted, start again."""
        with self._lock.entry():
            found = [each for (topic, _), each in self.items() if topic in topics]
        for each in found:
            each.change()

    def forget(self, topic: str) -> None:
        """Forget the groups of a topic: later consumers use the queues that it then has.

        Raises:
            RefusedStoreError: a group has consumers; nothing is forgotten.
        """
        with self._lock.entry():
            mine = {key: each for key, each in self.items() if key[0] == topic}
            if consumed := [group for (_, group), each in mine.items() if each.has_any]:
                raise RefusedStoreError(
                    f"cannot delete topic {topic!r}: group {consumed[0]!r} has open consumers."
                    " Close them first"
                )
            for key in mine:
                del self[key]

    def refuse_consumed(self, group: str, *topics: str) -> None:
        """Refuse to change the offsets of a group with consumers, in ``topics`` or in any topic.

        Raises:
            RefusedStoreError: the group has consumers.
        """
        with self._lock.entry():
            consumed = [
                topic
                for (topic, of), members in self.items()
                if of == group and members.has_any and topic in (topics or {topic})
            ]
        if consumed:
            raise RefusedStoreError(
                f"cannot change offsets of group {group!r}: it has open consumers of"
                f" {', '.join(consumed)}. Close them first"
            )
