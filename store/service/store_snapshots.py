"""StoreSnapshots: read-only opens of a store that another process writes.

A refresh opens the store again. A reader of an older open continues with it, and its last reader
closes it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import StoreClosedError
from cqstore.store.service.message_store import MessageStore


class StoreSnapshots:
    """The newest open of one store, and older ones that are still being read. Any thread."""

    def __init__(self, store: MessageStore, open_again: Callable[[], MessageStore]) -> None:
        """Begin with ``store``, which must be open read-only."""
        self._open_again = open_again
        self._lock = CheckedLock("a read of a store that another process writes")  # guards below
        self.newest = store
        """The store as of the last refresh."""
        self._readers = Counter[MessageStore]()
        self._released = deque[MessageStore]()
        self._closed = False

    def refresh(self) -> None:
        """Open the store again; later calls use its current state.

        Raises:
            StoreClosedError: the snapshots were closed.
            StoreError: the store cannot be opened; the previous state stays in use.
        """
        self.check_open()
        made = self._open_again()
        before: MessageStore | None = None
        with self._lock.entry():
            if not self._closed:
                before, self.newest = self.newest, made
                self._readers[before] += 1  # released below
        if before is None:
            made.close()
            self.check_open()
        else:
            self.release(before)

    def acquire(self) -> MessageStore:
        """Return the newest store, which stays open until it is released.

        Raises:
            StoreClosedError: the snapshots were closed.
        """
        with self._lock.entry():
            self.check_open()
            self._readers[self.newest] += 1
            return self.newest

    def release(self, store: MessageStore) -> None:
        """Release an acquired store; the last reader closes it if there is a newer one.

        A finalizer may call this during any other call; then the next call closes the store.
        """
        self._released.append(store)
        while self._released and not self._lock.is_mine():
            with self._lock.entry():
                unread = [each for each in self._take_released() if each is not self.newest]
            for each in unread:
                each.close()

    def _take_released(self) -> Iterator[MessageStore]:
        """Yield the stores that were released and are no longer read."""
        while self._released:
            store = self._released.popleft()
            self._readers[store] -= 1
            if self._readers[store] <= 0:
                del self._readers[store]
                yield store

    @contextmanager
    def reading(self) -> Iterator[MessageStore]:
        """Yield the newest store, which stays open inside the block."""
        store = self.acquire()
        try:
            yield store
        finally:
            self.release(store)

    def close(self) -> None:
        """Close all open stores; their readers get an error. A second call does nothing."""
        with self._lock.entry():
            self._closed = True
            stores = {self.newest, *self._readers}
        for store in stores:
            store.close()

    def check_open(self) -> None:
        """Refuse calls after ``close``.

        Raises:
            StoreClosedError: the snapshots were closed.
        """
        if self._closed:
            raise StoreClosedError("the log is closed", path=self.newest.root)
