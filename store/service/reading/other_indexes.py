"""OtherIndexes: indexes by key that a broker kept in addition to the index in files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, StoreClosedError
from cqstore.store.index.key_index import KeyIndex, index_openers, open_indexes
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.reading.store_times import TimeRange

_LOG = StoreLogger(__name__)

MessagesWithKey = Callable[[str, str, list[int]], list[StoredMessage]]
"""As ``KeyQueries.messages_with_key``."""


@dataclass(slots=True)
class SearchedIndex:
    """One index and the state of a query for one key. One thread."""

    index: KeyIndex
    records: MessagesWithKey
    lost: list[CorruptionError] = field(default_factory=list)
    """Entries without a record: they may be older than a truncation of the log."""
    fault: CorruptionError | None = None
    """Why it could not be read completely."""

    def newest(
        self, found: list[StoredMessage], topic: str, key: str, limit: int, times: TimeRange
    ) -> list[StoredMessage]:
        """Return the newest ``limit`` messages of ``found`` and of the index, in log order."""
        if limit <= 0:
            return []
        both, more = {message.phy_offset: message for message in found}, 0
        try:
            for phy_offset in self.index.phy_offsets(topic, key, *times):
                if more >= limit:
                    break
                for message in self._messages(topic, key, phy_offset):
                    both[phy_offset] = message
                    more += 1
        except CorruptionError as exc:
            self.fault = exc
        return [both[phy_offset] for phy_offset in sorted(both)][-limit:]

    def _messages(self, topic: str, key: str, phy_offset: int) -> list[StoredMessage]:
        try:
            return self.records(topic, key, [phy_offset])
        except CorruptionError as exc:
            self.lost.append(exc)
            return []


class OtherIndexes:
    """The indexes that a store had in addition to the one in files when it was opened.

    They are opened at the first query, and return the state of that time.

    Nothing is added to them while the store is open here. Any thread.
    """

    __slots__ = ("_closed", "_indexes", "_openers", "_root", "are_none", "lock")

    def __init__(self, root: Path) -> None:
        """Find the indexes, and import the functions that open them; nothing is opened yet."""
        self._root = root
        self._openers = index_openers(root)
        self._indexes: list[KeyIndex] | None = None
        self._closed = False
        self.are_none = not self._openers
        """Whether there are no other indexes."""
        self.lock = CheckedLock("a query by key")

    def newest(
        self, records: MessagesWithKey, found: list[StoredMessage], topic: str, key: str,
        limit: int, times: TimeRange,
    ) -> list[StoredMessage]:  # fmt: skip
        """Return the newest ``limit`` messages of ``found`` and of the indexes, in log order.

        Raises:
            CorruptionError, StoreIOError: an index cannot be read.
            StoreClosedError: the indexes were closed.
        """
        with self.lock.entry():
            for index in self._opened():
                searched = SearchedIndex(index, records)
                found = searched.newest(found, topic, key, limit, times)
                if searched.fault is not None:
                    raise searched.fault
        return found

    def close(self) -> None:
        """Close the indexes that were opened; a second call does nothing."""
        with self.lock.entry():
            self._closed = True
            while self._indexes:
                self._indexes.pop().close()

    def _opened(self) -> list[KeyIndex]:
        """Return the indexes; the first call opens them.

        Raises:
            StoreClosedError: the store is closed.
        """
        if self._closed:
            raise StoreClosedError("the store is closed", path=self._root)
        if self._indexes is None:
            self._indexes = open_indexes(self._openers)
            self.are_none = not self._indexes
            for index in self._indexes:
                if index.fault is not None:
                    _LOG.warning("the newest entries of an index may be missing: %s", index.fault)
        return self._indexes
