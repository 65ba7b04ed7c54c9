"""What each of two backends lacks of the other, and which way out is offered: queues as spans."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from cqstore.migration.plan.both_sides import BackendComparison, BothSides, _side
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, QueueKey, UnitBlock
from tests.kit.queue_of import QueueOf

if TYPE_CHECKING:
    from cqstore.store.queue.consume_queue_store import ConsumeQueueStore


class _Part:
    """The unit at *n* leads to phy offset 10 *n*."""

    def __init__(self, name: str, ends_at: int, **spans: tuple[int, int]) -> None:
        self.name = name
        self._ends_at = ends_at
        self._spans = {QueueKey(topic, 3): span for topic, span in spans.items()}

    def dispatch_from_phy_offset(self) -> int:
        return self._ends_at

    def queues(self) -> Iterator[QueueKey]:
        return iter(self._spans)

    def queue(self, topic: str, queue_id: int) -> QueueOf:
        return QueueOf(self, topic, queue_id)

    def min_offset(self, *key: Any) -> int:
        return self._spans.get(QueueKey(*key), (0, 0))[0]

    def max_offset(self, *key: Any) -> int:
        return self._spans.get(QueueKey(*key), (0, 0))[1]

    def read_units(self, topic: str, queue_id: int, offset: int, count: int) -> UnitBlock:
        first, end = self._spans[QueueKey(topic, queue_id)]
        assert (first, count) == (offset, 1)
        data = QUEUE_UNIT.pack(QUEUE_UNIT.record(10 * first, 5, 6, 7)) if first < end else b""
        return UnitBlock(offset, data, QUEUE_UNIT.size, BlockStop.LIMIT)


def side(part: _Part, other: _Part) -> BackendComparison:
    return _side(cast("ConsumeQueueStore", part), cast("ConsumeQueueStore", other))


def test_a_side_lacks_the_beginnings_that_the_log_will_not_bring() -> None:
    other = _Part("file", 0, same=(2, 9), more=(4, 9), empty=(7, 7), later=(3, 9), beyond=(0, 4),
                  none=(9, 12), behind=(10, 12), lost=(1, 6), end=(2, 9))  # fmt: skip
    part = _Part("rocksdb", 100, same=(2, 9), more=(0, 9), later=(5, 9), beyond=(8, 9),
                 lost=(9, 9), end=(2, 3))  # fmt: skip
    lacking = {"later": 2, "beyond": 4, "none": 3, "lost": 5}
    assert side(part, other) == BackendComparison(
        "rocksdb", 100, 4, sum(lacking.values()), QueueKey("later", 3)
    )
    assert side(other, other) == BackendComparison("file", 0, 0, 0, None)
    assert side(_Part("rocksdb", 100), _Part("file", 0, behind=(10, 12))).units == 0
    assert side(_Part("rocksdb", 101), _Part("file", 0, behind=(10, 12))).units == 2


QUEUE = QueueKey("orders", 3)
ALL = "the {} queues are complete"
FIRST = "the {} queues lack 5 older units in 2 queues (for example in queue 3 of topic 'orders')"
LAST = "end at phy offset 900, but the log ends at 1000"


@pytest.mark.parametrize("units", [0, 5])
@pytest.mark.parametrize("ends_at", [900, 1000])
def test_a_side_says_how_whole_it_is(units: int, ends_at: int) -> None:
    one = BackendComparison("file", ends_at, 2 if units else 0, units, QUEUE if units else None)
    wanted = {
        (0, 1000): ALL, (5, 1000): FIRST, (0, 900): f"the {{}} queues {LAST}",
        (5, 900): f"{FIRST} and {LAST}",
    }[units, ends_at]  # fmt: skip
    assert one.sentence(1000) == wanted.format("file")


@pytest.mark.parametrize("source_units", [0, 5])
@pytest.mark.parametrize("target_units", [0, 5])
@pytest.mark.parametrize("target_end", [900, 1000])
def test_the_ways_out_are_those_that_lose_nothing(
    source_units: int, target_units: int, target_end: int
) -> None:
    source = BackendComparison("file", 1000, 2, source_units, QUEUE)
    target = BackendComparison("rocksdb", target_end, 2, target_units, QUEUE)
    both = BothSides(source, target, 1000)
    reason = both.why_not_replace()
    if source_units:
        assert reason == f"{FIRST.format('file')}; the rocksdb queues have those units"
    else:
        assert reason is None
    said = both.refusal()
    assert said.startswith("the store already has rocksdb queues")
    assert source.sentence(1000) in said
    assert target.sentence(1000) in said
    recover = "run cqstore recover dir to complete both backends from the log"
    assert said.lower().count(recover) == 1
    assert said.endswith("cqstore mode DIR --to rocksdb, step by step")
    alike = not (source_units or target_units) and target_end == 1000
    assert ("changed by hand" in said) is not alike
    assert ("plan --replace" in said) is (not alike and not source_units)
