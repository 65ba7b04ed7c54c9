"""RocksDB queues that are closed, read-only or failed; and what a store tells of its database."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.compaction import CompactionRun
from cqstore.cq_rocksdb.engine.errors import RocksDBError, RocksDBStatus
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import (
    ReadOnlyStoreError,
    RefusedStoreError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.facts import QueueStat, QueueType
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit, UnitBatch
from tests.kit.engines import engine_in_use, hold_compactions, put_raw
from tests.kit.faults import EIO, Faults
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RocksDBQueues, add, engine_of, phys, put

pytestmark = pytest.mark.usefixtures("engine")

Call = Callable[[RocksDBConsumeQueueStore], object]
WRITES: list[Call] = [
    lambda store: store.put_batch(UnitBatch()),
    lambda store: put(store, "T", 0, range(10, 11), 1000),
    lambda store: store.truncate_dirty(1 << 40),
    lambda store: store.truncate_dirty(0),
    lambda store: store.clean_expired(0),
    lambda store: store.allow_expiry(5),
    lambda store: store.compact(),
    lambda store: store.restore_end("T", 1, 5),
    lambda store: store.delete_topics(["T"]),
    lambda store: store.delete_topics([]),
    lambda store: store.delete_queue("T", 0),
    lambda store: store.flush(),
    lambda store: store.flush(4),
]
OF_THE_WHOLE: list[Call] = [
    lambda store: store.recover(),
    lambda store: store.dispatch_from_phy_offset(),
    lambda store: list(store.queues()),
    lambda store: store.spans(),
    lambda store: store.total_size_bytes(),
    lambda store: store.audit(),
    lambda store: store.engine,
    lambda store: store.describe(),
    lambda store: store.stats(),
    lambda store: store.written_bytes(),
]
READS: list[Call] = [
    *OF_THE_WHOLE,
    lambda store: store.queue("T", 0).max_offset(),
    lambda store: store.queue("T", 0).min_offset(),
    lambda store: store.queue("T", 0).read_units(0, 5),
    lambda store: store.queue("T", 0).unit_timestamp(0),
]


def test_every_call_is_refused_before_the_queues_are_open_and_after(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    store.close()
    for call in (*READS, *WRITES):
        with pytest.raises(StoreClosedError) as caught:
            call(store)
        assert caught.value.path == store.folder
    unopened = RocksDBConsumeQueueStore(store.context)
    for call in (*OF_THE_WHOLE, *WRITES):
        with pytest.raises(StoreClosedError, match="not open"):
            call(unopened)
    unopened.close()


@pytest.mark.parametrize("failed", [False, True])
def test_what_may_not_be_written_is_refused_and_may_be_read(
    tmp_path: Path,
    failed: bool,  # noqa: FBT001
) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    if not failed:
        store.close()
        store = queues.open(read_only=True)
    store._failed = failed
    refused = StoreFailedError if failed else ReadOnlyStoreError
    for call in WRITES:
        with pytest.raises(refused) as caught:
            call(store)
        assert caught.value.path == store.folder
    for call in READS:
        call(store)
    assert phys(store, "T", 0) == list(range(0, 1000, 100))
    assert list(store.queues()) == [("T", 0)]
    assert store.compaction is None
    store.close()


@pytest.mark.parametrize("call", ["append", "write", "flush"])
def test_after_a_write_that_failed_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whether it reached the disk is unknown; the next open finds out."""
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(1), 0)

    def fail(*_: object) -> None:
        raise RocksDBError("RocksDB: IO error", status=RocksDBStatus.IO_ERROR)

    with monkeypatch.context() as broken:
        broken.setattr(engine_of(store), call, fail)
        if call == "write":
            broken.setattr(engine_of(store), "append_job", lambda _: None)
        batch = UnitBatch()
        add(batch, "T", 0, 1, 100)
        with pytest.raises(RocksDBError):
            store.flush() if call == "flush" else store.put_batch(batch)
    assert (store.queue("T", 0).max_offset(), store.dispatch_from_phy_offset()) == (1, 100)
    for again in WRITES:
        with pytest.raises(StoreFailedError):
            again(store)
    store.close()


def test_times_are_those_of_units_in_queue_and_log(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path, NoLog(min_phy=200, max_phy=800))
    store = queues.open()
    put(store, "T", 0, range(9), 0)
    put_raw(
        engine_of(store), unit_key(queue_prefix("T", 0), 9),
        QUEUE_UNIT.pack(QueueUnit(500, 100, 0, 5)), tmp_path / "behind.sst",
    )  # fmt: skip
    times = [store.queue("T", 0).unit_timestamp(offset) for offset in range(-1, 11)]
    assert times == [-1, -1, -1, 207, 307, 407, 507, 607, 707, -1, -1, -1]
    queues.log.min_phy = 0
    assert store.queue("T", 0).unit_timestamp(0) == 7
    store.close()


def test_a_database_says_what_and_where_it_is(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    hold_compactions(engine_of(store))
    for first in (0, 10):
        put(store, "T", 0, range(first, first + 10), first * 100)
        store.flush()
    tables = [path.stat().st_size for path in store.folder.glob("*.sst")]
    reported = store.describe()
    reason = {"native": "native", "rocksdict": "as configured"}[engine_in_use().value]
    assert reported["engine"] == f"{engine_in_use().value} ({reason})"
    assert (reported["table files"], reported["table bytes"]) == (len(tables), sum(tables))
    assert reported["checkpoint"] == 2000
    assert reported["default keys (estimate)"] == "20"
    assert reported["offset keys (estimate)"] == "4"
    assert store.queue_type("T") is QueueType.ROCKSDB
    store.close()


def test_the_checkpoint_entry_is_read_without_opening_for_writing(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = RocksDBQueues(tmp_path / "root")
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    store.flush()
    assert RocksDBConsumeQueueStore.written_to(store.context) == 1000, "beside a writer, too"
    store.close()
    closed: list[object] = []
    real = RocksDBConsumeQueueStore.close

    def note_close(opened: RocksDBConsumeQueueStore) -> None:
        closed.append(opened)
        real(opened)

    with monkeypatch.context() as noting:
        noting.setattr(RocksDBConsumeQueueStore, "close", note_close)
        assert RocksDBConsumeQueueStore.written_to(store.context) == 1000
    assert len(closed) == 1
    assert list(temporary.iterdir()) == []
    shutil.rmtree(store.folder)
    assert RocksDBConsumeQueueStore.written_to(store.context) == 0
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("lost", "advised"), [("CURRENT", False), ("MANIFEST-*", True), ("*.sst", True)]
)
def test_who_meets_a_damaged_database_is_told_what_to_do(
    tmp_path: Path,
    lost: str,
    advised: bool,  # noqa: FBT001
) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    store.close()
    for path in store.folder.glob(lost):
        path.unlink()
    paths = StorePaths(tmp_path)
    if not advised:  # a table file without CURRENT: RocksDB would start over
        with pytest.raises(RefusedStoreError, match="Move the folder away") as refused:
            RocksDBConsumeQueueStore.present(paths)
        assert refused.value.path == store.folder
        (store.folder / "Topic").mkdir()  # file queues: they are served
        assert not RocksDBConsumeQueueStore.present(paths)
        return
    with pytest.raises(
        RocksDBError, match="cqstore rebuild creates new queues from the commit log"
    ) as caught:
        queues.open()
    assert caught.value.path == store.folder
    assert caught.value.status in {RocksDBStatus.CORRUPTION, RocksDBStatus.IO_ERROR}
    assert caught.value.__cause__ is not None


def test_the_files_of_a_database_are_told_from_others(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    assert RocksDBConsumeQueueStore.own_files(paths) == []
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    store.close()
    own = set(store.folder.iterdir())
    (store.folder / "Topic").mkdir()
    (store.folder / "000099.sst").mkdir()
    (store.folder / "note.sst").touch()
    assert set(RocksDBConsumeQueueStore.own_files(paths)) == own


def test_a_flush_of_the_clock_waits_until_something_is_to_be_flushed(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    unflushed = "rocksdb.num-entries-active-mem-table"
    store.flush(4)
    assert engine_of(store).property_value(Family.DEFAULT, unflushed) == "10"
    store.flush()
    assert engine_of(store).property_value(Family.DEFAULT, unflushed) == "0"
    store.close()


def test_expiry_looks_at_the_queues_it_is_told_and_leaves_no_range_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = RocksDBQueues(tmp_path, NoLog())
    store = queues.open()
    engine = engine_of(store)
    for queue_id in range(3):
        put(store, "T", queue_id, range(10), queue_id * 1000)
    store.flush()
    queues.log.min_phy = 2500
    held, compact = threading.Event(), engine.compact

    def compact_later(family: Family) -> None:
        assert held.wait(30)
        compact(family)

    monkeypatch.setattr(engine, "compact", compact_later)  # its filter takes units away
    assert store.clean_expired(2500, {}) == 0
    assert (store.compaction is not None) == engine.filters_expired
    assert store.clean_expired(2500, {QueueKey("T", 0): 10}) == 1
    is_there = engine.first_unit(queue_prefix("T", 0), 0) is not None
    assert is_there == engine.filters_expired  # a filter costs no range
    if not engine.filters_expired:
        unflushed = "rocksdb.num-entries-active-mem-table"
        assert [engine.property_value(family, unflushed) for family in Family] == ["0", "0"]
        assert engine.first_unit(queue_prefix("T", 1), 0) is not None
    assert store.compaction is not None
    held.set()
    assert store.compaction.wait(30)
    assert store.clean_expired(2500) == (0 if engine.filters_expired else 2)
    assert store.compaction.wait(30)
    for queue_id, first in ((0, None), (1, None), (2, 5)):
        found = engine.first_unit(queue_prefix("T", queue_id), 0)
        assert (found and found[0]) == first
    store.close()


def test_of_two_compactions_at_once_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()
    engine = engine_of(store)
    held, done = threading.Event(), list[Family]()

    def compact(family: Family) -> None:
        assert held.wait(30)
        done.append(family)

    monkeypatch.setattr(engine, "compact", compact)
    first = store.compact()
    assert store.compact([Family.OFFSET]) is first is store.compaction
    assert (first.is_running, first.is_cancelled, first.wait(0.001)) == (True, False, False)
    held.set()
    assert first.wait(30)
    assert done == list(Family)
    assert not first.is_cancelled
    second = store.compact([Family.OFFSET])
    assert second is not first
    assert second.wait(30)
    assert done == [*Family, Family.OFFSET]
    store.close()


def test_a_cancelled_compaction_begins_no_other_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()
    engine = engine_of(store)
    held, begun = threading.Event(), list[Family]()

    def compact(family: Family) -> None:
        begun.append(family)
        assert held.wait(30)

    monkeypatch.setattr(engine, "compact", compact)
    run = CompactionRun(engine, list(Family))
    assert run.cancel() == engine.filters_expired
    held.set()
    assert run.wait(30)
    assert run.is_cancelled
    assert len(begun) <= 1
    store.close()


def test_whatever_ends_a_compaction_is_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()
    for fault in (RocksDBError("RocksDB: Busy"), MemoryError("of the machine")):

        def compact(_: Family, raised: BaseException = fault) -> None:
            raise raised

        monkeypatch.setattr(engine_of(store), "compact", compact)
        run = store.compact()
        assert run.wait(30)
        assert isinstance(run.fault, StoreError)
        assert (run.fault is fault) == isinstance(fault, StoreError)
        assert str(fault) in str(run.fault)
    store.close()


@pytest.mark.parametrize("reported", ["2", "0", None])
def test_what_rocksdb_noted_as_failed_in_the_background_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: str | None
) -> None:
    store = RocksDBQueues(tmp_path).open()
    made: list[object] = []

    def report(*requested: object) -> str | None:
        made.append(requested)
        return reported

    monkeypatch.setattr(engine_of(store), "property_value", report)
    monkeypatch.setattr(engine_of(store), "compact", made.append)
    run = store.compact()
    assert run.wait(30)
    requested = (Family.DEFAULT, "rocksdb.background-errors")
    if reported == "2":
        assert isinstance(run.fault, RocksDBError)
        assert "2 background errors" in str(run.fault)
        assert made == [Family.DEFAULT, requested]
    else:
        assert run.fault is None
        assert made == [Family.DEFAULT, requested, Family.OFFSET, requested]
    store.close()


def test_what_an_engine_cannot_tell_is_no_stat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()
    with monkeypatch.context() as patched:
        patched.setattr(engine_of(store), "property_value", lambda *_: None)
        assert store.stats() == [
            QueueStat("rocksdb_dropped_units", "database", 0),
            QueueStat("rocksdb_planned_units", "database", 0),
        ]
    names = [(stat.name, stat.part) for stat in store.stats()]
    assert len(names) == len(set(names)) == 15
    store.close()


def test_batches_name_every_topic_and_keep_the_checkpoint(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    batch = UnitBatch()
    add(batch, "T", 0, 0, 0)
    add(batch, "T", 1, 0, 100)
    assert store.put_batch(batch) == []
    assert store.put_batch(batch) == []
    assert store.dispatch_from_phy_offset() == 200
    store.close()


CUTS: list[tuple[Call, int]] = [
    (lambda store: store.truncate_dirty(500), 5),
    (lambda store: store.restore_end("T", 0, 7), 7),
    (lambda store: store.delete_topics(["T"]), 0),
    (lambda store: store.delete_queue("T", 0), 0),
]


@pytest.mark.parametrize(("cut", "left"), CUTS)
def test_who_reads_while_a_queue_is_cut_learns_nothing_that_stays_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: Call, left: int
) -> None:
    store = RocksDBQueues(tmp_path).open(last_exit_ok=False)
    put(store, "T", 0, range(10), 0)
    engine = engine_of(store)
    write, flush = engine.write, engine.flush
    at_flush: list[tuple[int, int]] = []

    def write_under_a_reader(batch: EngineBatch) -> None:
        assert store.queue("T", 0).max_offset() in {10, left}
        write(batch)

    def flush_under_a_reader() -> None:
        at_flush.append((store.queue("T", 0).max_offset(), store.dispatch_from_phy_offset()))
        flush()

    monkeypatch.setattr(engine, "write", write_under_a_reader)
    monkeypatch.setattr(engine, "flush", flush_under_a_reader)
    cut(store)
    end = 500 if left == 5 else 1000
    assert (store.queue("T", 0).max_offset(), store.dispatch_from_phy_offset()) == (left, end)
    assert at_flush == ([] if left == 7 else [(left, end)])
    store.close()


def test_a_cut_that_fails_leaves_what_is_known_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)

    def fail(_: EngineBatch) -> None:
        raise RocksDBError("RocksDB: IO error", status=RocksDBStatus.IO_ERROR)

    monkeypatch.setattr(engine_of(store), "write", fail)
    with pytest.raises(RocksDBError):
        store.truncate_dirty(500)
    assert (store.queue("T", 0).max_offset(), store.dispatch_from_phy_offset()) == (10, 1000)
    store.close()


def test_a_folder_that_cannot_be_measured_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()

    with monkeypatch.context() as broken:
        Faults(broken).fail("list", EIO, str(store.folder))
        with pytest.raises(StoreIOError, match="cannot measure") as caught:
            store.total_size_bytes()
    assert caught.value.path == store.folder
    store.close()
