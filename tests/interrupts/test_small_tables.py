"""Small tables of a process or a store after an exception between any two instructions."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.store.errors import StoreClosedError, StoreError
from cqstore.store.journals.store_lock import StoreLock, locked_by
from cqstore.store.paths import StorePaths
from cqstore.store.record.bounded_cache import ENTRY_BYTES, BoundedCache
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.descriptors import descriptors
from tests.kit.engines import ENGINES, put_raw
from tests.kit.forks import forked
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.mutations import in_time

SECONDS = 60
MAX_LIGHT = 4


def seen_by_another_process(paths: StorePaths) -> bool:
    code = forked(lambda: int(locked_by(paths) != 0))
    assert code in {0, 1}
    return bool(code)


@IGNORED
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_store_lock_can_be_taken_again_where_its_taking_was_interrupted(
    tmp_path: Path, every: int
) -> None:
    """Also while the exception, and with it all that the first one held, is still there."""

    def taken(number: int) -> int:
        paths = StorePaths(tmp_path / str(number))
        places, held = 0, []
        try:
            places = run_interrupted(lambda: held.append(StoreLock(paths)), number)
            lock = held[0]
        except Interrupted:
            lock = StoreLock(paths)
        assert seen_by_another_process(paths), number
        lock.release()
        assert not seen_by_another_process(paths), number
        StoreLock(paths).release()
        return places

    places = taken(0)
    assert places > 10
    for number in range(1, places + 1, every):
        taken(number)


def test_a_store_lock_is_let_go_where_that_was_interrupted(tmp_path: Path) -> None:
    def let_go(number: int) -> int:
        paths = StorePaths(tmp_path)
        lock, places = StoreLock(paths), 0
        with suppress(Interrupted):
            places = run_interrupted(lock.release, number)
        lock.release()
        assert not seen_by_another_process(paths), number
        other = StoreLock(paths)
        lock.release()  # once more: it is no longer his
        assert seen_by_another_process(paths), number
        other.release()
        return places

    places = let_go(0)
    assert places > 2
    for number in range(1, places + 1):
        let_go(number)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("key", ["k1", "new"])
def test_a_bounded_cache_is_right_and_bounded_after_an_interrupt(key: str, *, full: bool) -> None:
    most = ENTRY_BYTES * 2048 if full else ENTRY_BYTES * 4096

    def filled() -> BoundedCache[str, str]:
        cache = BoundedCache[str, str](most)
        for number in range(2040):
            cache.learn(f"k{number}", f"v{number}", 0)
        cache.learn("k0", "v0", 100 if full else 0)
        return cache

    def learn(cache: BoundedCache[str, str]) -> None:
        cache.learn(key, key.replace("k", "v"), 90)

    whole = filled()
    places = run_interrupted(lambda: learn(whole))
    assert 0 < places < 60
    for number in range(1, places + 1):
        cache = filled()
        with suppress(Interrupted):
            run_interrupted(lambda: learn(cache), number)  # noqa: B023 - called at once
        for more in range(2040, 5000):
            cache.learn(f"k{more}", f"v{more}", 0)
        assert all(value == at.replace("k", "v") for at, value in cache.items())
        held = sum(ENTRY_BYTES + 4 * 90 * (at == key) for at in cache)
        assert most // 2 < held <= most


DESCRIPTOR_STEPS: dict[str, Callable[[DescriptorCache, Path], object]] = {
    "get": lambda cache, folder: cache.get(f"{folder}/0"),
    "open": lambda cache, folder: cache.get(f"{folder}/3"),
    "create": lambda cache, folder: cache.create(f"{folder}/new", 100),
    "forget": lambda cache, folder: cache.forget(f"{folder}/0"),
    "close": lambda cache, _: cache.close(),
}


@pytest.mark.parametrize("name", DESCRIPTOR_STEPS)
def test_a_descriptor_cache_is_right_and_bounded_after_an_interrupt(
    tmp_path: Path, name: str
) -> None:
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"%d" % number)

    def filled() -> DescriptorCache:
        cache = DescriptorCache(3, read_only=False)
        for number in range(3):
            cache.get(f"{tmp_path}/{number}")
        return cache

    def case(number: int) -> int:
        (tmp_path / "new").unlink(missing_ok=True)
        cache, places = filled(), 0
        with suppress(Interrupted):
            places = run_interrupted(lambda: DESCRIPTOR_STEPS[name](cache, tmp_path), number)
        assert len(cache) <= 3
        if not cache._closed:
            for at in (*range(4), *range(4)):
                assert os.pread(cache.get(f"{tmp_path}/{at}").number, 9, 0) == b"%d" % at
            assert os.fstat(cache.create(f"{tmp_path}/new", 100).number).st_size == 100
        cache.close()
        return places

    for number in range(1, case(0) + 1):
        case(number)
        # The number of a file that was being opened may be lost between two calls of the system's.
        lost = [fd for fd, path in descriptors() if path.is_relative_to(tmp_path)]
        assert len(lost) <= 1
        for fd in lost:
            os.close(fd)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_database_closes_where_its_closing_was_interrupted(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    config = StoreConfig(rocksdb_engine=engine)

    def closed(number: int) -> int:
        database, _ = open_engine(tmp_path / "db", config, tmp_path / "log", read_only=False)
        put_raw(database, b"%d" % number, b"value", tmp_path / "table")
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(database.close, number)
        database.close()
        with pytest.raises(StoreClosedError):
            database.flush()
        return places

    places = closed(0)
    assert places > 10
    for number in range(1, places + 1):
        closed(number)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("step", ["light", "delete", "follow"])
def test_a_quota_of_light_queues_is_right_after_an_interrupt(tmp_path: Path, step: str) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=200,
        max_hash_slot_num=20, max_index_num=400, enable_lmq=True, enable_multi_dispatch=True,
        max_lmq_consume_queue_num=MAX_LIGHT,
    )  # fmt: skip

    def put(store: MessageStore, *names: str) -> bool:
        light = ",".join(f"%LMQ%{name}" for name in names)
        try:
            return store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": light})).ok
        except StoreError:
            return False

    with MessageStore.open(tmp_path / "other", config, housekeeping=False) as store:
        put(store, "a")
        end = store.max_phy_offset()
        put(store, "b", "c")
        log, behind = components_of(store).log.files, store.max_phy_offset()
        first, rest = log.read(0, end), log.read(end, behind - end)

    def case(number: int) -> int:
        root, places = tmp_path / str(number), 0
        store = MessageStore.open(root, config, housekeeping=False)
        store.append_to_commit_log(0, first)
        do = {
            "light": lambda: put(store, "b", "c"),
            "delete": lambda: store.delete_topics(["%LMQ%a"]),
            "follow": lambda: store.append_to_commit_log(end, rest),
        }[step]
        with suppress(Interrupted):
            places = run_interrupted(do, number)
        failed = components_of(store).state.failure is not None
        made = [put(store, f"new{at}") for at in range(MAX_LIGHT + 1)]
        with suppress(StoreError):
            store.close()
        store.close()
        with MessageStore.open(root, config, housekeeping=False) as again:
            there = len([*components_of(again).queues.topics("%LMQ%")])
            assert there == MAX_LIGHT if not failed else there <= MAX_LIGHT, (number, made)
        return places

    with in_time(SECONDS):
        places = case(0)
        for number in range(1, places + 1, max(1, places // 30)):
            case(number)
