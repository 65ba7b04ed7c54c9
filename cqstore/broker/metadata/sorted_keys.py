"""SortedKeys: the keys ``topic@group`` of a table in memory, found by topic without a scan."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable

from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR

_FEW = 64
"""New keys up to this number are inserted one by one; more are sorted with all others."""


class SortedKeys:
    """A set of keys. The caller guards it with a lock.

    They are sorted when they are first searched: 8 bytes per key, besides the key itself.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        """Take the keys."""
        self._sorted: list[str] = []
        self._added = dict.fromkeys(keys)

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        self._added[key] = None

    def of_topics(self, topics: Collection[str]) -> list[str]:
        """Return the keys that may belong to one of ``topics``, those that begin with it and @."""
        self._sort()
        found: dict[str, None] = {}
        for topic in topics:
            prefix = f"{topic}{TOPIC_GROUP_SEPARATOR}"
            at = bisect_left(self._sorted, prefix)
            while at < len(self._sorted) and self._sorted[at].startswith(prefix):
                found[self._sorted[at]] = None
                at += 1
        return [*found]

    def remove(self, keys: Collection[str]) -> None:
        """Remove those of ``keys`` that are there."""
        if not keys:
            return
        self._sort()
        if len(keys) > _FEW:
            self._sorted = [key for key in self._sorted if key not in keys]
            return
        for key in keys:
            at = bisect_left(self._sorted, key)
            if self._sorted[at : at + 1] == [key]:
                del self._sorted[at]

    def _sort(self) -> None:
        if len(self._added) > _FEW:
            self._sorted = sorted([*self._sorted, *self._added])
        else:
            for key in self._added:
                insort(self._sorted, key)
        self._added = {}
