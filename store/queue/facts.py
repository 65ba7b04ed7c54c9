"""What a backend reports of its queues: kinds, restarts, findings, damage, spans, numbers."""

from enum import Enum
from typing import NamedTuple

from cqstore.store.queue.units import QueueKey

NO_RECORD_TIME = -1
"""What ``ConsumeQueue.unit_timestamp`` returns without a record; other negative times are times."""


def known_time(store_timestamp: int) -> int | None:
    """Return the store time of a unit, ms; ``None`` where its record is not in the log."""
    return None if store_timestamp == NO_RECORD_TIME else store_timestamp


class QueueType(Enum):
    """Kinds of queues, by RocketMQ's names."""

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
    """Where the first record of the new incarnation lies."""


class QueueFinding(NamedTuple):
    """Something wrong in a backend's own files, as ``check`` reports it."""

    problem: str
    path: str
    queue: QueueKey | None = None
    queue_offset: int | None = None
    position: int | None = None
    """Bytes inside ``path``."""
    key: bytes = b""
    """What was found under, where the backend has keys instead of positions."""
    expected: object = None
    found: object = None
    all_queues: bool = False
    """Only a rebuild of all queues mends it."""
    damage: bool = True
    """Without it the finding is worth knowing, and nothing is missing or wrong by it."""


class UnitLocation(NamedTuple):
    """Where a unit lies on disk, or would."""

    path: str = ""
    position: int | None = None
    """Bytes inside ``path``."""
    key: bytes = b""
    """Where the backend has keys instead of positions."""


class QueueDamage(NamedTuple):
    """A queue that lacks units, or may, as far as its backend knows without the log."""

    queue: QueueKey
    problem: str
    path: str
    next_offset: int = 0
    """The next offset that it surely had; 0: not known."""
    suspect_from: int | None = None
    """Damaged only if the log has a record from this phy offset on that the queue lacks."""

    @property
    def is_suspect(self) -> bool:
        """Return whether only the log shows it."""
        return self.suspect_from is not None


class QueueSpan(NamedTuple):
    """Where a queue begins and where it goes on."""

    queue: QueueKey
    min_offset: int
    max_offset: int

    def lag(self, offset: int) -> int:
        """Return the lag of a group whose next offset is ``offset``: none, or below 0, counts as 0.

        The messages up to the maximum, those that have expired among them; never below 0.

        Source: RocketMQ ``ConsumeStats.computeTotalDiff``.
        """
        return max(self.max_offset - max(offset, 0), 0)


WRITTEN_BYTES, HANDED_BYTES = "_written_bytes", "_handed_bytes"
"""How names of numbers end: bytes written to disk, a number a cause, and bytes it was handed."""


class QueueStat(NamedTuple):
    """One number that a backend reports of itself while it works."""

    name: str
    """Lower case words with underscores, the unit last: ``rocksdb_memtable_bytes``."""
    part: str
    """What of the backend it speaks of."""
    value: int
