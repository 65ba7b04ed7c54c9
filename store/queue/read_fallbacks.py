"""ReadFallbacks: reads that compiled code left to Python. Each is several times slower."""

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class ReadKind(StrEnum):
    """Kinds of reads that left the fast path."""

    PULL = "pull"
    SEARCH = "search"
    """A search by time."""
    QUERY = "query"
    """A query by key."""


class FallbackReason(StrEnum):
    """Reasons why Python served a read instead of compiled code."""

    ENGINE = "engine"
    """The RocksDB engine has no search of its own (rocksdict)."""
    DECLINED = "declined"
    """The compiled code met something that it does not handle, without a specific reason."""


class ReadFallback(NamedTuple):
    """A kind of read and the reason why it left the fast path; counted together."""

    kind: ReadKind
    reason: FallbackReason


_ALL = (
    ReadFallback(ReadKind.PULL, FallbackReason.DECLINED),
    ReadFallback(ReadKind.SEARCH, FallbackReason.ENGINE),
    ReadFallback(ReadKind.SEARCH, FallbackReason.DECLINED),
    ReadFallback(ReadKind.QUERY, FallbackReason.DECLINED),
)


class ReadFallbacks:
    """Counts the reads of one store that compiled code did not serve. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards the counts; a signal handler may read them too
        self._counts = dict.fromkeys(_ALL, 0)

    def add(self, kind: ReadKind, reason: FallbackReason) -> None:
        """Count one read that left the fast path, with its reason."""
        with self._lock:
            self._counts[ReadFallback(kind, reason)] += 1

    def counts(self) -> Mapping[ReadFallback, int]:
        """Return the count of each kind and reason, including zeros."""
        with self._lock:
            return dict(self._counts)
