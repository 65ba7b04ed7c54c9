"""BoundedCache: a dict of what is dear to find out again, which never holds more than its bytes."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

ENTRY_BYTES = 320
"""What an entry takes beside its text: the dict's share, the objects' heads, a tuple."""
_SHARE = 1024


class BoundedCache(dict[K, V], Generic[K, V]):
    """A dict that begins anew when it is full; what is asked of it is asked as of a dict.

    Any thread may use it: two that learn at once count one entry less, and at most find out twice.
    """

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes``: what all entries may take; none may take more than a 1024th of it."""
        super().__init__()
        self._most = most_bytes
        self._held = 0

    def learn(self, key: K, value: V, text_bytes: int) -> V:
        """Remember ``value`` if it is not too large, and return it.

        ``text_bytes``: the length of all text in key and value, in UTF-8. In memory a text takes
        up to four bytes where UTF-8 has one.
        """
        size = ENTRY_BYTES + 4 * text_bytes
        if size > self._most // _SHARE:
            return value
        if self._held + size > self._most:
            self.clear()
            self._held = 0
        self._held += size
        self[key] = value
        return value
