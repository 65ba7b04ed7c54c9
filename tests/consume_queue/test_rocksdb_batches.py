"""What the RocksDB backend makes of a batch: appends, replays, new lives, gaps, holes."""

from pathlib import Path

import pytest

from store.errors import IllegalMessageError, QueueGapError, ReadOnlyStoreError
from store.queue.facts import QueueRestart
from store.queue.units import BlockStop, CqUnit, QueueKey, UnitBatch
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RECORD_BYTES, RocksDBQueues, add, lose, phys, put

pytestmark = pytest.mark.usefixtures("engine")


def test_units_of_many_queues_come_back_from_the_disk(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    names = [("T", 1), ("T", 0), ("longer", 0), ("主题", 7), ("%LMQ%x", 0)]
    for first in range(0, 40, 8):
        batch = UnitBatch()
        for offset in range(first, first + 8):
            for place, name in enumerate(names):
                add(batch, *name, offset, (offset * len(names) + place) * RECORD_BYTES)
        store.put_batch(batch)
    store.close()
    store = queues.open()
    for place, name in enumerate(names):
        wanted = [(offset * 5 + place) * RECORD_BYTES for offset in range(40)]
        units = list(store.iterate(*name, 0))
        assert units == [CqUnit(o, p, RECORD_BYTES, -p) for o, p in enumerate(wanted)]
        assert store.unit_timestamp(*name, 3) == wanted[3] + 7
    assert set(store.queues()) == set(names)
    assert list(store.queues("T")) == [("T", 0), ("T", 1)]
    assert store.dispatch_from_phy_offset() == 200 * RECORD_BYTES
    store.close()


def test_a_queue_never_written_is_empty_and_asking_writes_nothing(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    assert store.max_offset("T", 0) == store.min_offset("T", 0) == 0
    assert store.read_units("T", 0, 0, 32).stop is BlockStop.END
    assert store.unit_timestamp("T", 0, 0) == -1
    assert list(store.queues()) == []
    store.close()


def test_blocks_end_with_a_limit_or_with_the_queue(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    cases = [(0, 4, 4, BlockStop.LIMIT), (6, 4, 4, BlockStop.LIMIT), (7, 4, 3, BlockStop.END)]
    for start, limit, count, stop in [*cases, (10, 4, 0, BlockStop.END), (-1, 4, 0, BlockStop.END)]:
        block = store.read_units("T", 0, start, limit)
        assert (block.count, block.stop, block.hole) == (count, stop, None)
    store.close()


def test_a_replay_changes_nothing(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    assert put(store, "T", 0, range(3, 12), 300) == []
    assert put(store, "T", 0, range(5), 0) == []
    assert phys(store, "T", 0) == list(range(0, 1200, 100))
    assert store.dispatch_from_phy_offset() == 1200
    store.close()


def test_a_record_behind_the_last_one_at_a_lower_offset_begins_a_new_life(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 1, range(2), 1000)
    restarts = put(store, "T", 0, range(3), 5000)
    assert restarts == [QueueRestart(QueueKey("T", 0), range(10), 5000)]
    for _ in range(2):
        assert phys(store, "T", 0) == [5000, 5100, 5200]
        assert store.max_offset("T", 0) == 3
        assert phys(store, "T", 1) == [1000, 1100]
        assert list(store.check_files()) == []
        store.close()
        store = queues.open()
    store.close()


def test_two_lives_in_one_batch_leave_the_second(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(2), 0)
    batch = UnitBatch()
    for place, offset in enumerate([2, 3, 4, 1, 2]):
        add(batch, "T", 0, offset, 200 + place * 100)
    assert store.put_batch(batch) == [QueueRestart(QueueKey("T", 0), range(1, 5), 500)]
    assert phys(store, "T", 0) == [0, 500, 600]
    assert list(store.check_files()) == []
    store.close()


def test_a_replay_of_an_older_life_does_not_touch_the_newer_one(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 0, range(3), 5000)
    assert put(store, "T", 0, range(10), 0) == []
    assert phys(store, "T", 0) == [5000, 5100, 5200]
    assert store.read_units("T", 0, 3, 1).count == 0
    store.close()


def test_a_gap_behind_live_units_is_an_error_and_nothing_of_the_batch_is_stored(
    tmp_path: Path,
) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(3), 0)
    batch = UnitBatch()
    add(batch, "A", 0, 0, 300)
    add(batch, "T", 0, 4, 400)
    with pytest.raises(QueueGapError) as caught:
        store.put_batch(batch)
    assert (caught.value.expected, caught.value.got, caught.value.phy_offset) == (3, 4, 400)
    assert store.max_offset("A", 0) == 0
    put(store, "T", 0, range(3, 4), 300)
    assert store.max_offset("T", 0) == 4
    store.close()


def test_a_queue_goes_on_behind_a_gap_if_all_it_had_has_expired(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    put(store, "T", 0, range(3), 0)
    assert store.min_offset("T", 0) == 0
    queues.log.min_phy = 1000
    assert store.min_offset("T", 0) == 3
    store.clean_expired(1000)
    assert put(store, "T", 0, range(8, 10), 1000) == []
    for _ in range(2):
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (8, 10)
        store.close()
        store = queues.open()
    store.close()


def test_a_new_queue_may_begin_anywhere(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(100, 103), 0)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (100, 103)
    block = store.read_units("T", 0, 98, 10)
    assert (block.count, block.stop, block.hole) == (0, BlockStop.HOLE, range(98, 100))
    store.close()


def test_a_hole_ends_the_block_with_its_range_and_a_replay_fills_it(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(4, 7))
    block = store.read_units("T", 0, 2, 8)
    assert (block.count, block.stop, block.hole) == (2, BlockStop.HOLE, range(4, 7))
    assert store.read_units("T", 0, 5, 8).hole == range(5, 7)
    lose(store, "T", 0, range(8, 10))
    assert store.read_units("T", 0, 7, 8).hole == range(8, 10)
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
    assert store.min_offset("T", 0) == 4
    put(store, "T", 0, range(10), 0)
    assert store.min_offset("T", 0) == 0
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


def test_an_impossible_topic_refuses_the_batch_before_anything_is_written(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    batch = UnitBatch()
    add(batch, "T", 0, 0, 0)
    add(batch, "x" * 282, 0, 0, 100)
    with pytest.raises(IllegalMessageError):
        store.put_batch(batch)
    with pytest.raises(IllegalMessageError):
        store.check_topic("CHECKPOINT_TOPIC")
    assert store.max_offset("T", 0) == 0
    store.close()


def test_a_read_only_store_takes_no_batch(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open(read_only=True)
    with pytest.raises(ReadOnlyStoreError):
        put(store, "T", 0, range(1), 0)
    store.close()
