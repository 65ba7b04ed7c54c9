"""BoundedQueue: a queue from many threads to one; items that do not fit are counted."""

import threading
from collections import deque
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """At most ``limit`` items. ``put`` never waits, even for a lock; one thread calls ``poll``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._drops = count()  # taking a number is atomic, and needs no lock
        self._looks = 0
        self._looking = threading.RLock()  # guards _looks

    def __len__(self) -> int:
        return len(self._items)

    def is_full(self) -> bool:
        """Return whether the queue is full; if so, one more item is counted as dropped."""
        if len(self._items) < self._limit:
            return False
        next(self._drops)
        return True

    def put(self, item: T) -> None:
        """Add an item, or drop it if the queue is full."""
        if not self.is_full():
            self._items.append(item)

    def poll(self) -> T | None:
        """Return the oldest item, ``None`` if the queue is empty."""
        return self._items.popleft() if self._items else None

    @property
    def dropped(self) -> int:
        """Return the number of items dropped so far."""
        with self._looking:
            self._looks += 1  # this read takes a number too
            return next(self._drops) - self._looks + 1
