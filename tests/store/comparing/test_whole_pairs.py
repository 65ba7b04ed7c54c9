"""Short queues that are compared as bytes: equal only if unit by unit nothing differs.

The log is a table of heads by phy offset. Sums are those of ``Blocks.compare``, which compares the
same units with findings.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from cqstore.store.comparing.blocks import Blocks, WholePair
from cqstore.store.comparing.log_heads import Heads
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.sums import Sum
from cqstore.store.queue.bulk import NO_TIMESTAMP, WholeQueue
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit

SIZE = 100
LIGHT = QueueKey("%LMQ%t", 0)


@dataclass(frozen=True)
class Head:
    """The head of a record in the log."""

    size: int
    timestamp: int
    queue_id: int
    queue_offset: int


class Log:
    """Heads by phy offset."""

    def __init__(self) -> None:
        self.heads: dict[int, Head] = {}

    def read_heads(self, phy_offset: NDArray[np.int64], size: NDArray[np.int64]) -> Heads:
        none = Head(-1, -1, -1, -1)
        found = [self.heads.get(at, none) for at in phy_offset.tolist()]
        return Heads(
            np.array([each.size for each in found]) == size,
            *(
                np.array([getattr(each, name) for each in found], np.int64)
                for name in ("timestamp", "queue_id", "queue_offset")
            ),
        )


class Side:
    """A source of which only ``has_timestamps`` is read."""

    def __init__(self, *, has_timestamps: bool) -> None:
        self.has_timestamps = has_timestamps


@dataclass
class Pairs:
    """Two queues with their records: three units from 5 on, and two of a light queue from 0 on."""

    log: Log
    units: dict[QueueKey, list[QueueUnit]]
    changed: dict[QueueKey, list[QueueUnit]]
    """Units of the target."""
    both_timed: bool
    """Also the source has store timestamps."""

    @classmethod
    def made(cls, *, both_timed: bool = False) -> "Pairs":
        log, units = Log(), dict[QueueKey, list[QueueUnit]]()
        for queue, count in ((QueueKey("t", 1), 3), (LIGHT, 2)):
            begin = 5 if queue.topic == "t" else 0
            for each in range(count):
                phy_offset = len(log.heads) * SIZE
                log.heads[phy_offset] = Head(SIZE, 1_000 + each, 1, begin + each)
                unit = QueueUnit(phy_offset, SIZE, 7, 1_000 + each)
                units.setdefault(queue, []).append(unit)
        same = {queue: [*each] for queue, each in units.items()}
        return cls(log, units, same, both_timed)

    def blocks(self, *, agreed: bool = True) -> Blocks:
        sides = Side(has_timestamps=self.both_timed), Side(has_timestamps=True)
        return Blocks(self.log, *sides, agreed=agreed)  # type: ignore[arg-type]

    def pairs(self) -> list[WholePair]:
        found = []
        for queue, units in self.units.items():
            begin = 5 if queue.topic == "t" else 0
            untimed = [each._replace(store_timestamp=NO_TIMESTAMP) for each in units]
            source = units if self.both_timed else untimed
            both = (b"".join(map(QUEUE_UNIT.pack, each)) for each in (source, self.changed[queue]))
            found.append(WholePair(queue, begin, *both))
        return found


def summed(pairs: Pairs, *, agreed: bool = True) -> tuple[Sum, int, dict[QueueKey, object]]:
    """Return sum, shifted records and findings of ``Blocks.compare``."""
    blocks, total, counts = pairs.blocks(agreed=agreed), Sum(), dict[QueueKey, object]()
    queues = [QueueFindings(pair.queue) for pair in pairs.pairs()]
    for queue, pair in zip(queues, pairs.pairs(), strict=True):
        stretch = pair.stretch()
        assert stretch.source is not None
        assert stretch.target is not None
        blocks.add(queue, stretch.queue_offset, stretch.source, stretch.target)
    blocks.compare()
    for queue in queues:
        total.add(queue.source.units, queue.source.bytes, queue.source.checksum)
        if queue.counts:
            counts[queue.queue] = queue.counts
    return total, blocks.shifted, counts


def test_equal_queues_have_the_sum_of_all_their_units() -> None:
    pairs = Pairs.made()
    expected, shifted, counts = summed(pairs)
    blocks = pairs.blocks()
    assert blocks.sum_if_equal(pairs.pairs()) == expected
    assert (expected.units, expected.bytes, shifted, counts) == (5, 5 * SIZE, 0, {})
    assert blocks.shifted == 0


def test_shifted_records_are_counted_and_light_queues_have_records_of_others() -> None:
    pairs = Pairs.made()
    pairs.log.heads[SIZE] = replace(pairs.log.heads[SIZE], queue_offset=9)
    pairs.log.heads[4 * SIZE] = replace(pairs.log.heads[4 * SIZE], queue_id=8, queue_offset=9)
    blocks = pairs.blocks()
    assert blocks.sum_if_equal(pairs.pairs()) == summed(pairs)[0]
    assert blocks.shifted == summed(pairs)[1] == 1


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("field", QueueUnit._fields)
def test_one_different_field_of_one_unit(field: str, at: int) -> None:
    pairs = Pairs.made()
    units = pairs.changed[QueueKey("t", 1)]
    units[at] = units[at]._replace(**{field: getattr(units[at], field) + 1})
    for agreed in (False, True):
        assert pairs.blocks(agreed=agreed).sum_if_equal(pairs.pairs()) is None
        assert [*summed(pairs, agreed=agreed)[2]] == [QueueKey("t", 1)]


@pytest.mark.parametrize("both_timed", [False, True])
@pytest.mark.parametrize("change", ["missing", "size", "timestamp"])
def test_another_record_in_the_log(change: str, *, both_timed: bool) -> None:
    pairs = Pairs.made(both_timed=both_timed)
    assert pairs.blocks().sum_if_equal(pairs.pairs()) is not None
    head = pairs.log.heads.pop(3 * SIZE)
    if change != "missing":
        pairs.log.heads[3 * SIZE] = replace(head, **{change: getattr(head, change) + 1})
    assert pairs.blocks().sum_if_equal(pairs.pairs()) is None
    assert [*summed(pairs)[2]] == [LIGHT]


def test_a_record_of_another_queue_matters_if_the_log_is_compared() -> None:
    pairs = Pairs.made()
    pairs.log.heads[2 * SIZE] = replace(pairs.log.heads[2 * SIZE], queue_id=2)
    blocks = pairs.blocks()
    assert blocks.sum_if_equal(pairs.pairs()) is None
    assert blocks.shifted == 0
    assert [*summed(pairs)[2]] == [QueueKey("t", 1)]
    assert pairs.blocks(agreed=False).sum_if_equal(pairs.pairs()) == summed(pairs, agreed=False)[0]


def test_first_and_last_phy_offset_of_a_whole_queue() -> None:
    rows = b"".join(QUEUE_UNIT.pack(QueueUnit(at, SIZE, 7, 8)) for at in (3, 1 << 40, 1 << 41))
    whole = WholeQueue(4, rows)
    assert (whole.first_phy, whole.last_phy) == (3, 1 << 41)
    assert WholeQueue(4, rows[:28]).last_phy == 3
