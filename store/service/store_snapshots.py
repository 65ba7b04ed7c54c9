"""StoreSnapshots: read-only opens of a store that another process writes.

A refresh opens the store again. A reader of an older open continues with it, and its last reader
closes it.
"""

from collections import deque
from collections.abc import Callable

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
        self._readers: dict[MessageStore, int] = {}
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
                self._count_reader(before)  # released below
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
            return self._count_reader(self.newest)

    def release(self, store: MessageStore) -> None:
        """Release an acquired store; the last reader closes it if there is a newer one.

        A finalizer may call this during any other call; then the next call closes the store.
        """
        self._released.append(store)
        while self._released and not self._lock.is_mine():
            with self._lock.entry():
                unread = self._take_released()
            for each in unread:
                each.close()

    def _count_reader(self, store: MessageStore) -> MessageStore:
        self._readers[store] = self._readers.get(store, 0) + 1
        return store

    def _take_released(self) -> list[MessageStore]:
        """Return the older stores that were released and are no longer read."""
        unread = []
        while self._released:
            store = self._released.popleft()
            left = self._readers.get(store, 0) - 1
            if left > 0:
                self._readers[store] = left
                continue
            self._readers.pop(store, None)
            if store is not self.newest:
                unread.append(store)
        return unread

    def reading(self) -> "_Reading":
        """Return a context manager: the newest store, which stays open inside the block."""
        return _Reading(self)

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


class _Reading:
    """One block of ``StoreSnapshots.reading``."""

    __slots__ = ("_snapshots", "_store")
    _store: MessageStore

    def __init__(self, snapshots: StoreSnapshots) -> None:
        self._snapshots = snapshots

    def __enter__(self) -> MessageStore:
        self._store = self._snapshots.acquire()
        return self._store

    def __exit__(self, *_: object) -> None:
        self._snapshots.release(self._store)
