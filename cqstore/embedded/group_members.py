"""GroupMembers: the consumers of one group and topic in this process, and who has which queue.

A queue has one consumer at a time. It changes hands when the one that has it asks for its next
message, or is closed or gone: then all that it was given and committed is behind it.
"""

import weakref
from collections.abc import Collection
from itertools import count
from typing import Protocol

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import RefusedStoreError


class Member(Protocol):
    """One consumer of a group, as the group's members see it."""

    @property
    def is_closed(self) -> bool:
        """Return whether it asks for no more messages."""

    def wake(self) -> None:
        """Have it look at its share; any thread, and never waits."""


class GroupMembers:
    """The consumers of one group and topic. Any thread."""

    def __init__(self, topic: str, queue_ids: list[int], filtered_by: str) -> None:
        """``filtered_by``: the tags that all of them read."""
        self.topic = topic
        self._queue_ids = queue_ids
        self._filtered_by = filtered_by
        self._lock = CheckedLock("a change of consumers")  # guards all below
        self._members: list[weakref.ref[Member]] = []
        self._holders: dict[int, weakref.ref[Member]] = {}
        self._versions = count(1)
        self.version = 0
        """Another one whenever shares may have changed."""

    @property
    def has_any(self) -> bool:
        """Return whether there is a consumer."""
        return bool(self._live())

    def join(self, member: Member, filtered_by: str) -> None:
        """Add a consumer; the queues are shared anew.

        Raises:
            RefusedStoreError: it filters by other tags: what one passes over, the other would miss.
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
        """Return the version, and the queues that ``member`` has there.

        It lets those go that are no longer its share, and takes those that are free. The rest of
        its share it gets when those who have them let go.
        """
        with self._lock.entry():
            version = self.version
            live = self._live()
            if member not in live:  # it has just been closed by another thread
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
        """Wake all consumers, to look at their shares.

        Any thread, also amid a garbage collection.
        """
        self.version = next(self._versions)
        for member in self._live():
            member.wake()

    def _forget(self, gone: "weakref.ref[Member]") -> None:
        """Let a consumer go that nothing refers to any more; takes no lock."""
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
        """Return the consumers of ``group`` and ``topic``, new ones if there are none yet."""
        with self._lock.entry():
            members = self.get((topic, group))
            if members is None:
                members = self[topic, group] = GroupMembers(topic, queue_ids, tags)
            return members

    def share_anew(self, topics: Collection[str]) -> None:
        """Have the consumers of ``topics``, which were deleted, begin anew."""
        with self._lock.entry():
            found = [each for (topic, _), each in self.items() if topic in topics]
        for each in found:
            each.change()

    def forget(self, topic: str) -> None:
        """Forget groups of a topic: later consumers see the queues that it has by then.

        Raises:
            RefusedStoreError: one has consumers; nothing is forgotten.
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
        """Refuse to change the offsets of a group that consumes, in ``topics`` or in any.

        Raises:
            RefusedStoreError: it has consumers.
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
