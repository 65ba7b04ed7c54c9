"""Group commit, futures, and what is flushed when: with a disk that waits until it is told."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cqstore.store.errors import StoreClosedError, StoreFailedError, StoreIOError
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.writing.flush import _Rounds
from cqstore.store.settings.config import FlushDiskType
from tests.kit.engines import engine_in_use
from tests.kit.gated_disk import GatedDisk, gated
from tests.kit.quiet_config import quiet_config
from tests.kit.waiting import until

SYNC = quiet_config(
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
    mapped_file_size_commit_log=65536,
)
"""Nothing is flushed but for those who wait."""
ASYNC = SYNC.model_copy(update={"flush_disk_type": FlushDiskType.ASYNC_FLUSH})


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> GatedDisk:
    return gated(monkeypatch)


@pytest.fixture
def store(tmp_path: Path, disk: GatedDisk) -> Iterator[MessageStore]:
    opened = MessageStore.open(tmp_path / "store", SYNC)
    disk.syncs = 0
    yield opened
    disk.open.set()
    opened.close()


def message(number: int = 0, properties: dict[str, str] | None = None) -> Message:
    return Message("t", b"x" * 100, number, properties or {})


def test_one_sync_serves_all_who_came_while_another_one_ran(
    store: MessageStore, disk: GatedDisk
) -> None:
    disk.open.clear()
    with ThreadPoolExecutor(12) as pool:
        first = pool.submit(store.put_message, message())
        disk.entered.acquire()  # it leads, and came too early for the others
        others = [pool.submit(store.put_message, message(at)) for at in range(10)]
        until(lambda: components_of(store).commit.waiting == 10)
        disk.open.set()
        results = [future.result(30) for future in (first, *others)]
    assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
    assert disk.syncs == 2


def test_who_waits_too_long_is_told_so_and_the_message_is_stored(
    tmp_path: Path, disk: GatedDisk
) -> None:
    config = SYNC.model_copy(update={"sync_flush_timeout": 50})
    with MessageStore.open(tmp_path / "store", config) as store, ThreadPoolExecutor(1) as pool:
        disk.open.clear()
        leader = pool.submit(store.put_message, message())
        disk.entered.acquire()
        late = store.put_message(message())
        disk.open.set()
        assert late.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert late.ok
        assert leader.result(30).status is PutMessageStatus.PUT_OK
        assert store.max_offset("t", 0) == 2


def test_after_a_failed_sync_nobody_is_told_that_anything_is_durable(
    store: MessageStore, disk: GatedDisk
) -> None:
    disk.open.clear()
    with ThreadPoolExecutor(5) as pool:
        puts = [pool.submit(store.put_message, message())]
        disk.entered.acquire()
        puts += [pool.submit(store.put_message, message()) for _ in range(4)]
        until(lambda: components_of(store).commit.waiting == 4)
        disk.fails = True
        disk.open.set()
        faults = [put.exception(30) for put in puts]
    assert all(isinstance(fault, StoreIOError | StoreFailedError) for fault in faults)
    assert disk.syncs == 1, "a second sync would have succeeded without the pages"
    with pytest.raises(StoreFailedError, match="Input/output error"):
        store.put_message(message())


def test_a_message_that_does_not_wait_costs_no_sync(store: MessageStore, disk: GatedDisk) -> None:
    assert store.put_message(message(0, {MessageProperty.WAIT: "false"})).ok
    assert store.put_message_future(message(0, {MessageProperty.WAIT: "false"})).done()
    assert disk.syncs == 0


# ---- futures


def test_a_future_completes_when_the_disk_has_the_message_and_not_before(
    store: MessageStore, disk: GatedDisk
) -> None:
    disk.open.clear()
    futures = [store.put_message_future(message()) for _ in range(20)]
    disk.entered.acquire()
    assert not any(future.done() for future in futures)
    assert not futures[0].cancel()
    disk.open.set()
    results = [future.result(30) for future in futures]
    assert [result.queue_offset for result in results] == [*range(20)]
    assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
    assert store.confirm_phy_offset() == store.max_phy_offset()
    assert disk.syncs <= 20


def test_who_completes_a_future_himself_harms_nobody_else(
    store: MessageStore, disk: GatedDisk
) -> None:
    disk.open.clear()
    first, second = (store.put_message_future(message()) for _ in range(2))
    first.set_result(PutMessageResult(PutMessageStatus.UNKNOWN_ERROR))
    disk.open.set()
    assert second.result(30).status is PutMessageStatus.PUT_OK
    assert store.put_message(message()).status is PutMessageStatus.PUT_OK


def test_futures_are_awaited_by_asyncio(store: MessageStore) -> None:
    async def put_all() -> list[PutMessageResult]:
        futures = [store.put_message_future(message(at)) for at in range(50)]
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    assert [result.queue_offset for result in asyncio.run(put_all())] == [0] * 50


def test_without_sync_flush_a_future_is_done_at_once(tmp_path: Path, disk: GatedDisk) -> None:
    with MessageStore.open(tmp_path / "store", ASYNC) as store:
        disk.syncs = 0
        future = store.put_message_future(message())
        assert future.done()
        assert future.result().ok
        assert store.put_message_future(Message("", b"x")).result().appended is None
        assert disk.syncs == 0


def test_a_late_future_says_so(tmp_path: Path, disk: GatedDisk) -> None:
    config = SYNC.model_copy(update={"sync_flush_timeout": 1})
    with MessageStore.open(tmp_path / "store", config) as store:
        disk.open.clear()
        future = store.put_message_future(message())
        disk.entered.acquire()
        started = time.monotonic()
        until(lambda: time.monotonic() - started > 0.01)
        disk.open.set()
        assert future.result(30).status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert store.metrics.snapshot().put_not_ok[PutMessageStatus.FLUSH_DISK_TIMEOUT] == 1


def test_a_future_fails_with_what_kept_its_message_from_the_disk(
    store: MessageStore, disk: GatedDisk
) -> None:
    disk.fails = True
    future = store.put_message_future(message())
    assert isinstance(future.exception(30), StoreIOError)
    until(lambda: components_of(store).state.failure is not None)
    with pytest.raises(StoreFailedError):
        store.put_message_future(message())


def test_close_completes_every_future(tmp_path: Path, disk: GatedDisk) -> None:
    store = MessageStore.open(tmp_path / "store", SYNC)
    disk.open.clear()
    futures: list[Future[PutMessageResult]] = [
        store.put_message_future(message()) for _ in range(10)
    ]
    closing = threading.Thread(target=store.close)
    closing.start()
    disk.open.set()
    closing.join(30)
    assert [future.result(0).queue_offset for future in futures] == [*range(10)]
    with pytest.raises(StoreClosedError):
        store.put_message_future(message())


# ---- what the thread does by itself


def test_the_thread_flushes_four_pages_and_leaves_less_to_the_thorough_round(
    tmp_path: Path, disk: GatedDisk
) -> None:
    config = ASYNC.model_copy(update={"flush_interval_commit_log": 1})
    with MessageStore.open(tmp_path / "store", config) as store:
        disk.syncs = 0
        assert store.put_message(message()).ok
        until(lambda: not components_of(store).dispatcher.has_undispatched)  # the thread came by
        flushed = store.flushed_phy_offset
        assert flushed() == 0
        while store.max_phy_offset() < 4 * 4096:
            store.put_message(message())
        until(lambda: flushed() >= 4 * 4096)
    thorough = config.model_copy(update={"flush_commit_log_thorough_interval": 1})
    with MessageStore.open(tmp_path / "store", thorough) as store:
        assert store.put_message(message()).ok
        until(lambda: store.flushed_phy_offset() == store.max_phy_offset())


def test_four_pages_are_much_and_a_byte_less_is_not(tmp_path: Path, disk: GatedDisk) -> None:
    with MessageStore.open(tmp_path / "store", ASYNC) as store:
        empty = store.put_message(Message("t", b"")).appended
        assert empty is not None
        rest = 4 * 4096 - 2 * empty.size
        assert store.put_message(Message("t", b"x" * (rest - 1))).ok
        disk.syncs = 0
        components_of(store).flush._flush_much()
        assert (store.max_phy_offset(), disk.syncs) == (4 * 4096 - 1, 0)
    with MessageStore.open(tmp_path / "other", ASYNC) as store:
        assert store.put_message(Message("t", b"")).ok
        assert store.put_message(Message("t", b"x" * rest)).ok
        components_of(store).flush._flush_much()
        assert store.flushed_phy_offset() == 4 * 4096


def test_a_flush_vouches_for_the_index_files_that_are_full(tmp_path: Path) -> None:
    config = ASYNC.model_copy(update={"max_hash_slot_num": 3, "max_index_num": 5})
    with MessageStore.open(tmp_path / "store", config) as store:
        put = [store.put_message(Message("t", b"", 0, {"KEYS": "k"})) for _ in range(6)]
        store.flush()
        last = put[3].appended  # a file has room for four
        assert last is not None
        assert components_of(store).checkpoint.fields.index_msg_timestamp == last.store_timestamp
        written = StoreCheckpoint(components_of(store).paths.checkpoint).fields
        assert written.index_msg_timestamp == last.store_timestamp


def test_each_thing_is_done_in_its_own_interval() -> None:
    """By a clock that stalls once: what was due then is done once, and not made up for."""
    rounds, done = _Rounds(100.0), list[tuple[str, float]]()
    now = 100.0
    rounds.add(500, lambda: done.append(("half", now)))
    rounds.add(1000, lambda: done.append(("second", now)))
    assert rounds.seconds_left(100.25) == 0.25
    for now in (100.0, 100.5, 100.75, 101.0, 101.25, 110.0):
        rounds.run(now)
    assert rounds.seconds_left(110.25) == 0, "not less"
    assert done == [
        ("half", 100.5), ("half", 101.0), ("second", 101.0), ("half", 110.0), ("second", 110.0),
    ]  # fmt: skip
    done.clear()
    for now in (110.25, 110.5, 110.75, 111.0, 111.25):
        rounds.run(now)
    assert [at for name, at in done if name == "half"] == [110.25, 110.5, 111.0]
    assert [at for name, at in done if name == "second"] == [110.25, 111.0]


def test_queue_files_with_much_that_is_new_are_written_ahead(tmp_path: Path) -> None:
    config = ASYNC.model_copy(update={"flush_interval_consume_queue": 1})
    with MessageStore.open(tmp_path / "store", config, backend="file") as store:
        for _ in range(500):  # 10,000 bytes of units
            store.put_message(Message("plenty", b""))
        store.put_message(Message("scant", b""))
        assert store.max_offset("plenty", 0) == 500
        unsynced = components_of(store).queues._unsynced  # type: ignore[attr-defined]
        until(lambda: not any("/plenty/" in path for path in unsynced.files))
        assert any("/scant/" in path for path in unsynced.files)
        assert components_of(store).checkpoint.fields.logics_phy_offset == 0, (
            "a part is no checkpoint"
        )


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_flush_of_queues_does_not_keep_writers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    config = ASYNC.model_copy(update={"rocksdb_engine": engine_in_use(), "dispatch_slice": 10})
    store = MessageStore.open(tmp_path / "store", config, backend=backend)
    store.put_message(message())
    entered, leave = threading.Event(), threading.Event()
    flush = components_of(store).queues.flush

    def held(least_pages: int = 0) -> None:
        entered.set()
        assert leave.wait(30)
        flush(least_pages)

    monkeypatch.setattr(components_of(store).queues, "flush", held)
    flushing = threading.Thread(target=store.flush)
    flushing.start()
    assert entered.wait(30)
    for _ in range(100):  # ten batches go to the queues
        assert store.put_message(message()).ok
    assert store.max_offset("t", 0) == 101
    leave.set()
    flushing.join(30)
    monkeypatch.setattr(components_of(store).queues, "flush", flush)
    store.close()


def test_a_batch_that_another_thread_hands_on_does_not_keep_writers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ASYNC.model_copy(update={"dispatch_slice": 10})
    with MessageStore.open(tmp_path / "store", config, backend="file") as store:
        entered, leave = threading.Event(), threading.Event()
        put_batch = components_of(store).queues.put_batch

        def held(batch: UnitBatch) -> list[QueueRestart]:
            entered.set()
            assert leave.wait(30)
            return put_batch(batch)

        monkeypatch.setattr(components_of(store).queues, "put_batch", held)
        assert store.put_message(message()).ok
        reader = threading.Thread(target=store.max_offset, args=("t", 0))
        reader.start()
        assert entered.wait(30)
        for _ in range(35):  # more than three times what a batch waits for
            assert store.put_message(message()).ok
        assert len(components_of(store).pending.units) == 35
        writer = threading.Thread(target=lambda: [store.put_message(message()) for _ in range(10)])
        writer.start()
        until(lambda: len(components_of(store).pending.units) == 40)
        assert writer.is_alive(), "four times is far too many: it waits"
        leave.set()
        writer.join(30)
        reader.join(30)
        assert store.max_offset("t", 0) == 46
