"""What ``check`` finds in a RocksDB by itself, and that it finds nothing in a sound one."""

from pathlib import Path

import pytest

from cq_rocksdb.engine import EngineBatch
from cq_rocksdb.keys import (
    CHECKPOINT_KEY,
    OFFSET_ENTRY,
    OffsetEntry,
    max_key,
    min_key,
    queue_prefix,
)
from store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit
from tests.kit.engines import put_raw
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of, lose, put

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = queue_prefix("T", 0)
UNIT_5 = PREFIX + (5).to_bytes(8, "big")


def entry(phy_offset: int, queue_offset: int) -> bytes:
    return OFFSET_ENTRY.pack(OffsetEntry(phy_offset, queue_offset))


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"odd", bytes(16), "key 6f6464 is too short"),
        (max_key(PREFIX), bytes(15), "the max entry has 15 bytes instead of 16"),
        (min_key(PREFIX), bytes(8), "the min entry has 8 bytes instead of 16"),
        (CHECKPOINT_KEY, bytes(16), "the checkpoint entry has 16 bytes instead of 8"),
        (
            CHECKPOINT_KEY,
            (5000).to_bytes(8, "big"),
            "the checkpoint entry 5000 lies behind the log's end 1000",
        ),
        (max_key(PREFIX), entry(901, 9), "the max entry says phy_offset 901, its unit 900"),
        (max_key(PREFIX), entry(1100, 11), "units 10 to 11 are missing before the max entry"),
        (max_key(PREFIX), entry(700, 7), "units lie behind the max entry 7; nobody sees them"),
        (min_key(PREFIX), entry(300, 3), "the min entry hides units: it says 3, "),
    ],
)
def test_an_entry_that_does_not_fit_is_found(
    tmp_path: Path, key: bytes, value: bytes, problem: str
) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    assert list(store.check_files()) == []
    engine_of(store).write(EngineBatch(puts=[(key, value)]))
    store._offsets.forget_all()
    found = [finding.problem for finding in store.check_files()]
    assert found[0].startswith(problem)
    assert all(finding.path == str(store.folder) for finding in store.check_files())
    store.close()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"odd", bytes(28), "key 6f6464 is too short"),
        (UNIT_5, bytes(27), "the unit has 27 bytes instead of 28"),
        (UNIT_5, QUEUE_UNIT.pack(QueueUnit(400, 1, 0, 0)), "phy_offset 400 does not lie behind"),
        (
            queue_prefix("Other", 1) + bytes(8),
            bytes(28),
            "the queue has units and no max entry",
        ),
    ],
)
def test_a_unit_that_does_not_fit_is_found(
    tmp_path: Path, key: bytes, value: bytes, problem: str
) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    put_raw(engine_of(store), key, value, tmp_path / "extra.sst")
    (finding, *_) = store.check_files()
    assert finding.problem.startswith(problem)
    store.close()


def test_a_hole_is_found_with_its_queue_and_offset(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(4, 7))
    (finding,) = store.check_files()
    assert finding.problem == "units 4 to 6 are missing"
    assert (finding.queue, finding.queue_offset) == (QueueKey("T", 0), 4)
    store.close()


def test_expired_units_may_be_missing_in_any_part(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 1, range(3), 1000)
    queues.log.min_phy = 600
    lose(store, "T", 0, range(2, 4))
    assert list(store.check_files()) == []
    queues.log.min_phy = 5000
    lose(store, "T", 0, range(4, 10))
    assert list(store.check_files()) == []
    store.close()


def test_a_queue_without_any_of_its_units_misses_them_from_the_first(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(10))
    (finding,) = store.check_files()
    assert finding.problem == "units 0 to 9 are missing before the max entry"
    assert finding.queue_offset == 0
    store.close()
