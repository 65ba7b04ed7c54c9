"""RocksDB queues cut at either end, deleted, and taken up again after a crash."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, min_key, queue_prefix
from cqstore.cq_rocksdb.queues import cut
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.queue.units import UnitBatch
from tests.kit.engines import flush_units_alone, hold_compactions
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import (
    RocksDBQueues,
    add,
    crash,
    engine_of,
    expire,
    lose,
    phys,
    put,
)

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = queue_prefix("T", 0)


def test_truncation_cuts_the_queues_that_reach_behind_the_logs_end(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 1, range(5), 1000)
    assert store.truncate_dirty(600) == 2
    for _ in range(2):
        assert phys(store, "T", 0) == [0, 100, 200, 300, 400, 500]
        assert (store.queue("T", 0).max_offset(), store.queue("T", 1).max_offset()) == (6, 0)
        assert store.dispatch_from_phy_offset() == 600
        assert list(store.check_files()) == []
        store.close()
        store = queues.open()
    assert put(store, "T", 0, range(6, 8), 600) == []
    assert put(store, "T", 1, range(1), 800) == []
    assert phys(store, "T", 0)[-2:] == [600, 700]
    store.close()


def test_truncation_after_a_clean_stop_leaves_a_database_that_the_log_covers(
    tmp_path: Path,
) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    assert store.truncate_dirty(1000) == 0
    assert store.dispatch_from_phy_offset() == 1000
    store.close()


def test_truncation_after_a_crash_does_not_trust_the_checkpoint_entry(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open(last_exit_ok=False)
    put(store, "T", 0, range(10), 0, end=300)  # as a replay of RocketMQ's can leave it
    assert store.truncate_dirty(500) == 1
    assert (store.queue("T", 0).max_offset(), store.dispatch_from_phy_offset()) == (5, 300)
    store.close()


def test_a_second_truncation_searches_only_what_the_first_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open(last_exit_ok=False)
    put(store, "T", 0, range(10), 0, end=300)
    assert store.truncate_dirty(500) == 1
    assert store.truncate_dirty(400) == 1, "the checkpoint entry does not cover units 3 and 4"
    put(store, "T", 0, range(4, 6), 400)
    assert store.truncate_dirty(500) == 1
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.cq_rocksdb.queues.rocksdb_store.truncate_dirty", None)
        assert store.truncate_dirty(500) == store.truncate_dirty(900) == 0
    assert phys(store, "T", 0) == [0, 100, 200, 300, 400]
    store.close()


def test_a_truncated_queue_whose_kept_units_expired_keeps_its_next_offset(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    queues.log.min_phy = 500
    expire(store, 500, {("T", 0): 5})
    assert store.truncate_dirty(500) == 1
    assert store.queue("T", 0).ends() == (5, 5)
    value = engine_of(store).get(Family.OFFSET, max_key(PREFIX))
    assert value is not None
    assert OFFSET_ENTRY.unpack_from(value) == (-1, 4)
    assert put(store, "T", 0, range(5, 6), 700) == []
    assert phys(store, "T", 0) == [700]
    store.close()


def test_a_hole_before_the_cut_can_still_be_filled(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(3, 6))
    assert store.truncate_dirty(600) == 1
    assert store.queue("T", 0).max_offset() == 6
    assert put(store, "T", 0, range(6), 0) == []
    assert phys(store, "T", 0) == [0, 100, 200, 300, 400, 500]
    store.close()


def test_what_is_missing_up_to_the_end_is_appended_again(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(3, 10))
    assert store.truncate_dirty(600) == 1
    assert store.queue("T", 0).max_offset() == 3
    assert put(store, "T", 0, range(3, 6), 300) == []
    assert phys(store, "T", 0) == [0, 100, 200, 300, 400, 500]
    store.close()


def test_expired_units_go_and_the_minimum_is_stored(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 1, range(10), 1000)
    put(store, "U", 0, range(3), 3000)
    queues.log.min_phy = 1250
    assert expire(store, 1250, {("T", 0): 10, ("T", 1): 3}) == 2
    for _ in range(2):
        assert store.queue("T", 0).ends() == (10, 10)
        assert store.queue("T", 1).ends() == (3, 10)
        assert store.queue("U", 0).min_offset() == 0
        assert stored_min(store, queue_prefix("T", 1)) == (1300, 3)
        assert stored_min(store, PREFIX) == (1250, 10)
        assert engine_of(store).first_unit(PREFIX, 0) is None
        assert list(store.check_files()) == []
        assert expire(store, 1250, {("T", 0): 10, ("T", 1): 3}) == 0
        assert expire(store, 1250, None) == 0
        store.close()
        store = queues.open()
    put(store, "T", 0, range(10, 11), 5000)
    assert store.queue("T", 0).min_offset() == 10
    store.close()


def test_the_minimum_follows_the_log_and_reading_it_writes_nothing(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    put(store, "T", 0, range(100), 0)
    for minimum, wanted in ((0, 0), (1, 1), (5_000, 50), (9_900, 99), (9_901, 100), (20_000, 100)):
        queues.log.min_phy = minimum
        assert store.queue("T", 0).min_offset() == wanted
        assert store.queue("Unknown", 0).min_offset() == 0
    assert stored_min(store, PREFIX) is None
    assert list(store.queues()) == [("T", 0)]
    store.close()


def test_units_that_are_missing_do_not_hide_the_ones_before_them(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog(min_phy=2_000))
    store = queues.open()
    put(store, "T", 0, range(100), 0)
    lose(store, "T", 0, range(30, 90))
    assert store.queue("T", 0).min_offset() == 20
    queues.log.min_phy = 4_000
    assert store.queue("T", 0).min_offset() == 90
    store.close()


def test_a_queue_that_has_lost_every_unit_of_the_log_is_empty_and_goes_on(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog(min_phy=2_000))
    store = queues.open()
    put(store, "T", 0, range(100), 0)
    lose(store, "T", 0, range(100))
    for _ in range(2):
        assert store.queue("T", 0).ends() == (100, 100)
    store.close()


def test_a_stale_stored_minimum_is_where_the_search_begins(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog(min_phy=500))
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    engine_of(store).write(EngineBatch(puts=[(min_key(PREFIX), entry(200, 2))]))
    assert store.queue("T", 0).min_offset() == 5
    assert stored_min(store, PREFIX) == (200, 2)
    store.close()


def test_a_max_entry_of_minus_one_is_an_empty_queue(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    engine_of(store).write(EngineBatch(puts=[(max_key(PREFIX), entry(0, -1))]))
    assert store.queue("T", 0).ends() == (0, 0)
    put(store, "T", 0, range(1), 0)
    assert phys(store, "T", 0) == [0]
    store.close()


def test_a_deleted_topic_is_gone_at_once_and_on_disk_and_no_other_one_is(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    hold_compactions(engine_of(store))
    for place, name in enumerate([("T", 0), ("T", 9), ("U", 0), ("T1", 0)]):
        put(store, *name, range(5), place * 500)
    store.flush()
    put(store, "T", 1, range(5), 2000)
    store.delete_topics(["T"])
    store.delete_topics(["never written"])
    assert (store.queue("T", 0).max_offset(), store.queue("T", 0).read_units(0, 9).count) == (0, 0)
    put(store, "T", 0, range(2), 9000)
    assert phys(store, "T", 0) == [9000, 9100]
    store = crash(store, tmp_path / "crashed").open()
    assert list(store.queues()) == [("U", 0), ("T1", 0)]
    assert list(store.check_files()) == []
    store.close()


def test_a_deleted_topic_leaves_no_key_and_its_space_comes_back(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    engine = engine_of(store)
    names = ["T", "T1", "S", "%LMQ%T", "TT"]
    for place, topic in enumerate(names):
        for queue_id in (0, 1, 2147483647):
            put(store, topic, queue_id, range(2000), place * 10**6 + queue_id % 7 * 10**5)
    store.flush()
    before = sum(file.size_bytes for file in engine.live_files())
    kept = {family: all_keys(engine, family) for family in Family}
    for topic in ("T", "%LMQ%T"):
        store.delete_topics([topic])
        prefix = queue_prefix(topic, 0)[:-6]
        assert any(key.startswith(prefix) for key in kept[Family.DEFAULT])
        for family in Family:
            kept[family] = [key for key in kept[family] if not key.startswith(prefix)]
    for family in Family:
        assert all_keys(engine, family) == kept[family]
        engine.compact(family)
        assert all_keys(engine, family) == kept[family]
    assert sum(file.size_bytes for file in engine.live_files()) < before * 0.7
    store.close()


def all_keys(engine: RocksEngine, family: Family) -> list[bytes]:
    return [key for key, _ in engine.scan(family, b"", b"\xff" * 300, 1_000_000)]


def test_a_crash_keeps_what_was_flushed_and_a_replay_from_the_checkpoint_brings_the_rest(
    tmp_path: Path,
) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    hold_compactions(engine_of(store))
    put(store, "T", 0, range(10), 0)
    store.flush()
    put(store, "T", 0, range(10, 20), 1000)
    put(store, "T", 1, range(3), 2000)
    store = crash(store, tmp_path / "crashed").open(last_exit_ok=False)
    assert store.dispatch_from_phy_offset() == 1000
    assert (store.queue("T", 0).max_offset(), store.queue("T", 1).max_offset()) == (10, 0)
    put(store, "T", 0, range(10, 20), 1000)
    assert phys(store, "T", 0) == list(range(0, 2000, 100))
    store.close()


def truncated(store: RocksDBConsumeQueueStore) -> None:
    assert store.truncate_dirty(500) == 1


def topic_deleted(store: RocksDBConsumeQueueStore) -> None:
    store.delete_topics(["T"])


def queue_deleted(store: RocksDBConsumeQueueStore) -> None:
    store.delete_queue("T", 0)


@pytest.mark.parametrize(("cut", "left"), [(truncated, 5), (topic_deleted, 0), (queue_deleted, 0)])
def test_what_was_cut_stays_cut_when_a_crash_follows_at_once(
    tmp_path: Path, cut: Callable[[RocksDBConsumeQueueStore], None], left: int
) -> None:
    store = RocksDBQueues(tmp_path).open(last_exit_ok=False)
    hold_compactions(engine_of(store))
    put(store, "T", 0, range(10), 0)
    store.flush()
    cut(store)
    store = crash(store, tmp_path / "crashed").open(last_exit_ok=False)
    assert store.queue("T", 0).max_offset() == left
    assert phys(store, "T", 0) == list(range(0, left * 100, 100))
    assert store.dispatch_from_phy_offset() == (500 if left else 1000)
    store.close()


def test_a_crash_between_the_two_flushes_loses_no_unit_that_an_entry_speaks_of(
    tmp_path: Path,
) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    hold_compactions(engine_of(store))
    put(store, "T", 0, range(10), 0)
    flush_units_alone(engine_of(store))
    store = crash(store, tmp_path / "crashed").open(last_exit_ok=False)
    assert (store.dispatch_from_phy_offset(), store.queue("T", 0).max_offset()) == (0, 0)
    assert put(store, "T", 0, range(10), 0) == []
    assert phys(store, "T", 0) == list(range(0, 1000, 100))
    assert list(store.check_files()) == []
    store.close()


def test_cutting_many_queues_takes_several_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    batch = UnitBatch()
    for offset in range(4):
        for queue_id in range(10):
            add(batch, "T", queue_id, offset, (offset * 10 + queue_id) * 100)
    store.put_batch(batch)
    sizes: list[int] = []
    real = engine_of(store).write

    def noting(write: EngineBatch) -> None:
        sizes.append(len(write.puts))
        real(write)

    monkeypatch.setattr(engine_of(store), "write", noting)
    monkeypatch.setattr(cut, "_QUEUES_A_WRITE", 5)
    assert store.truncate_dirty(3000) == 10
    assert sizes == [5, 5, 1]  # the last one is the checkpoint entry
    sizes.clear()
    monkeypatch.setattr(cut, "_QUEUES_A_WRITE", 3)
    queues.log.min_phy = 1000
    assert expire(store, 1000, {("T", queue_id): 1 for queue_id in range(10)}) == 10
    assert sizes == [3, 3, 3, 1]
    for queue_id in range(10):
        assert phys(store, "T", queue_id) == [1000 + queue_id * 100, 2000 + queue_id * 100]
    sizes.clear()
    queues.log.min_phy = 2000
    assert expire(store, 2000, {("T", queue_id): 2 for queue_id in range(9)}) == 9
    assert sizes == [3, 3, 3]
    store.close()


@pytest.mark.parametrize(
    ("lost", "end", "kept"),
    [
        (range(0), 600, (500, 5)),
        (range(0), 501, (500, 5)),
        (range(0), 900, (800, 8)),
        (range(0), 100, (0, 0)),
        (range(0), 0, (-1, -1)),
        (range(3, 6), 600, (599, 5)),  # may be filled by a replay
        (range(5, 6), 600, (599, 5)),
        (range(8, 10), 600, (500, 5)),
        (range(9, 10), 900, (800, 8)),
        (range(3, 10), 600, (200, 2)),  # nothing behind it is left
        (range(6), 600, (-1, 5)),  # as if expired
        (range(10), 600, (-1, 8)),
    ],
)
def test_a_cut_queue_ends_at_the_first_unit_that_went(
    tmp_path: Path, lost: range, end: int, kept: tuple[int, int]
) -> None:
    store = RocksDBQueues(tmp_path).open(last_exit_ok=False)
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, lost)
    assert store.truncate_dirty(end) == 1
    value = engine_of(store).get(Family.OFFSET, max_key(PREFIX))
    assert value == OFFSET_ENTRY.pack(OffsetEntry(*kept))
    assert engine_of(store).first_unit(PREFIX, kept[1] + 1) is None
    there = [at for at in range(10) if at not in lost and at <= kept[1]]
    last = engine_of(store).last_unit(PREFIX, 100)
    assert (last and last[0]) == (there[-1] if there else None)
    store.close()


def test_queues_that_end_before_a_cut_are_passed(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open(last_exit_ok=False)
    for place, topic in enumerate("ABCD"):
        put(store, topic, 0, range(1), place * 100)
    empty = max_key(queue_prefix("E", 0)), entry(9000, -1)
    engine_of(store).write(EngineBatch(puts=[empty, (min_key(queue_prefix("D", 0)), entry(0, 0))]))
    assert store.truncate_dirty(200) == 2
    assert [store.queue(topic, 0).max_offset() for topic in "ABCD"] == [1, 1, 0, 0]
    assert engine_of(store).get(Family.OFFSET, empty[0]) == empty[1]
    assert stored_min(store, queue_prefix("D", 0)) is None
    store.close()


@pytest.mark.parametrize(
    ("minimum", "stored", "first"),
    [
        (1000, None, 0), (1001, (1100, 1), 1), (1100, (1100, 1), 1), (1900, (1900, 9), 9),
        (1901, (1901, 10), None),
    ],
)  # fmt: skip
def test_a_stored_minimum_is_the_first_unit_of_the_log(
    tmp_path: Path, minimum: int, stored: tuple[int, int] | None, first: int | None
) -> None:
    queues = RocksDBQueues(tmp_path, NoLog(min_phy=minimum))
    store = queues.open()
    put(store, "A", 0, range(3), 5000)  # which has nothing to clean, and comes first
    put(store, "T", 0, range(10), 1000)
    cleaned = expire(store, minimum, {("A", 0): 0, ("Unknown", 0): 0, ("T", 0): 10})
    assert cleaned == (stored is not None)
    assert stored_min(store, PREFIX) == stored
    assert stored_min(store, queue_prefix("A", 0)) is None
    found = engine_of(store).first_unit(PREFIX, 0)
    assert (found and found[0]) == first
    assert store.queue("T", 0).min_offset() == (10 if first is None else first)
    store.close()


def entry(phy_offset: int, queue_offset: int) -> bytes:
    return OFFSET_ENTRY.pack(OffsetEntry(phy_offset, queue_offset))


def stored_min(store: RocksDBConsumeQueueStore, prefix: bytes) -> OffsetEntry | None:
    value = engine_of(store).get(Family.OFFSET, min_key(prefix))
    return None if value is None else OFFSET_ENTRY.unpack_from(value)
