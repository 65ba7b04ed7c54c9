"""What the RocksDB backend makes of a batch: appends, replays, new incarnations, gaps, holes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch
from cqstore.cq_rocksdb.keys import (
    OFFSET_ENTRY,
    OffsetEntry,
    max_key,
    min_key,
    queue_prefix,
    unit_key,
)
from cqstore.cq_rocksdb.queues import batch_plan
from cqstore.cq_rocksdb.queues.batch_plan import BatchPlan
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import QueueGapError
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, QueueUnit, UnitBatch
from tests.kit.engines import put_raw
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RocksDBQueues, add, engine_of, lose, phys, put

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = queue_prefix("T", 0)
Key = Callable[[bytes], bytes]


def test_a_hole_ends_the_block_with_its_range_and_a_replay_fills_it(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(4, 7))
    block = store.queue("T", 0).read_units(2, 8)
    assert (block.count, block.stop, block.hole) == (2, BlockStop.HOLE, range(4, 7))
    assert store.queue("T", 0).read_units(5, 8).hole == range(5, 7)
    lose(store, "T", 0, range(8, 10))
    assert store.queue("T", 0).read_units(7, 8).hole == range(8, 10)
    blocks = store.queue("T", 0).blocks(1, 10, 2)
    assert [(each.queue_offset, each.count) for each in blocks] == [(1, 2), (3, 1), (7, 1)]
    assert [finding.problem for finding in store.check_files()] == [
        "units 8 to 9 are missing before the max entry",
        "units 4 to 6 are missing",
    ]
    assert put(store, "T", 0, range(10), 0) == []
    assert phys(store, "T", 0) == list(range(0, 1000, 100))
    assert list(store.check_files()) == []
    store.close()


def test_a_filled_head_is_found_again_by_the_minimum(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(4))
    assert store.queue("T", 0).min_offset() == 4
    put(store, "T", 0, range(10), 0)
    assert store.queue("T", 0).min_offset() == 0
    store.close()


def test_a_batch_without_units_moves_the_checkpoint_and_never_back(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    for end, wanted in ((700, 700), (300, 700)):
        batch = UnitBatch()
        batch.end_phy_offset = end
        assert store.put_batch(batch) == []
        assert store.dispatch_from_phy_offset() == wanted
    store.close()
    store = queues.open()
    assert store.dispatch_from_phy_offset() == 700
    store.close()


def stored(store: RocksDBConsumeQueueStore, kind: Key, phy_offset: int, queue_offset: int) -> None:
    """Write an entry of the queue behind the store's back."""
    entry = OFFSET_ENTRY.pack(OffsetEntry(phy_offset, queue_offset))
    engine_of(store).write(EngineBatch(puts=[(kind(PREFIX), entry)]))
    store._offsets.forget_all()


def test_a_replay_writes_what_is_missing_or_older_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_plan, "_FILL_UNITS", 3)
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(2, 20), 200)
    for lost in (range(3, 5), range(7, 8), range(12, 20)):
        lose(store, "T", 0, lost)
    old = QUEUE_UNIT.pack(QueueUnit(1, 1, 1, 1))  # of an earlier incarnation
    put_raw(engine_of(store), unit_key(PREFIX, 9), old, tmp_path / "old.sst")
    batch = UnitBatch()
    for offset in range(2, 20):
        add(batch, "T", 0, offset, offset * 100)
    plan = BatchPlan(batch.runs(), store._offsets, store._units, NoLog().min_phy_offset)
    wanted = [3, 4, 7, 9, *range(12, 20)]
    assert plan.plan().queue_offset.tolist() == wanted
    assert plan.write.puts == [], "the queue ends where it did"
    assert put(store, "T", 0, range(2, 20), 200) == []
    assert phys(store, "T", 0) == list(range(200, 2000, 100))
    again = BatchPlan(batch.runs(), store._offsets, store._units, NoLog().min_phy_offset)
    assert again.plan().queue_offset.tolist() == []
    assert again.write.deletes == []
    store.close()


def test_a_replay_behind_the_end_of_a_newer_incarnation_is_passed(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 0, range(3), 5000)
    assert put(store, "T", 0, range(5, 10), 500) == []
    assert store.queue("T", 0).max_offset() == 3
    assert engine_of(store).first_unit(PREFIX, 3) is None
    put(store, "T", 0, range(3, 4), 5300)
    assert phys(store, "T", 0) == [5000, 5100, 5200, 5300]
    store.close()


@pytest.mark.parametrize(("minimum", "goes_on"), [(0, False), (200, False), (201, True)])
def test_a_gap_is_one_as_long_as_the_last_record_lives(
    tmp_path: Path,
    minimum: int,
    goes_on: bool,  # noqa: FBT001
) -> None:
    store = RocksDBQueues(tmp_path, NoLog(min_phy=minimum)).open()
    put(store, "T", 0, range(1), 200)
    batch = UnitBatch()
    add(batch, "T", 0, 5, 300)
    if goes_on:
        assert store.put_batch(batch) == []
        assert store.queue("T", 0).ends() == (5, 6)
    else:
        with pytest.raises(QueueGapError) as caught:
            store.put_batch(batch)
        assert (caught.value.expected, caught.value.got) == ("queue offset 1", "queue offset 5")
        assert caught.value.phy_offset == 300
        assert store.queue("T", 0).ends() == (0, 1)
    store.close()


def test_behind_an_end_that_never_had_its_unit_a_queue_goes_on_anywhere_once(
    tmp_path: Path,
) -> None:
    store = RocksDBQueues(tmp_path).open()
    stored(store, max_key, 100, 4)
    batch = UnitBatch()
    add(batch, "T", 0, 9, 1000)
    add(batch, "T", 0, 20, 1100)
    with pytest.raises(QueueGapError) as caught:
        store.put_batch(batch)
    assert (caught.value.expected, caught.value.got) == ("queue offset 10", "queue offset 20")
    assert store.queue("T", 0).max_offset() == 5
    put(store, "T", 0, range(9, 10), 1000)
    assert store.queue("T", 0).ends() == (9, 10)
    store.close()


def test_a_stored_minimum_goes_when_the_first_unit_may_be_another(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    stored(store, min_key, 300, 3)
    assert store.queue("T", 0).min_offset() == 3
    put(store, "T", 0, range(10, 11), 1000)
    assert store.queue("T", 0).min_offset() == 3, "of a queue that only went on it stays"
    put(store, "T", 0, range(2), 5000)  # a new incarnation
    assert store.queue("T", 0).min_offset() == 0
    lose(store, "T", 0, range(1))
    stored(store, min_key, 5100, 1)
    assert store.queue("T", 0).min_offset() == 1
    put(store, "T", 0, range(2), 5000)  # a replay that fills the head
    assert store.queue("T", 0).min_offset() == 0
    queues.log.min_phy = 6000
    stored(store, min_key, 6000, 2)  # RocketMQ's of a queue that has expired
    assert store.queue("T", 0).min_offset() == 2
    put(store, "T", 0, range(8, 9), 6000)  # behind a gap
    assert store.queue("T", 0).min_offset() == 8
    store.close()
