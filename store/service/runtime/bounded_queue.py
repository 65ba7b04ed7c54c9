"""BoundedQueue: from many threads to one; what it cannot take is counted."""

import threading
from collections import deque
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """At most ``limit`` items. ``put`` never waits, not even for a lock; one thread takes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._drops = count()  # taking a number is one step, and needs no lock
        self._looks = 0
        self._looking = threading.RLock()  # guards _looks

    def __len__(self) -> int:
        return len(self._items)

    def is_full(self) -> bool:
        """Return whether there is no room; then one more is counted as dropped."""
        if len(self._items) < self._limit:
            return False
        next(self._drops)
        return True

    def put(self, item: T) -> None:
        """Leave an item, or drop it where there is no room."""
        if not self.is_full():
            self._items.append(item)

    def poll(self) -> T | None:
        """Return the oldest item, ``None`` if there is none."""
        return self._items.popleft() if self._items else None

    @property
    def dropped(self) -> int:
        """Return how many were dropped until now."""
        with self._looking:
            self._looks += 1  # a look takes a number too
            return next(self._drops) - self._looks + 1
