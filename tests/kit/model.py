"""A model of the queues in plain lists, and a log that exists only as facts about records."""

from dataclasses import dataclass, field

from cqstore.store.queue.units import UnitBatch
from tests.kit.no_log import NoLogFiles

RECORD_SIZE = 100


@dataclass
class FastLog(NoLogFiles):
    """Records of 100 bytes, one behind the other; the n-th was stored at ``stamps[n]`` ms."""

    stamps: list[int] = field(default_factory=list)
    low: int = 0

    def append(self, stamp: int) -> int:
        """Add a record; return its phy offset."""
        self.stamps.append(stamp)
        return (len(self.stamps) - 1) * RECORD_SIZE

    def min_phy_offset(self) -> int:
        return self.low

    def max_phy_offset(self) -> int:
        return len(self.stamps) * RECORD_SIZE

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        inside = self.low <= phy_offset and phy_offset + size <= self.max_phy_offset()
        return self.stamps[phy_offset // RECORD_SIZE] if inside else -1

    def file_offset_by_timestamp(self, timestamp: int) -> int:
        _ = timestamp
        return self.low


Unit = tuple[int, int, int]
"""Phy offset, size, tags code."""


@dataclass
class ModelQueue:
    """One queue: ``units[i]`` has the offset ``first + i``."""

    first: int
    units: list[Unit] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.units)


class ModelQueues:
    """What every backend must answer."""

    def __init__(self, log: FastLog) -> None:
        self.log = log
        self.queues: dict[tuple[str, int], ModelQueue] = {}

    def put(self, key: tuple[str, int], offset: int, unit: Unit) -> None:
        """Take a unit that is the next one, or the first."""
        queue = self.queues.setdefault(key, ModelQueue(offset))
        assert offset == queue.end
        queue.units.append(unit)

    def max_offset(self, key: tuple[str, int]) -> int:
        return self.queues[key].end if key in self.queues else 0

    def min_offset(self, key: tuple[str, int]) -> int:
        queue = self.queues.get(key)
        if queue is None:
            return 0
        live = (i for i, unit in enumerate(queue.units) if unit[0] >= self.log.low)
        return queue.first + next(live, len(queue.units))

    def read(self, key: tuple[str, int], offset: int, count: int) -> list[Unit]:
        queue = self.queues.get(key)
        if queue is None or offset < queue.first:
            return []
        return queue.units[offset - queue.first : offset - queue.first + count]

    def by_time(self, key: tuple[str, int], stamp: int, *, upper: bool) -> int:
        """Answer by looking at every live unit."""
        low, high = self.min_offset(key), self.max_offset(key)
        stamps = {
            offset: self.log.stamps[
                self.queues[key].units[offset - self.queues[key].first][0] // RECORD_SIZE
            ]
            for offset in range(low, high)
        }
        if upper:
            return max((offset for offset, at in stamps.items() if at <= stamp), default=low)
        return min((offset for offset, at in stamps.items() if at >= stamp), default=high)


def batch_of(log: FastLog, rows: list[tuple[tuple[str, int], int, Unit]]) -> UnitBatch:
    """Return a batch of queue, queue offset and unit, in log order."""
    batch = UnitBatch()
    for key, offset, (phy_offset, size, code) in rows:
        batch.add(key, offset, phy_offset, size, code, log.stamps[phy_offset // RECORD_SIZE])
        batch.end_phy_offset = phy_offset + size
    return batch
