"""What a store counts of itself, against what was done to it."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.store.errors import DiskFullError, StoreClosedError, StoreIOError
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.metrics import disk_used_ratio
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageStatus, PutMessageStatus
from cqstore.store.service.writing.fast_put import SAMPLED_PUTS
from cqstore.store.settings.config import FlushDiskType, RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES
from tests.kit.golden import load_dump
from tests.kit.waiting import run_threads

FILE = 65536
NEVER_MS = 10_000_000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE, mapped_file_size_consume_queue=2000, enable_lmq=True,
    enable_multi_dispatch=True, rocksdb_memory_bytes=16 << 20,
    flush_interval_commit_log=NEVER_MS,
)  # fmt: skip
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
PUT, GET = PutMessageStatus, GetMessageStatus


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        yield opened


def test_messages_and_bytes_are_those_of_the_records_alone(store: MessageStore) -> None:
    store.put_message(Message("t", b"x"))
    store.put_messages([Message("t", b"x" * n) for n in range(5)])
    store.put_message(Message("t", b"x", 0, LIGHT))
    batch = Message("t", encode_client_batch([Message("t", b"x")] * 3))
    assert len(store.put_client_batch(batch)) == 3
    while store.max_phy_offset() < 2 * FILE:  # blank records at the ends of files
        store.put_message(Message("t", b"x" * 5000))
    records = list(components_of(store).log.scan(0))
    snapshot = store.metrics.snapshot()
    assert snapshot.put_messages == len(records)
    assert snapshot.put_bytes == sum(record.size for record in records)
    assert snapshot.max_phy_offset > snapshot.put_bytes
    assert (snapshot.put_list_seconds.count, set(snapshot.put_not_ok.values())) == (2, {0})


def test_messages_that_take_the_slow_path_are_counted(store: MessageStore) -> None:
    def added(put: Callable[[], object]) -> tuple[int, int]:
        before = store.metrics.snapshot()
        put()
        after = store.metrics.snapshot()
        messages = after.put_messages - before.put_messages
        return messages, after.put_fallbacks - before.put_fallbacks

    one, light, half = (
        Message("t", b"x"),
        Message("t", b"x", 0, LIGHT),
        Message("t", b"", sys_flag=4),
    )
    batch = Message("t", encode_client_batch([one] * 3))
    other = Message("t", encode_client_batch([one] * 3), 1)
    assert added(lambda: store.put_message(one)) == (1, 1), "the first of its queue"
    assert added(lambda: [store.put_message(one) for _ in range(200)]) == (200, 0)
    assert added(lambda: store.put_messages([one] * 5)) == (5, 0)
    assert added(lambda: store.put_client_batch(batch)) == (3, 0)
    assert added(lambda: store.put_client_batch(other)) == (3, 3), "of another queue"
    assert added(lambda: store.put_message(light)) == (1, 1)
    assert added(lambda: store.put_message(half)) == (1, 0)
    mixed = [one, light, half, Message("", b"")]
    assert added(lambda: store.put_messages(mixed)) == (3, 3)
    assert added(lambda: store.put_message(Message("", b""))) == (0, 0), "refused"


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("backend", ["file", *[f"rocksdb-{engine.value}" for engine in ENGINES]])
def test_reads_that_fall_back_are_counted_by_reason(
    tmp_path: Path, backend: str, *, checked: bool
) -> None:
    name, _, engine = backend.partition("-")
    config = CONFIG.model_copy(update={
        "rocksdb_engine": RocksDBEngine(engine or "auto"), "check_crc_on_pull": checked,
    })  # fmt: skip
    with MessageStore.open(tmp_path, config, backend=name) as store:
        store.put_messages([Message("t", b"x", 0, {"TAGS": "a", "KEYS": "k"})] * 4)
        moment = store.message_by_offset(0).store_timestamp

        def added(read: Callable[[], object]) -> dict[str, int]:
            before = store.metrics.snapshot().read_fallbacks
            read()
            after = store.metrics.snapshot().read_fallbacks
            assert {*before} == {*after}
            return {
                f"{fallback.kind} {fallback.reason}": count - before[fallback]
                for fallback, count in after.items()
                if count != before[fallback]
            }

        searched = {"search engine": 2} if engine == RocksDBEngine.ROCKSDICT.value else {}
        assert added(lambda: [store.get_message("t", 0, at) for at in range(6)]) == {}
        assert added(lambda: store.get_message("t", 0, 0, tags=TagFilter("a"))) == {}
        assert (
            added(lambda: [store.offset_by_time("t", 0, at) for at in (0, moment + 1)]) == searched
        )
        assert added(lambda: [store.query_message("t", key) for key in ("k", "none")]) == {}
        long = "%RETRY%" + "x" * 130  # its records have another magic code
        store.put_message(Message(long, b"x", 0, {"KEYS": "long"}))
        assert added(lambda: store.get_message(long, 0, 0)) == {}
        log_file = min((tmp_path / "commitlog").iterdir())
        with log_file.open("r+b") as file:
            file.write(b"\xff")
        assert added(lambda: store.get_message("t", 0, 0)) == {"pull declined": 1}
        declined = added(lambda: store.query_message(long, "long"))
        assert declined == {"query declined": 1}


def test_a_search_in_files_that_meets_a_hole_falls_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        store.put_messages([Message("t", b"x")] * 40)
        store.max_offset("t", 0)
        path = next((tmp_path / "consumequeue" / "t" / "0").iterdir())
        with path.open("r+b") as file:
            file.write(bytes(20 * 39))
        store.offset_by_time("t", 0, 1)
        counts = store.metrics.snapshot().read_fallbacks
        met = {key: count for key, count in counts.items() if count}
        assert met == {("search", "declined"): 1}


def test_a_store_that_nobody_has_asked_has_counted_nothing(store: MessageStore) -> None:
    snapshot = store.metrics.snapshot()
    assert set(snapshot.gets.statuses) == set(GET)
    assert set(snapshot.gets.statuses.values()) == set(snapshot.put_not_ok.values()) == {0}
    assert (snapshot.gets.messages, snapshot.gets.total_bytes) == (0, 0)
    assert snapshot.put_fallbacks == 0
    assert {*snapshot.read_fallbacks.values()} == {0}


def test_messages_of_batch_queues_are_counted_as_rocketmq_does(golden_folder: Path) -> None:
    queues = load_dump("special-default")["queues"]
    queue = next(each for each in queues if each["type"] == "BatchCQ" and each["units"])
    with MessageStore.open(golden_folder / "special-default", read_only=True) as store:
        at, records = queue["min"], 0
        while at < queue["max"]:
            pulled = store.get_message(queue["topic"], queue["queueId"], at, 1000)
            at, records = pulled.next_begin_offset, records + len(pulled.records)
        counts = store.metrics.snapshot().gets
        assert records == len(queue["units"])
        assert counts.messages == queue["max"] - queue["min"] > records


def test_counts_begin_when_the_store_is_opened(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("t", b"x"))
        store.delete_topic("u")
    with MessageStore.open(tmp_path, CONFIG) as store:
        snapshot = store.metrics.snapshot()
        assert (snapshot.put_messages, snapshot.put_bytes) == (0, 0)
        done = store.put_message(Message("t", b"x"))
        assert done.appended is not None
        assert store.metrics.snapshot().put_bytes == done.appended.size


def test_refusals_are_counted_by_status(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_message(Message("", b"x"))
    store.put_messages([Message("", b"x"), Message("t", b"x"), Message("", b"x")])
    store.put_client_batch(Message("t", b""))
    store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "no-light-queue"}))
    store.put_message(Message("t", b"x", 0, {"k": "x" * 40_000}))
    store.put_message(Message("t", b"x", 0, {"k": "x" * 32_740, **LIGHT}))  # with its offsets

    def full(size: int) -> None:
        raise DiskFullError(f"no room for {size} bytes")

    with monkeypatch.context() as patch:
        patch.setattr(
            components_of(store).log, "prepared", None
        )  # so that its blocks are asked for
        patch.setattr(components_of(store).log, "_writable", full)
        store.put_message(Message("t", b"x"))
    snapshot = store.metrics.snapshot()
    assert {status: count for status, count in snapshot.put_not_ok.items() if count} == {
        PUT.MESSAGE_ILLEGAL: 6,
        PUT.PROPERTIES_SIZE_EXCEEDED: 1,
        PUT.CREATE_MAPPED_FILE_FAILED: 1,
    }
    assert (snapshot.put_messages, snapshot.append_ms) == (1, 0)


def test_a_flush_that_is_late_is_a_status_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    with MessageStore.open(tmp_path, config) as store:
        monkeypatch.setattr(components_of(store).commit, "wait_for", lambda end: False)
        results = store.put_messages([Message("t", b"x"), Message("", b"x"), Message("t", b"x")])
        late = PUT.FLUSH_DISK_TIMEOUT
        assert [result.status for result in results] == [late, PUT.MESSAGE_ILLEGAL, late]
        assert store.metrics.snapshot().put_not_ok[late] == 2


def test_every_put_that_waits_is_timed_and_a_sample_of_the_others(tmp_path: Path) -> None:
    for kind, timed in ((FlushDiskType.ASYNC_FLUSH, 3), (FlushDiskType.SYNC_FLUSH, None)):
        config = CONFIG.model_copy(update={"flush_disk_type": kind})
        puts = 2 * SAMPLED_PUTS + 1
        with MessageStore.open(tmp_path / kind, config) as store:
            for number in range(puts):
                store.put_message(Message("t", b"x", 0, LIGHT if number == 0 else {}))
            seconds = store.metrics.snapshot().put_seconds
            assert seconds.count == (timed or puts)
            assert seconds.total_seconds > 0


def test_pulls_are_counted_by_status_with_what_they_returned(store: MessageStore) -> None:
    store.put_messages([Message("t", b"x")] * 10)
    results = [
        store.get_message(topic, 0, offset, 4)
        for topic, offset in (("t", 0), ("t", 8), ("t", 10), ("t", 11), ("t", -1), ("none", 0))
    ]
    snapshot = store.metrics.snapshot()
    assert {status: count for status, count in snapshot.gets.statuses.items() if count} == {
        GET.FOUND: 2,
        GET.OFFSET_OVERFLOW_ONE: 1,
        GET.OFFSET_OVERFLOW_BADLY: 1,
        GET.OFFSET_TOO_SMALL: 1,
        GET.NO_MESSAGE_IN_QUEUE: 1,
    }
    assert (snapshot.gets.messages, snapshot.get_seconds.count) == (6, len(results))
    assert snapshot.gets.total_bytes == sum(result.total_bytes for result in results)


def test_no_count_is_lost_among_threads(store: MessageStore) -> None:
    def work() -> None:
        for _ in range(500):
            store.put_message(Message("", b""))
            store.put_message(Message("t", b""))
            store.get_message("none", 0, 0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        run_threads(threads)
    finally:
        sys.setswitchinterval(interval)
    snapshot = store.metrics.snapshot()
    assert snapshot.put_not_ok[PUT.MESSAGE_ILLEGAL] == 2000
    assert snapshot.put_messages == 2000
    assert snapshot.gets.statuses[GET.NO_MESSAGE_IN_QUEUE] == snapshot.get_seconds.count == 2000


def test_the_lag_is_what_no_queue_has_yet(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.put_message(Message("t", b"x"))
    assert store.metrics.snapshot().dispatch_lag_bytes == store.max_phy_offset()
    assert store.max_offset("t", 0) == 1
    assert store.metrics.snapshot().dispatch_lag_bytes == 0
    second = store.put_message(Message("t", b"x"))
    assert first.appended is not None
    assert second.appended is not None
    clock = (second.appended.store_timestamp + 1234) * 1_000_000
    monkeypatch.setattr(
        "cqstore.store.service.metrics.metrics.time", SimpleNamespace(time_ns=lambda: clock)
    )
    snapshot = store.metrics.snapshot()
    assert snapshot.dispatch_lag_bytes == second.appended.size
    assert snapshot.dispatch_lag_ms == 1234
    put_batch, seen = components_of(store).queues.put_batch, []

    def look_then_put(batch: UnitBatch) -> object:
        seen.append(store.metrics.snapshot())
        return put_batch(batch)

    monkeypatch.setattr(components_of(store).queues, "put_batch", look_then_put)
    assert store.max_offset("t", 0) == 2
    assert [(s.dispatch_lag_bytes, s.dispatch_lag_ms) for s in seen] == [
        (second.appended.size, 1234)
    ]
    after = store.metrics.snapshot()
    assert (after.dispatch_lag_bytes, after.dispatch_lag_ms) == (0, 0)


def test_no_queue_waits_for_a_record_that_none_gets(store: MessageStore) -> None:
    prepared = Message("t", b"x", sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    assert store.put_message(prepared).ok
    snapshot = store.metrics.snapshot()
    assert snapshot.dispatch_lag_bytes == store.max_phy_offset()
    assert snapshot.dispatch_lag_ms == 0


def test_flushes_with_something_to_flush_are_timed(store: MessageStore) -> None:
    for count in (1, 2):
        store.put_message(Message("t", b"x"))
        store.flush()
        store.flush()
        snapshot = store.metrics.snapshot()
        assert snapshot.flush_seconds.count == count
        assert snapshot.flushed_phy_offset == snapshot.max_phy_offset


@pytest.mark.parametrize(
    "put",
    [
        lambda store: store.put_message(Message("t", b"x")),
        lambda store: store.put_messages([Message("t", b"x")]),
    ],
)
def test_an_append_that_hangs_shows(
    store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[MessageStore], object],
) -> None:
    writable, seen = components_of(store).log._writable, []

    def hang(size: int) -> object:
        for ago in (900, 1100):
            components_of(store).log.append_began -= ago
            seen.append(store.metrics.snapshot())
            components_of(store).log.append_began += ago
        return writable(size)

    monkeypatch.setattr(components_of(store).log, "_writable", hang)
    put(store)
    assert [snapshot.is_page_cache_busy for snapshot in seen] == [False, True]
    assert seen[1].append_ms > 1000
    after = store.metrics.snapshot()
    assert (after.append_ms, after.is_page_cache_busy) == (0, False)


def test_the_page_cache_is_busy_beyond_a_second_not_at_it(store: MessageStore) -> None:
    """RocketMQ: ``diff > osPageCacheBusyTimeOutMills``."""
    found = store.metrics.snapshot()
    busy = [replace(found, append_ms=ms).is_page_cache_busy for ms in (999, 1000, 1001)]
    assert busy == [False, False, True]


def test_a_failed_store_says_so_and_a_closed_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path, CONFIG)
    assert not store.metrics.snapshot().failed
    assert store.put_message(Message("t", b"x")).ok

    def broken() -> int:
        raise StoreIOError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(components_of(store).log, "flush", broken)
        with pytest.raises(StoreIOError):
            store.flush()
    assert store.metrics.snapshot().failed
    store.close()
    with pytest.raises(StoreClosedError):
        store.metrics.snapshot()


@pytest.mark.parametrize("engine", ENGINES)
def test_rocksdb_tells_of_itself_also_beside_files(tmp_path: Path, engine: RocksDBEngine) -> None:
    update = {"rocksdb_engine": engine, "rocksdb_cq_double_write_enable": True}
    for name, config in (("both", update), ("one", {**update, "store_type": "defaultRocksDB"})):
        with MessageStore.open(tmp_path / name, CONFIG.model_copy(update=config)) as store:
            store.put_message(Message("t", b"x"))
            assert store.max_offset("t", 0) == 1
            stats = {
                (stat.name, stat.part): stat.value for stat in store.metrics.snapshot().queue_stats
            }
            assert stats["rocksdb_keys_estimate", "default"] == 1
            assert stats["rocksdb_memtable_bytes", "offset"] > 0
            assert stats["rocksdb_dropped_units", "database"] == 0


def test_the_disk_is_as_full_as_df_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[Path] = []

    def statvfs(folder: Path) -> SimpleNamespace:
        requested.append(folder)
        return SimpleNamespace(f_blocks=100, f_bfree=40, f_bavail=20)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert disk_used_ratio(tmp_path / "not" / "made" / "yet") == 0.75  # 60 of 80 for all but root
    assert requested == [tmp_path]
