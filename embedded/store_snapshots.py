"""StoreSnapshots: a store that another process writes, as it was opened last, to be read.

A refresh opens it anew. Whoever reads an older one goes on with that, and the last of its readers
closes it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from store.checked_lock import CheckedLock
from store.errors import StoreClosedError
from store.service.message_store import MessageStore


class StoreSnapshots:
    """The newest opening of one store, and those before it that are still read. Any thread."""

    def __init__(self, store: MessageStore, open_again: Callable[[], MessageStore]) -> None:
        """Begin with ``store``, which was opened to read."""
        self._open_again = open_again
        self._lock = CheckedLock("a look at a store that another process writes")  # guards below
        self.newest = store
        """The store as it was opened last."""
        self._readers = Counter[MessageStore]()
        self._closed = False

    def refresh(self) -> None:
        """Open the store anew; what is asked from now on sees it as it is.

        Raises:
            StoreClosedError: all were closed.
            StoreError: it cannot be opened; it is read as it was.
        """
        self._check()
        made = self._open_again()
        with self._lock.entry():
            is_late = self._closed
            before, self.newest = self.newest, self.newest if is_late else made
            is_read = bool(self._readers[before])
        if is_late:
            made.close()
            self._check()
        elif not is_read:
            before.close()

    def acquire(self) -> MessageStore:
        """Return the newest store, which stays open until it is released.

        Raises:
            StoreClosedError: all were closed.
        """
        with self._lock.entry():
            self._check()
            self._readers[self.newest] += 1
            return self.newest

    def release(self, store: MessageStore) -> None:
        """Let go of a store that was acquired; the last one closes it if there is a newer one."""
        with self._lock.entry():
            self._readers[store] -= 1
            is_over = self._readers[store] <= 0
            if is_over:
                del self._readers[store]
            is_over = is_over and store is not self.newest
        if is_over:
            store.close()

    @contextmanager
    def reading(self) -> Iterator[MessageStore]:
        """Give the newest store, which stays open inside the block."""
        store = self.acquire()
        try:
            yield store
        finally:
            self.release(store)

    def close(self) -> None:
        """Close all; whoever reads gets an error. A second call does nothing."""
        with self._lock.entry():
            self._closed = True
            stores = {self.newest, *self._readers}
        for store in stores:
            store.close()

    def _check(self) -> None:
        if self._closed:
            raise StoreClosedError("the log is closed", path=self.newest.paths.root)
