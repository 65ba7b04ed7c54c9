"""BoundedCache: a dict of values that are expensive to compute, with a limit in bytes."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

ENTRY_BYTES = 480
"""Bytes of an entry besides its text: its share of two dicts, object headers, a tuple."""
_SHARE = 1024
_OLD_SHARE = 64
"""After 1/16 of the entries were dropped as newest, 1/64 of them are dropped as oldest."""
_NEWEST_FIRST = 16


class BoundedCache(dict[K, V], Generic[K, V]):
    """A dict that drops single entries when it is full; lookups are those of any dict.

    If more keys than fit are used in rotation, most entries stay useful, because the newest entry
    is dropped. From time to time some of the oldest are dropped too, so keys that are no longer
    used do not stay.

    Any thread may use it, and an exception may interrupt any call between two lines: an entry is
    correct or missing. The byte count may deviate after simultaneous changes by two threads; it is
    computed again when the oldest entries are dropped, and the number of entries has a limit that
    does not depend on the count.
    """

    def __init__(self, max_bytes: int) -> None:
        """``max_bytes``: limit of all entries; one entry may use at most 1/1024 of it."""
        super().__init__()
        self._limit = max_bytes
        self._held = 0
        self._sizes: dict[K, int] = {}
        self._newest_gone = 0

    def learn(self, key: K, value: V, text_bytes: int) -> V:
        """Remember ``value`` if it is not too large, and return it.

        ``text_bytes``: the length of all text in key and value, in UTF-8. In memory a text takes up
        to four bytes per byte of UTF-8.
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
        self._held += size - sizes.get(key, 0)  # first: an interrupted call counts too much
        sizes[key] = size
        self[key] = value
        return value

    def _part_with_some(self) -> None:
        """Drop the newest entry, or a share of the oldest after many newest were dropped."""
        if self._newest_gone < len(self) // _NEWEST_FIRST:
            self._newest_gone += 1
            try:
                newest, _ = self.popitem()
            except KeyError:  # another thread removed the last entry
                return
            self._held -= self._sizes.pop(newest, 0)
            return
        keys = [*self]
        for oldest in keys[: max(len(keys) // _OLD_SHARE, 1)]:
            self.pop(oldest, None)
            self._sizes.pop(oldest, None)
        if len(self._sizes) != len(self):  # a call was interrupted, or another thread is in one
            known, other = self._sizes, self._limit // _SHARE
            self._sizes = {key: known.get(key, other) for key in [*self]}
        self._held = sum([*self._sizes.values()])
        self._newest_gone = 0
