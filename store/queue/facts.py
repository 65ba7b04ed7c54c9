"""Facts that a backend reports about its queues: types, restarts, findings, damage, metrics."""

from enum import Enum
from typing import NamedTuple

from cqstore.store.queue.units import QueueKey

NO_RECORD_TIME = -1
"""Returned by ``ConsumeQueue.unit_timestamp`` without a record; other negative times are times."""


def known_time(store_timestamp: int) -> int | None:
    """Return the store time of a unit, ms; ``None`` if its record is not in the log."""
    return None if store_timestamp == NO_RECORD_TIME else store_timestamp


QUEUE_TYPE = "queue.type"
"""Attribute of a topic in a broker's metadata: the type of its queues."""


class QueueType(Enum):
    """Types of queues, with RocketMQ's names."""

    SIMPLE = "SimpleCQ"
    BATCH = "BatchCQ"
    ROCKSDB = "RocksDBCQ"


class QueueRestart(NamedTuple):
    """A queue that started over: its topic had been deleted and was written again.

    ``dropped`` are the queue offsets of the older incarnation that the new one replaced.
    """

    queue: QueueKey
    dropped: range
    phy_offset: int
    """Phy offset of the first record of the new incarnation."""


class QueueFinding(NamedTuple):
    """A problem in a backend's own files, as ``check`` reports it."""

    problem: str
    path: str
    queue: QueueKey | None = None
    queue_offset: int | None = None
    position: int | None = None
    """Position in ``path``, in bytes."""
    key: bytes = b""
    """The key of the finding, if the backend has keys instead of positions."""
    expected: object = None
    found: object = None
    all_queues: bool = False
    """Only a rebuild of all queues repairs it."""
    damage: bool = True
    """False: the finding is for information only; nothing is missing or wrong because of it."""


class UnitLocation(NamedTuple):
    """The location of a unit on disk, whether or not the unit exists."""

    path: str = ""
    position: int | None = None
    """Position in ``path``, in bytes."""
    key: bytes = b""
    """The key, if the backend has keys instead of positions."""


class QueueDamage(NamedTuple):
    """A queue that lacks units, or may lack some, according to its backend without the log."""

    queue: QueueKey
    problem: str
    path: str
    next_offset: int = 0
    """The next offset that it certainly had; 0: unknown."""
    suspect_from: int | None = None
    """Damaged only if the log has a record at or after this phy offset that the queue lacks."""

    @property
    def is_suspect(self) -> bool:
        """Return whether only the log can confirm the damage."""
        return self.suspect_from is not None


class QueueSpan(NamedTuple):
    """The min and max offset of a queue."""

    queue: QueueKey
    min_offset: int
    max_offset: int

    def lag(self, offset: int) -> int:
        """Return the lag of a group with next offset ``offset``; a missing or negative one is 0.

        Counts the messages up to the max offset, including expired ones; never below 0.

        Source: RocketMQ ``ConsumeStats.computeTotalDiff``.
        """
        return max(self.max_offset - max(offset, 0), 0)


WRITTEN_BYTES, HANDED_BYTES = "_written_bytes", "_handed_bytes"
"""Suffixes of metric names: bytes written to disk, by cause, and bytes received."""


class QueueStat(NamedTuple):
    """One metric of an open backend."""

    name: str
    """Lower case words with underscores, the unit last: ``rocksdb_memtable_bytes``."""
    part: str
    """The part of the backend that the metric describes."""
    value: int
