"""BoundedCache: a dict of what is dear to find out again, which never holds more than its bytes."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

ENTRY_BYTES = 480
"""What an entry takes beside its text: its share of two dicts, the objects' heads, a tuple."""
_SHARE = 1024
_OLD_SHARE = 64
"""One in so many entries, the oldest, goes after a 16th of them went as the newest."""
_NEWEST_FIRST = 16


class BoundedCache(dict[K, V], Generic[K, V]):
    """A dict that parts with single entries when it is full; it is asked as any dict is.

    Keys that come round and round, more than there is room for, find most of the room in use: it is
    the newest entry that goes then. Once in a while some of the oldest go too, so what is no longer
    asked for does not stay.

    Any thread may use it, and an exception may end any call between two lines: an entry is right or
    not there. The count of bytes may be off by what two threads did at once; it is taken anew as
    the oldest go, and the number of entries has a bound that needs no count.
    """

    def __init__(self, max_bytes: int) -> None:
        """``max_bytes``: what all entries may take; none may take more than a 1024th of it."""
        super().__init__()
        self._limit = max_bytes
        self._held = 0
        self._sizes: dict[K, int] = {}
        self._newest_gone = 0

    def learn(self, key: K, value: V, text_bytes: int) -> V:
        """Remember ``value`` if it is not too large, and return it.

        ``text_bytes``: the length of all text in key and value, in UTF-8. In memory a text takes
        up to four bytes where UTF-8 has one.
        """
        size = ENTRY_BYTES + 4 * text_bytes
        if size > self._limit // _SHARE:
            return value
        sizes = self._sizes
        while self and (
            self._held + size - sizes.get(key, 0) > self._limit
            or len(self) >= self._limit // ENTRY_BYTES
        ):
            self._part_with_some()
            sizes = self._sizes
        self._held += size - sizes.get(key, 0)  # first: what stops here counts too much, or once
        sizes[key] = size
        self[key] = value
        return value

    def _part_with_some(self) -> None:
        """Drop the newest entry, or where many of those were dropped a share of the oldest."""
        if self._newest_gone < len(self) // _NEWEST_FIRST:
            self._newest_gone += 1
            try:
                newest, _ = self.popitem()
            except KeyError:  # another thread took the last one
                return
            self._held -= self._sizes.pop(newest, 0)
            return
        keys = [*self]
        for oldest in keys[: max(len(keys) // _OLD_SHARE, 1)]:
            self.pop(oldest, None)
            self._sizes.pop(oldest, None)
        if len(self._sizes) != len(self):  # a call was cut short, or another thread is at it
            known, other = self._sizes, self._limit // _SHARE
            self._sizes = {key: known.get(key, other) for key in [*self]}
        self._held = sum([*self._sizes.values()])
        self._newest_gone = 0
