"""What ``check`` finds in a RocksDB by itself, and that it finds nothing in a sound one."""

from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch
from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_KEY,
    OFFSET_ENTRY,
    OffsetEntry,
    max_key,
    min_key,
    queue_prefix,
)
from cqstore.cq_rocksdb.queues import check, offset_table
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit
from tests.kit.engines import put_raw
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of, lose, put

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = queue_prefix("T", 0)
UNIT_5 = PREFIX + (5).to_bytes(8, "big")


def entry(phy_offset: int, queue_offset: int) -> bytes:
    return OFFSET_ENTRY.pack(OffsetEntry(phy_offset, queue_offset))


OF_QUEUE = QueueKey("T", 0)
Found = tuple[str, QueueKey | None, int | None]
"""Problem, queue and queue offset of a finding."""


FACTS: dict[str, tuple[object, object]] = {
    "key 00 is too short": ("at least 14 bytes", "1 bytes"),
    "the max entry has 1 bytes instead of 16": (16, 1),
    "the max entry has 15 bytes instead of 16": (16, 15),
    "the min entry has 2 bytes instead of 16": (16, 2),
    "the min entry has 8 bytes instead of 16": (16, 8),
    "the checkpoint entry has 3 bytes instead of 8": (8, 3),
    "the checkpoint entry has 16 bytes instead of 8": (8, 16),
    "the checkpoint entry 1001 is after the log's end 1000": ("at most 1000", 1001),
    "the max entry has phy_offset 901, its unit has 900": (901, 900),
    "the max entry has phy_offset 950, its unit has 0": (950, 0),
    "units 10 to 11 are missing before the max entry": ("unit 10", "none"),
    "units 0 to 4 are missing before the max entry": ("unit 0", "none"),
    "units 0 to 9 are missing before the max entry": ("unit 0", "none"),
    "units after the max entry 7 are not visible to readers": ("at most 7", 8),
    "units after the max entry 5 are not visible to readers": ("at most 5", 6),
    "units after the max entry 0 are not visible to readers": ("at most 0", 1),
    "units after the max entry -1 are not visible to readers": ("at most -1", 0),
    "the min entry hides units: it is 3, the first unit in the log is 0": (0, 3),
    "units 0 to 2 are missing": ("unit 0", "unit 3"),
    "units 2 to 2 are missing": ("unit 2", "unit 3"),
    "units 4 to 4 are missing": ("unit 4", "unit 5"),
    "units 5 to 5 are missing": ("unit 5", "unit 6"),
    "the unit has 27 bytes instead of 28": (28, 27),
    "the unit has 29 bytes instead of 28": (28, 29),
    "phy_offset 400 is not after the previous phy_offset 400": ("more than 400", 400),
}
"""What each problem expects and has found; what depends on more is said below."""


def found_in(store: RocksDBConsumeQueueStore) -> list[Found]:
    """Return what a check finds, after every finding has named folder, expected and found."""
    findings = list(store.check_files())
    assert {finding.path for finding in findings} <= {str(store.folder)}
    for each in findings:
        facts = each.expected, each.found
        if each.problem == "key 6f6464 is too short":  # in either family
            assert facts in {("at least 14 bytes", "3 bytes"), ("at least 19 bytes", "3 bytes")}
        elif each.problem == "the queue has units but no max entry":
            assert facts[0] == "a max entry"
            assert facts[1] in {"none", "1 bytes", "15 bytes"}
        else:
            assert facts == FACTS[each.problem]
    return [(each.problem, each.queue, each.queue_offset) for each in findings]


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        (b"odd", bytes(16), [("key 6f6464 is too short", None, None)]),
        (
            max_key(PREFIX),
            bytes(15),
            [
                ("the max entry has 15 bytes instead of 16", OF_QUEUE, None),
                ("the queue has units but no max entry", OF_QUEUE, None),
            ],
        ),
        (
            min_key(PREFIX),
            bytes(8),
            [("the min entry has 8 bytes instead of 16", OF_QUEUE, None)],
        ),
        (
            CHECKPOINT_KEY,
            bytes(16),
            [("the checkpoint entry has 16 bytes instead of 8", None, None)],
        ),
        (
            CHECKPOINT_KEY,
            (1001).to_bytes(8, "big"),
            [("the checkpoint entry 1001 is after the log's end 1000", None, None)],
        ),
        (
            max_key(PREFIX),
            entry(901, 9),
            [("the max entry has phy_offset 901, its unit has 900", OF_QUEUE, 9)],
        ),
        (
            max_key(PREFIX),
            entry(1100, 11),
            [("units 10 to 11 are missing before the max entry", OF_QUEUE, 10)],
        ),
        (
            max_key(PREFIX),
            entry(700, 7),
            [("units after the max entry 7 are not visible to readers", OF_QUEUE, 8)],
        ),
        (
            max_key(PREFIX),
            entry(950, 0),
            [
                ("the max entry has phy_offset 950, its unit has 0", OF_QUEUE, 0),
                ("units after the max entry 0 are not visible to readers", OF_QUEUE, 1),
            ],
        ),
        (
            max_key(PREFIX),
            entry(950, -1),  # RocketMQ's for a queue without units
            [("units after the max entry -1 are not visible to readers", OF_QUEUE, 0)],
        ),
        (
            min_key(PREFIX),
            entry(300, 3),
            [
                (
                    "the min entry hides units: it is 3, the first unit in the log is 0",
                    OF_QUEUE,
                    3,
                )
            ],
        ),
    ],
)
def test_an_entry_that_does_not_fit_is_found(
    tmp_path: Path, key: bytes, value: bytes, wanted: list[Found]
) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    assert found_in(store) == []
    engine_of(store).write(EngineBatch(puts=[(key, value)]))
    store._offsets.forget_all()
    assert found_in(store) == wanted
    store.close()


def test_what_is_found_hides_nothing_that_follows(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path, NoLog(min_phy=100, max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    put(store, "U", 0, range(2), 1000)
    expired, made_up = queue_prefix("A", 0), queue_prefix("S", 7)
    puts = [
        (b"\0", bytes(16)),
        (max_key(expired), entry(99, 4)),
        (max_key(made_up), entry(500, -1)),
        (max_key(PREFIX), bytes(1)),
        (min_key(queue_prefix("U", 0)), bytes(2)),
        (CHECKPOINT_KEY, bytes(3)),
        (b"odd", bytes(16)),
    ]
    engine_of(store).write(EngineBatch(puts=puts))
    lose(store, "U", 0, range(1))
    assert found_in(store) == [
        ("key 00 is too short", None, None),
        ("the max entry has 1 bytes instead of 16", OF_QUEUE, None),
        ("the min entry has 2 bytes instead of 16", QueueKey("U", 0), None),
        ("the checkpoint entry has 3 bytes instead of 8", None, None),
        ("key 6f6464 is too short", None, None),
        ("the queue has units but no max entry", OF_QUEUE, None),
    ]
    store.close()


@pytest.mark.parametrize(
    ("phy_offset", "first"), [(0, None), (300, None), (301, 0), (299, None), (50, None)]
)
def test_an_end_without_units_is_made_up_where_rocketmq_makes_it_up(
    tmp_path: Path, phy_offset: int, first: int | None
) -> None:
    """It writes 0 or the log's minimum; what lies below has expired."""
    store = RocksDBQueues(tmp_path, NoLog(min_phy=300, max_phy=1000)).open()
    engine_of(store).write(EngineBatch(puts=[(max_key(PREFIX), entry(phy_offset, 4))]))
    problem = "units 0 to 4 are missing before the max entry"
    assert found_in(store) == ([] if first is None else [(problem, OF_QUEUE, first)])
    store.close()


def test_a_minimum_before_the_first_unit_tells_of_lost_ones(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    engine_of(store).write(EngineBatch(puts=[(min_key(PREFIX), entry(0, 0))]))
    assert found_in(store) == []
    lose(store, "T", 0, range(3))
    assert found_in(store) == [("units 0 to 2 are missing", OF_QUEUE, 0)]
    lose(store, "T", 0, range(10))
    problem = "units 0 to 9 are missing before the max entry"
    assert found_in(store) == [(problem, OF_QUEUE, 0)]
    store.close()


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        (b"odd", bytes(28), [("key 6f6464 is too short", None, None)]),
        (
            UNIT_5,
            bytes(27),
            [
                ("the unit has 27 bytes instead of 28", OF_QUEUE, 5),
                ("units 5 to 5 are missing", OF_QUEUE, 5),
            ],
        ),
        (
            UNIT_5,
            QUEUE_UNIT.pack(QueueUnit(500, 1, 0, 0)) + b"x",
            [("the unit has 29 bytes instead of 28", OF_QUEUE, 5)],
        ),
        (
            UNIT_5,
            QUEUE_UNIT.pack(QueueUnit(400, 1, 0, 0)),
            [("phy_offset 400 is not after the previous phy_offset 400", OF_QUEUE, 5)],
        ),
        (
            queue_prefix("Other", 1) + bytes(8),
            bytes(28),
            [("the queue has units but no max entry", QueueKey("Other", 1), None)],
        ),
    ],
)
def test_a_unit_that_does_not_fit_is_found(
    tmp_path: Path, key: bytes, value: bytes, wanted: list[Found]
) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    put_raw(engine_of(store), key, value, tmp_path / "extra.sst")
    assert found_in(store) == wanted
    store.close()


def test_units_that_no_entry_covers_are_told_once_a_queue(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path, NoLog(max_phy=1000)).open()
    put(store, "T", 0, range(10), 0)
    put(store, "U", 0, range(10), 0, end=1000)
    for prefix, last in ((PREFIX, 5), (queue_prefix("U", 0), 7)):
        put_entry = (max_key(prefix), entry(last * 100, last))
        engine_of(store).write(EngineBatch(puts=[put_entry]))
    other = queue_prefix("Other", 1)
    for offset in (0, 1, 3):  # neither in order nor whole, and it does not matter
        put_raw(
            engine_of(store), other + offset.to_bytes(8, "big"), bytes(28),
            tmp_path / f"{offset}.sst",
        )  # fmt: skip
    assert found_in(store) == [
        ("units after the max entry 5 are not visible to readers", OF_QUEUE, 6),
        ("units after the max entry 7 are not visible to readers", QueueKey("U", 0), 8),
        ("the queue has units but no max entry", QueueKey("Other", 1), None),
    ]
    store.close()


def test_an_audit_counts_queues_units_and_those_below_the_minimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "SCAN_ROWS", 4)
    monkeypatch.setattr(offset_table, "_SCAN_ENTRIES", 2)
    queues = RocksDBQueues(tmp_path, NoLog(max_phy=2000))
    store = queues.open()
    put(store, "T", 0, range(8), 0)
    put(store, "T", 1, range(4), 800)
    put(store, "U", 0, range(1), 1200)
    queues.log.min_phy = 300
    expire_entry = (min_key(PREFIX), entry(300, 3))
    engine_of(store).write(EngineBatch(puts=[expire_entry]))
    audit = store.audit()
    assert list(audit.findings()) == []
    assert (audit.queues, audit.units, audit.expired_units) == (3, 13, 3)
    lose(store, "T", 0, range(4, 5))
    lose(store, "T", 1, range(2, 3))
    assert found_in(store) == [
        ("units 4 to 4 are missing", OF_QUEUE, 4),
        ("units 2 to 2 are missing", QueueKey("T", 1), 2),
    ]
    queues.log.min_phy = 301  # unit 3, which tells that 4 should follow, has expired
    assert found_in(store) == [("units 2 to 2 are missing", QueueKey("T", 1), 2)]
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
