"""Where units and queues are looked up: against plain loops over what was put."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, min_key, queue_prefix
from cqstore.cq_rocksdb.queues import offset_table, spans
from cqstore.cq_rocksdb.queues.offset_table import NO_UNIT, OffsetTable, PlannedEnds
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.cq_rocksdb.queues.unit_table import UnitTable
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.units import QueueKey, UnitBatch
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RECORD_BYTES, RocksDBQueues, add, engine_of, lose, put

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = queue_prefix("T", 0)
FIRST = OffsetEntry(0, 0)


def test_a_place_in_the_log_is_found_as_by_looking_at_every_unit(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(2))
    lose(store, "T", 0, range(4, 7))
    there = [2, 3, 7, 8, 9]
    units = UnitTable(engine_of(store))
    for low, last, phy_offset in product(range(11), range(-1, 11), (0, 200, 201, 700, 701, 901)):
        wanted = [at for at in there if low <= at <= last and at * RECORD_BYTES >= phy_offset]
        found = units.first_in_log(PREFIX, low, last, phy_offset)
        assert (found and found.queue_offset) == (wanted[0] if wanted else None)
        assert found is None or found.entry == (found.queue_offset * RECORD_BYTES, wanted[0])
    store.close()


@pytest.mark.parametrize("with_min", [0, 20])
def test_of_many_queues_the_number_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_min: int
) -> None:
    """Where a scan does not have all: from RocksDB's number of keys, ``min`` entries taken off."""
    monkeypatch.setattr(offset_table, "_SCAN_ENTRIES", 10)
    store = RocksDBQueues(tmp_path).open()
    for number in range(20):
        put(store, f"T{number:02}", 0, range(2), number * 2 * RECORD_BYTES)
    entries = [
        (min_key(queue_prefix(f"T{number:02}", 0)), OFFSET_ENTRY.pack(OffsetEntry(0, 0)))
        for number in range(with_min)
    ]
    engine_of(store).write(EngineBatch(puts=entries))
    engine_of(store).flush()
    engine_of(store).compact(Family.OFFSET)  # keys of several tables count several times
    found = store.queues_estimate()
    assert found is not None
    assert 18 <= found <= 23
    store.close()


def test_times_of_units_are_read_in_blocks_without_those_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_BLOCK", 7)
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    for queue_id in range(3):
        put(store, "T", queue_id, range(5), queue_id * 5 * RECORD_BYTES)
    lose(store, "T", 1, range(2, 4))
    least = queues.log.min_phy = 3 * RECORD_BYTES
    made = watched(store, monkeypatch)
    units = [(QueueKey("T", queue_id), at) for queue_id in range(3) for at in range(5)]
    expected = [phy + 7 if phy >= least and phy not in {700, 800} else -1
                for phy in range(0, 15 * RECORD_BYTES, RECORD_BYTES)]  # fmt: skip
    assert list(store.unit_timestamps(units)) == expected
    assert made == ["multi_get"] * 3
    store.close()


def watched(store: RocksDBConsumeQueueStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the looks into the database that are made from now on, as they are made."""
    made: list[str] = []

    def watch(name: str) -> None:
        real = getattr(engine_of(store), name)

        def noting(*args: object) -> object:
            made.append(name)
            return real(*args)

        monkeypatch.setattr(engine_of(store), name, noting)

    for name in ("get", "first_unit", "multi_get", "scan_units"):
        watch(name)
    return made


@pytest.mark.parametrize("lost", [0, 3])
def test_ends_are_looked_up_once_and_then_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    lose(store, "T", 0, range(lost))
    store.close()
    store = queues.open()
    made = watched(store, monkeypatch)
    assert [store.queue("T", 0).max_offset() for _ in range(3)] == [10] * 3
    assert made == ["get"]
    assert store.queue("T", 0).min_offset() == lost
    made.clear()
    assert [store.queue("T", 0).min_offset() for _ in range(3)] == [lost] * 3
    assert made == []
    table = OffsetTable(engine_of(store), 10)
    assert [table.rows([PREFIX]).tolist() for _ in range(3)] == [[[900, 9, -1, -1]]] * 3
    assert made == ["multi_get"]
    assert [table.checkpoint() for _ in range(3)] == [1000] * 3
    assert made == ["multi_get", "get"]
    store.close()


class _CountingLock(CheckedLock):
    taken = 0

    def entry(self) -> Self:
        self.taken += 1
        return super().entry()


def test_a_pull_takes_the_lock_once_and_seeks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(40), 0)
    store.close()
    store = queues.open()
    made, lock = watched(store, monkeypatch), _CountingLock("a look")
    store.queue("T", 0).pull(0, 32)
    assert made == ["get", "get", "first_unit", "scan_units"], "max entry, min entry, first unit"
    made.clear()
    monkeypatch.setattr(store._offsets, "lock", lock)
    queue = store.queue("T", 0)
    assert (lock.taken, made) == (0, [])
    for number in range(1, 4):
        assert queue.pull(number, 32)[:2] == (0, 40)
        assert (lock.taken, made) == (number, ["scan_units"] * number)
    store.close()


def test_names_that_nobody_may_have_take_no_room(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    for size, held in ((282, 0), (281, 1), (1000, 1)):
        assert store.queue("x" * size, 0).ends() == (0, 0)
        assert len(store._offsets._cache) == held
    store.close()


def test_a_first_unit_found_before_a_queue_changed_is_not_kept(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    table = OffsetTable(engine_of(store), 10)
    row = np.array([[900, 9, -1, -1]], np.int64)

    def known() -> OffsetEntry:
        return OffsetEntry(*table.row(PREFIX)[0][2:])

    def generation() -> int:
        return table.row(PREFIX)[1]

    def is_forgotten_by(change: Callable[[], None]) -> None:
        before = generation()
        change()
        assert known() == NO_UNIT
        table.found_first(PREFIX, FIRST, before)
        assert known() == NO_UNIT, "it may be another one by now"
        table.found_first(PREFIX, FIRST, generation())
        assert known() == FIRST

    table.found_first(PREFIX, FIRST, generation())
    assert known() == FIRST
    is_forgotten_by(lambda: table.batch_written(0, None, PlannedEnds([PREFIX], row, renewed=True)))
    is_forgotten_by(lambda: table.forget([PREFIX]))
    is_forgotten_by(table.forget_all)
    before = generation()
    table.batch_written(0, None, PlannedEnds([PREFIX], row, renewed=False))
    table.found_first(PREFIX, FIRST, before)
    assert known() == FIRST, "units were only appended"
    store.close()


TOPICS = ["a", "b", "ab", "ac", "é", "abc", "abd", "bcd", "abcdef", "abcdeg", "éé", "主题"]


def test_topics_and_queues_are_listed_as_by_looking_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_table, "_SCAN_ENTRIES", 3)
    store = RocksDBQueues(tmp_path).open()
    batch = UnitBatch()
    names = [QueueKey(topic, queue_id) for topic in TOPICS for queue_id in (0, 1, 70_000)]
    for place, name in enumerate(names):
        add(batch, *name, 0, place * RECORD_BYTES)
    store.put_batch(batch)
    puts = [(min_key(queue_prefix(*name)), OFFSET_ENTRY.pack(FIRST)) for name in names[::2]]
    engine_of(store).write(EngineBatch(puts=puts))
    names.sort(key=lambda name: (len(name.topic.encode()), name.topic.encode(), name.queue_id))
    assert list(store.queues()) == names
    for prefix in ("a", "ab", "abc", "abcde", "abcdef", "b", "é", "主", "z", "ac", "bcde"):
        wanted = [name for name in names if name.topic.startswith(prefix)]
        assert list(store.queues(prefix=prefix)) == wanted
        assert list(store.queues(prefix=prefix, after=names[9])) == [
            name for name in wanted if names.index(name) > 9
        ]
    for place, name in enumerate(names):
        assert list(store.queues(after=name)) == names[place + 1 :]
        same = [other for other in names[place + 1 :] if other.topic == name.topic]
        assert list(store.queues(name.topic, after=name)) == same
    assert list(store.queues("b", after=QueueKey("abc", 0))) == []
    store.close()


def test_ends_of_many_queues_are_those_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_BLOCK", 2)
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    there: dict[int, list[int]] = {}
    """Of each queue the offsets of its units; that of *n* lies at 1000 times the queue + 100 n."""
    for queue_id, first, count in ((0, 0, 5), (1, 0, 1), (2, 7, 3), (3, 0, 5), (4, 0, 5)):
        put(store, "T", queue_id, range(first, first + count), 1000 * queue_id + 100 * first)
        there[queue_id] = list(range(first, first + count))
    lose(store, "T", 3, range(2))
    there[3] = [2, 3, 4]
    entries = {0: (200, 2), 2: (2800, 8), 4: (4900, 9)}
    """Minima that are stored: of the log, and of a queue that was cut behind them."""
    puts = [
        *((min_key(queue_prefix("T", at)), OFFSET_ENTRY.pack(OffsetEntry(*entry)))
          for at, entry in entries.items()),
        (max_key(queue_prefix("T", 5)), OFFSET_ENTRY.pack(OffsetEntry(9000, -1))),
        (max_key(queue_prefix("T", 6)), OFFSET_ENTRY.pack(OffsetEntry(-1, 3))),
        (max_key(queue_prefix("T", 7)), OFFSET_ENTRY.pack(OffsetEntry(7000, 3))),
    ]  # fmt: skip
    engine_of(store).write(EngineBatch(puts=puts))
    store._offsets.forget_all()
    ends = {0: 5, 1: 1, 2: 10, 3: 5, 4: 5, 5: 0, 6: 4, 7: 4}
    for minimum in (0, 1, 100, 200, 201, 400, 401, 1000, 1001, 2701, 2800, 2801, 3201, 4400, 4401):
        queues.log.min_phy = minimum
        wanted = []
        for at, end in ends.items():
            live = [n for n in there.get(at, []) if 1000 * at + 100 * n >= minimum]
            low = live[0] if live else end
            if live and at in entries and entries[at][0] >= minimum:
                low = min(entries[at][1], end)
            wanted.append(QueueSpan(QueueKey("T", at), low, end))
        assert list(store.spans()) == wanted
        each = [store.queue("T", at).ends() for at in ends]
        assert each == [(span.min_offset, span.max_offset) for span in wanted]
    wanted_ends = {QueueKey("T", at): end for at, end in {8: 0, **ends}.items()}
    assert dict(store.queue_ends(wanted_ends)) == wanted_ends
    assert dict(store.queue_ends()).items() <= wanted_ends.items()
    store.close()
