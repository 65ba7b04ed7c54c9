"""Batches of which a part is left to the plan: which part, and that it is one write nonetheless."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cqstore.cq_rocksdb.engine._write_batch import WriteBatchColumns
from cqstore.cq_rocksdb.engine.database_stats import STATISTICS
from cqstore.cq_rocksdb.engine.logged_counters import counters_in
from cqstore.cq_rocksdb.engine.rocks_engine import Family, append_job
from cqstore.cq_rocksdb.keys import MAX_TOPIC_BYTES, queue_prefix
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import CorruptionError, IllegalMessageError, QueueGapError
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import MAX_UNITS, QUEUE_UNIT, QueueKey, UnitBatch
from cqstore.store.record.message import CHECKPOINT_TOPIC
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.append_jobs import (
    PUT,
    batch_of,
    content,
    engine_of,
    known,
    left,
    mixed,
    more,
    three_queues,
)
from tests.kit.engines import ENGINES
from tests.kit.rocksdb_queues import phys

pytestmark = pytest.mark.skipif(
    RocksDBEngine.NATIVE not in ENGINES, reason="there is no RocksDB library"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBConsumeQueueStore]:
    opened = three_queues(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "run",
    [
        ("T", 0, 3, 30, 1),  # a gap
        ("T", 0, 1, 30, 1),  # an offset again
        ("T", 0, 2, 2, 1),  # the last record again
        ("new", 0, 1, 30, 1),
    ],
    ids=str,
)
def test_the_other_queues_of_an_odd_one_are_not_left(
    store: RocksDBConsumeQueueStore, run: tuple[str, int, int, int, int]
) -> None:
    before = content(store)
    assert left(store, batch_of(("T", 1, 2, 20, 1), run, ("U", 2, 2, 31, 1))) == [run[:2]]
    assert content(store) == before
    assert left(store, batch_of(run)) == [run[:2]]


@pytest.mark.parametrize(
    "run",
    [
        ("t" * (MAX_TOPIC_BYTES + 1), 0, 0, 30, 1),
        ("主" * 94, 0, 0, 30, 1),
        (CHECKPOINT_TOPIC, 0, 0, 30, 1),
        ("\ud800", 0, 0, 30, 1),
        ("new", 1 << 31, 0, 30, 1),
        ("new", -(1 << 31) - 1, 0, 30, 1),
        ("new", 1 << 64, 0, 30, 1),
    ],
    ids=lambda run: ascii(run)[:20],
)
def test_one_impossible_queue_leaves_the_batch(
    store: RocksDBConsumeQueueStore, run: tuple[str, int, int, int, int]
) -> None:
    before = content(store)
    batch = batch_of(("T", 1, 2, 20, 1), run, ("U", 2, 2, 31, 1))
    assert left(store, batch) == batch.queues
    assert content(store) == before
    assert not left(store, more())


def test_a_queue_with_two_runs_is_left(store: RocksDBConsumeQueueStore) -> None:
    runs = ("T", 0, 2, 20, 1), ("U", 2, 2, 21, 1), ("T", 0, 4, 22, 1)
    assert left(store, batch_of(*runs)) == [("T", 0)]
    falling = ("T", 0, 2, 20, 1), ("U", 2, 2, 21, 1), ("T", 0, 3, 20, 1)
    assert left(store, batch_of(*falling)) == [("T", 0)]
    batch = batch_of(("T", 0, 2, 20, 1), ("T", 1, 2, 21, 1), ("U", 2, 2, 22, 1))
    batch.queues[1] = batch.queues[0]
    assert left(store, batch) == [("T", 0)] * 2
    batch.queues[2] = batch.queues[0]
    assert left(store, batch) == [("T", 0)] * 3
    assert not append_job(UnitBatch()).is_fast


def test_the_longest_topic_and_a_queue_at_its_last_unit_are_plain(
    store: RocksDBConsumeQueueStore,
) -> None:
    name = "t" * MAX_TOPIC_BYTES
    assert not left(store, batch_of((name, 0, 0, 30, 2), (CHECKPOINT_TOPIC[:-1], 0, 0, 33, 1)))
    store.restore_end("T", 0, MAX_UNITS - 1)
    assert not left(store, batch_of(("T", 0, MAX_UNITS - 1, 40, 1)))


@pytest.mark.parametrize("offset", [-1, MAX_UNITS, MAX_UNITS + 1])
def test_an_impossible_offset_is_refused_before_anything_is_written(
    store: RocksDBConsumeQueueStore, offset: int
) -> None:
    before = content(store)
    sound, batch = batch_of(("T", 0, 2, 11, 3), ("T", 1, 2, 14, 1)), UnitBatch()
    offsets = array("q", [*[*sound.queue_offset][:-1], offset])
    batch.take(sound.queues, bytes(sound.queue_index), offsets.tobytes(), bytes(sound.units))
    with pytest.raises(CorruptionError, match="invalid queue offset"):
        store.put_batch(batch)
    assert content(store) == before


@pytest.mark.parametrize("topic", [CHECKPOINT_TOPIC, "t" * 282, "\ud800"])
def test_a_refused_topic_is_refused(store: RocksDBConsumeQueueStore, topic: str) -> None:
    before = content(store)
    with pytest.raises(IllegalMessageError):
        store.put_batch(batch_of(("T", 1, 2, 20, 1), (topic, 0, 0, 21, 1)))
    assert content(store) == before


# ---- a batch of both kinds


def writes_of(store: RocksDBConsumeQueueStore) -> int:
    """Return how many writes RocksDB counts."""
    text = store.engine.property_value(Family.DEFAULT, STATISTICS)
    assert text is not None
    return counters_in(text.encode())["rocksdb.write.self"]


def planned_units(store: RocksDBConsumeQueueStore) -> int:
    (found,) = [stat.value for stat in store.stats() if stat.name == "rocksdb_planned_units"]
    return found


def test_a_batch_with_an_odd_queue_is_one_write(store: RocksDBConsumeQueueStore) -> None:
    before, planned = writes_of(store), planned_units(store)
    assert store.put_batch(mixed()) == [QueueRestart(QueueKey("T", 0), range(2), 2100)]
    assert writes_of(store) == before + 1
    assert planned_units(store) == planned + 2
    assert [phys(store, *key) for key in mixed().queues] == [[2000], [2100, 2200], [2300]]
    assert store.put_batch(batch_of(("T", 0, 2, 30, 1), ("T", 1, 3, 31, 1))) == []
    assert planned_units(store) == planned + 2


def test_readers_see_the_ends_of_all_queues_of_a_batch_at_once(
    store: RocksDBConsumeQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, append = store._offsets, engine_of(store).append
    lock, cache = offsets.lock, offsets._cache
    prefixes = [queue_prefix(*key) for key in mixed().queues]
    seen: list[list[int | None]] = []

    def ends() -> list[int | None]:
        return [cache.last_offset(prefix) for prefix in prefixes]

    def entry() -> CheckedLock:
        seen.append(ends())
        return lock.entry()

    def append_and_begin(*arguments: Any) -> None:
        append(*arguments)
        seen.clear()

    monkeypatch.setattr(store.engine, "append", append_and_begin)
    monkeypatch.setattr(offsets, "lock", SimpleNamespace(entry=entry))
    store.put_batch(mixed())
    assert seen == [[1, 1, 1]], "the lock is taken once"
    assert ends() == [2, 1, 2]


def test_a_gap_refuses_the_batch_and_the_next_one_is_written(
    store: RocksDBConsumeQueueStore,
) -> None:
    store.put_batch(more())
    before, known_before = content(store), known(store)
    with pytest.raises(QueueGapError):
        store.put_batch(batch_of(("T", 1, 5, 40, 1), ("T", 0, 9, 41, 1), ("U", 2, 5, 42, 1)))
    assert (content(store), known(store)) == (before, known_before)
    assert store.put_batch(batch_of(("T", 1, 5, 40, 1))) == []


def test_what_no_write_can_hold_leaves_the_database_as_it_was(
    store: RocksDBConsumeQueueStore,
) -> None:
    before, database = content(store), engine_of(store)._database
    none, units = np.zeros(0, np.int64), np.zeros((0, QUEUE_UNIT.size), np.uint8)
    job = append_job(more())
    assert store._offsets.knows_ends(job)
    odd: list[Any] = [(b"key", None), (b"key", b"value", b"more"), b"key"]
    for put in odd:
        others = WriteBatchColumns(b"", none, none, none, units, [], [], 1, [put])
        with pytest.raises((TypeError, ValueError)):
            job.write(database, 1, *PUT, others)
    assert content(store) == before
    job.write(database, 1, *PUT)
    assert content(store) != before
