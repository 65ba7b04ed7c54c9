"""The fast path of a batch: it writes what the plan of the batch would."""

import sys
import tempfile
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.cq_rocksdb.engine import _append, _capi
from cqstore.cq_rocksdb.engine.errors import RocksDBError
from cqstore.cq_rocksdb.engine.rocks_engine import append_job
from cqstore.cq_rocksdb.keys import MAX_TOPIC_BYTES, queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.batch_plan import BatchPlan
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.cq_rocksdb.queues.state_cache import StateCache
from cqstore.store.errors import StoreFailedError
from cqstore.store.queue.units import MAX_UNITS, QUEUE_UNIT, QueueKey, UnitBatch
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.append_jobs import (
    KEYS,
    PUT,
    batch_of,
    content,
    engine_of,
    known,
    left,
    mixed,
    more,
    native,
    three_queues,
)
from tests.kit.engines import ENGINES
from tests.kit.rocksdb_queues import RECORD_BYTES, add, phys

NATIVE, ROCKSDICT = RocksDBEngine.NATIVE, RocksDBEngine.ROCKSDICT
pytestmark = pytest.mark.skipif(NATIVE not in ENGINES, reason="there is no RocksDB library")
steps = st.lists(
    st.tuples(
        st.integers(0, len(KEYS) - 1),
        st.integers(1, 5),
        st.sampled_from([0] * 12 + [-1, -3, 1]),  # where, counted from the end
        st.sampled_from([1] * 12 + [0, -30, -(1 << 40)]),  # records since the last one
        st.sampled_from([1] * 12 + [0, -1]),  # records from one to the next
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBConsumeQueueStore]:
    opened = three_queues(tmp_path)
    yield opened
    opened.close()


def outcome(store: RocksDBConsumeQueueStore, batch: UnitBatch) -> object:
    try:
        return store.put_batch(batch)
    except Exception as exc:  # noqa: BLE001 - of the other one the same is asked
        return type(exc), str(exc)


def planned_bytes(store: RocksDBConsumeQueueStore, batch: UnitBatch) -> bytes:
    """Return what RocksDB itself makes of the write that the plan of the batch is."""
    plan = BatchPlan(batch.runs(), store._offsets, store._units, lambda: 0)
    write = plan.plan()
    assert not write.delete_ranges
    assert not write.deletes
    units = [
        (unit_key(write.prefixes[index], offset), unit.tobytes())
        for index, offset, unit in zip(
            write.prefix_index.tolist(), write.queue_offset.tolist(), write.units, strict=True
        )
    ]
    return _append.batch_bytes(engine_of(store)._database, 1, units, [*write.puts, PUT])


def built_bytes(store: RocksDBConsumeQueueStore, job: _append.AppendJob) -> bytes:
    return job.built(engine_of(store)._database, 1, *PUT)


class Both:
    """The same batches for a store with the fast path, one without, and one on rocksdict."""

    def __init__(self, root: Path, hot_queues: int) -> None:
        self.fast, self.slow, self.dict = (
            native(root / name, engine, rocksdb_hot_queues=hot_queues)
            for name, engine in (("fast", NATIVE), ("slow", NATIVE), ("dict", ROCKSDICT))
        )
        engine_of(self.slow)._builds_batches = False
        self.jobs = self.mixed = 0

    def put(self, batch: UnitBatch) -> object:
        """Put ``batch`` into all, which answer alike; return what they did."""
        job = append_job(batch)
        if job.is_fast and self.fast._offsets.knows_ends(job):
            odd = job.irregular_queues()
            self.mixed += odd is not None
            rest = batch if odd is None else batch.of_queues(np.frombuffer(odd, np.int8) == 0)
            self.jobs += 1
            assert built_bytes(self.fast, job) == planned_bytes(self.slow, rest)
        found = [outcome(store, batch) for store in (self.fast, self.slow, self.dict)]
        assert found[0] == found[1] == found[2]
        return found[0]

    def close(self) -> None:
        for store in (self.fast, self.slow, self.dict):
            store.close()


Steps = list[tuple[int, int, int, int, int]]
given_batches = given(
    st.sampled_from([1, 3, 100]),
    st.sampled_from([0, 0, MAX_UNITS - 20]),
    st.lists(steps, min_size=2, max_size=8),
)


@settings(max_examples=15, deadline=None)
@given_batches
def test_both_paths_leave_the_same(hot_queues: int, begin: int, batches: list[Steps]) -> None:
    compare_paths(hot_queues, begin, batches)


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given_batches
def test_both_paths_leave_the_same_in_many_batches(
    hot_queues: int, begin: int, batches: list[Steps]
) -> None:
    compare_paths(hot_queues, begin, batches)


def compare_paths(hot_queues: int, begin: int, batches: list[Steps]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both = Both(Path(folder), hot_queues)
        ends, record = [begin] * len(KEYS), 1
        for given_steps in batches:
            runs = []
            for number, count, beside, gap, step in given_steps:
                offset, first = max(ends[number] + beside, 0), record + gap
                runs.append((*KEYS[number], offset, first, count, step))
                ends[number], record = offset + count, max(first, 0) + count
            if isinstance(both.put(batch_of(*runs)), tuple):
                break  # a gap ends all: how far the other queues are is not told
            assert content(both.fast) == content(both.slow) == content(both.dict)
            if hot_queues == 100:
                assert known(both.fast) == known(both.slow) == known(both.dict)
            for key in KEYS:
                stores = (both.fast, both.slow, both.dict)
                assert len({store.queue(*key).ends() for store in stores}) == 1
        both.close()


def test_a_batch_of_many_queues_is_in_the_order_of_its_keys(tmp_path: Path) -> None:
    both = Both(tmp_path, 100)
    keys = [(topic, queue) for queue in range(9) for topic in ("t", "tt", "t1", "u" * 130, "a" * 9)]
    for round_of_keys in (keys, keys[::-1], sorted(keys)):
        batch = UnitBatch()
        for key in [*round_of_keys, *round_of_keys[::2]]:
            end = both.fast.queue(*key).max_offset()
            waiting = [*batch.queue_index].count(batch.index_of.get(key, -1))
            add(batch, *key, end + waiting, (1000 * both.jobs + len(batch) + 1) * RECORD_BYTES)
        both.put(batch)
    assert (both.jobs, both.mixed) == (3, 0)
    batch = UnitBatch()
    for key in keys:
        end = both.fast.queue(*key).max_offset()
        add(batch, *key, 0 if key == keys[7] else end, (9000 + len(batch)) * RECORD_BYTES)
    both.put(batch)
    assert (both.jobs, both.mixed) == (4, 1)
    assert content(both.fast) == content(both.slow)
    both.close()


def calls_of(step: Callable[[], object]) -> list[str]:
    called: list[str] = []
    sys.setprofile(
        lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None
    )
    try:
        step()
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.parametrize("odd", [False, True])
def test_a_queue_costs_no_line_of_python(tmp_path: Path, *, odd: bool) -> None:
    store = native(tmp_path)
    counts = []
    for topic, queues in (("few", 2), ("many", 500)):
        first, then = (
            batch_of(*((topic, at, offset, 500 * offset + at, 1) for at in range(queues)))
            for offset in range(2)
        )
        store.put_batch(first)
        if odd:
            add(then, topic, 0, 0, 2_000 * RECORD_BYTES)
        counts.append(len(calls_of(partial(store.put_batch, then))))
    assert counts[0] == counts[1] < (200 if odd else 60)
    store.close()


# ---- what is no batch


def job_of(batch: object) -> _append.AppendJob:
    loose: Any = batch
    return append_job(loose)


def columns() -> Any:
    """Return something with the columns of a batch that can be anything."""
    sound = more()
    return SimpleNamespace(
        queues=[*sound.queues], queue_index=bytearray(sound.queue_index),
        queue_offset=bytearray(sound.queue_offset), units=bytearray(sound.units),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["queue_index", "queue_offset", "units", "queues"])
def test_columns_that_do_not_fit_each_other_are_left(name: str) -> None:
    batch = columns()
    assert append_job(batch).is_fast
    getattr(batch, name).pop()
    assert not append_job(batch).is_fast


@pytest.mark.parametrize("index", [-1, 3])
def test_a_unit_of_no_queue_leaves_the_batch(index: int) -> None:
    batch = columns()
    batch.queue_index = array("i", [*[*more().queue_index][:-1], index]).tobytes()
    assert not append_job(batch).is_fast


@pytest.mark.parametrize(
    "key", [("T",), ("T", 0, 0), ["T", 0], ("T", True), (b"T", 0), None], ids=repr
)
def test_a_queue_of_another_form_leaves_the_batch(key: object) -> None:
    batch = columns()
    batch.queues[2] = key
    assert not append_job(batch).is_fast


# ---- faults


@pytest.mark.parametrize("batch", ["more", "mixed"])
def test_a_write_that_fails_moves_no_end_and_ends_all_writing(
    store: RocksDBConsumeQueueStore, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    before = content(store)

    def refused(*_: object) -> None:
        raise RocksDBError("no space")

    monkeypatch.setattr(store.engine, "append", refused)
    with pytest.raises(RocksDBError):
        store.put_batch(more() if batch == "more" else mixed())
    assert content(store) == before
    assert len(store._offsets._cache) == 0
    assert store.queue("T", 0).max_offset() == 2
    with pytest.raises(StoreFailedError):
        store.put_batch(more() if batch == "more" else mixed())


def test_what_was_written_is_asked_for_where_the_ends_did_not_move(
    store: RocksDBConsumeQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thrown_out(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._offsets, "batch_written", thrown_out)
    with pytest.raises(KeyboardInterrupt):
        store.put_batch(more())
    assert len(store._offsets._cache) == 0
    assert phys(store, "T", 0) == [2000, 2300, 2600]  # those that the log has
    assert store.dispatch_from_phy_offset() == 2900
    with pytest.raises(StoreFailedError):
        store.put_batch(more())


def test_a_closed_store_refuses_and_nothing_is_written(tmp_path: Path) -> None:
    store = native(tmp_path)
    engine, job = engine_of(store), append_job(batch_of(("T", 0, 0, 1, 1)))
    assert store._offsets.knows_ends(job)
    engine.close()
    for call in (job.write, job.built):
        with pytest.raises(_capi.ClosedError):
            call(engine._database, 1, *PUT)
    store.close()
    again = native(tmp_path)
    assert [*again.queues()] == []
    again.close()


# ---- the ends move


def moved(capacity: int, meanwhile: Callable[[StateCache], object]) -> StateCache:
    """Return a table in which a job moved ends after something else had changed it."""
    cache = StateCache(capacity)
    prefixes = [queue_prefix(*key) for key in more().queues]
    rows = np.array([[200, 1, 7, 8], [400, 1, -1, -1], [600, 1, -1, -1]])
    cache.put(prefixes, rows)
    job = append_job(more())
    missing = job.find(cache)
    job.rest(rows[[prefixes.index(prefix) for prefix in missing]])
    assert job.follows()
    meanwhile(cache)
    job.move(cache)
    ends = {prefix: 2600 + 100 * at for at, prefix in enumerate(prefixes)}
    here = [prefix for prefix in prefixes if cache.get(prefix) is not None]
    for prefix in here:
        row = cache.get(prefix)
        assert row is not None
        assert row[:2] == [ends[prefix], 4]
    assert len(here) == min(capacity, 3)
    assert len(cache) <= capacity
    return cache


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 100])
def test_ends_move_in_a_table_that_readers_have_changed(capacity: int) -> None:
    others = [queue_prefix("other", number) for number in range(6)]

    def fill(cache: StateCache) -> None:
        for other in others:
            cache.put_one(other, [1, 2, 3, 4])

    def drop(cache: StateCache) -> None:
        for key in more().queues:
            cache.discard(queue_prefix(*key))

    moved(capacity, lambda _: None)
    moved(capacity, StateCache.clear)
    moved(capacity, drop)
    cache = moved(capacity, fill)
    for other in others:
        assert cache.get(other) in (None, [1, 2, 3, 4])


def test_a_first_unit_that_a_reader_has_found_meanwhile_stays() -> None:
    prefix = queue_prefix(*more().queues[0])
    assert moved(9, lambda cache: cache.set_first(prefix, 30, 40)).get(prefix) == [2600, 4, 30, 40]
    assert moved(9, lambda _: None).get(prefix) == [2600, 4, 7, 8]


def test_a_queue_that_is_not_known_is_read_and_kept(tmp_path: Path) -> None:
    store = native(tmp_path)
    store.put_batch(batch_of(("T", 0, 0, 1, 2), ("T", 1, 0, 3, 2)))
    store._offsets.forget_all()
    batch = batch_of(("T", 1, 2, 20, 1), ("new", 0, 0, 21, 1), ("T", 0, 2, 22, 1))
    assert not left(store, batch)
    assert store._offsets._cache.get(queue_prefix("T", 1)) == [400, 1, -1, -1]
    assert store.put_batch(batch) == []
    assert [store.queue(*key).max_offset() for key in batch.queues] == [3, 1, 3]
    store.close()


def test_a_row_too_few_is_refused() -> None:
    job = append_job(more())
    assert len(job.find(StateCache(1))) == 3
    for rows in (np.zeros((2, 4), np.int64), np.zeros((3, 3), np.int64)):
        with pytest.raises(ValueError, match="row"):
            job.rest(rows)


def test_the_checkpoint_never_goes_back(store: RocksDBConsumeQueueStore) -> None:
    batch = more()
    batch.end_phy_offset = 1
    assert not left(store, batch)
    store.put_batch(batch)
    assert store.dispatch_from_phy_offset() == 7 * RECORD_BYTES
    store._offsets.forget_all()
    assert store.dispatch_from_phy_offset() == 7 * RECORD_BYTES
    assert QueueKey("T", 0) in [*store.queues()]


def test_memory_of_a_large_write_is_not_kept(tmp_path: Path) -> None:
    store, count = native(tmp_path), 30_000
    batch, units = UnitBatch(), np.zeros(count, QUEUE_UNIT.dtype)
    units[units.dtype.names[0]] = np.arange(1, count + 1)  # type: ignore[index]
    key = QueueKey("t" * MAX_TOPIC_BYTES, 0)  # 330 bytes a unit
    offsets = np.arange(count, dtype=np.int64)
    batch.take([key], bytes(4 * count), offsets.tobytes(), units.tobytes())
    tracemalloc.start()
    assert not left(store, batch)
    store.put_batch(batch)
    peak = tracemalloc.get_traced_memory()[1]
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert store.queue(*key).max_offset() == count
    assert peak > 300 * count
    assert kept < 100_000
    store.close()


def test_a_library_that_makes_other_bytes_of_a_write_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = native(tmp_path / "usual")
    assert store.engine.append_job(more()) is not None
    store.close()
    monkeypatch.setattr(_append, "batch_bytes", lambda *_: b"another form")
    store = native(tmp_path / "other")
    assert store.engine.append_job(batch_of(("T", 0, 0, 1, 2))) is None
    store.put_batch(batch_of(("T", 0, 0, 1, 2)))
    assert store.queue("T", 0).max_offset() == 2
    store.close()
