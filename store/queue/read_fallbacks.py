"""ReadFallbacks: reads that compiled code left to Python. Each of them costs several times more."""

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class ReadKind(StrEnum):
    """Which kind of read left the fast path."""

    PULL = "pull"
    SEARCH = "search"
    """A search by time."""
    QUERY = "query"
    """By key."""


class FallbackReason(StrEnum):
    """Why Python answered a read, and no compiled code."""

    LEFT_OUT = "left_out"
    """``checkCRCOnPull`` is set: it is asked of pulls."""
    FILTER = "filter"
    """The pull has a filter by tags."""
    ENGINE = "engine"
    """The RocksDB engine has no search of its own (rocksdict)."""
    DECLINED = "declined"
    """The compiled code has met something that it does not handle, and said no more."""


class ReadFallback(NamedTuple):
    """A kind of read and why it left the fast path; such are counted together."""

    kind: ReadKind
    reason: FallbackReason


_ALL = (
    ReadFallback(ReadKind.PULL, FallbackReason.LEFT_OUT),
    ReadFallback(ReadKind.PULL, FallbackReason.FILTER),
    ReadFallback(ReadKind.PULL, FallbackReason.DECLINED),
    ReadFallback(ReadKind.SEARCH, FallbackReason.ENGINE),
    ReadFallback(ReadKind.SEARCH, FallbackReason.DECLINED),
    ReadFallback(ReadKind.QUERY, FallbackReason.DECLINED),
)


class ReadFallbacks:
    """Counts the reads of one store that compiled code did not answer. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards the counts; a signal's handler may read, too
        self._counts = dict.fromkeys(_ALL, 0)

    def add(self, kind: ReadKind, reason: FallbackReason) -> None:
        """Count one read that left the fast path, and why."""
        with self._lock:
            self._counts[ReadFallback(kind, reason)] += 1

    def counts(self) -> Mapping[ReadFallback, int]:
        """Return how many there were of each, zeros too."""
        with self._lock:
            return dict(self._counts)
