"""Threads that do everything at once against a model: nothing acknowledged is lost or told wrong.

They write, pull, query, search, expire, delete, flush, rebuild, list and check, then the store is
closed beside them; what it holds afterwards is compared with what it has acknowledged.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType, RocksDBEngine, StoreConfig
from tests.kit.cold_pages import folder_in_memory, pages_dropped
from tests.kit.engines import ENGINES
from tests.kit.threads import Threads, compare_all

STORES = [("file", RocksDBEngine.AUTO), *[("rocksdb", engine) for engine in ENGINES]]

LENGTHS = [2, pytest.param(20, marks=pytest.mark.long)]
"""Seconds that threads work."""


def work(
    root: Path, backend: str, engine: RocksDBEngine, flush: FlushDiskType, seconds: float, seed: int
) -> Threads:
    """Let threads work on a store, close it beside them, reopen it and compare everything."""
    config = StoreConfig(
        mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=20 * 100,
        rocksdb_memory_bytes=16 << 20, rocksdb_engine=engine, flush_disk_type=flush,
        dispatch_slice=64, flush_interval_commit_log=5, flush_consume_queue_thorough_interval=50,
        max_index_num=3000, max_hash_slot_num=700, mapped_files_max=3, rocksdb_hot_queues=3,
    )  # fmt: skip
    store = MessageStore.open(root, config, backend=backend, housekeeping=False)
    threads = Threads(store, seed)
    threads.run(seconds)
    with MessageStore.open(root, config, backend=backend, housekeeping=False) as store:
        assert store.last_exit_ok
        assert not store.report.needed, store.report
        assert compare_all(store, threads.model) > 0
    done = threads.steps
    assert all(done[name] for name in ("put", "pull", "query", "expire", "delete")), done
    return threads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "engine", "flush"),
    [
        ("file", RocksDBEngine.AUTO, FlushDiskType.SYNC_FLUSH),
        ("rocksdb", RocksDBEngine.AUTO, FlushDiskType.ASYNC_FLUSH),
    ],
)
def test_some_seconds_over_both_backends(
    tmp_path: Path, backend: str, engine: RocksDBEngine, flush: FlushDiskType
) -> None:
    work(tmp_path, backend, engine, flush, 2, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_minute_over_all_stores(
    tmp_path: Path, backend: str, engine: RocksDBEngine, flush: FlushDiskType
) -> None:
    work(tmp_path, backend, engine, flush, 8, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", LENGTHS)
def test_over_files_in_memory(tmp_path: Path, seconds: int) -> None:
    with folder_in_memory(tmp_path) as root:
        work(root / "store", "file", RocksDBEngine.AUTO, FlushDiskType.ASYNC_FLUSH, seconds, seed=1)


@pytest.mark.slow
@pytest.mark.disk
@pytest.mark.parametrize("seconds", LENGTHS)
def test_over_files_whose_pages_are_dropped(tmp_path: Path, seconds: int) -> None:
    root = tmp_path / "store"
    with pages_dropped(root):
        work(root, "file", RocksDBEngine.AUTO, FlushDiskType.ASYNC_FLUSH, seconds, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_five_minutes(
    tmp_path: Path,
    backend: str,
    engine: RocksDBEngine,
    flush: FlushDiskType,
    capsys: pytest.CaptureFixture[str],
    drawn_places: Callable[[int, int], range],
) -> None:
    """Ten rounds; in a run that draws a share two of them."""
    totals: dict[str, int] = {}
    for round_ in drawn_places(10, 10):
        threads = work(tmp_path / str(round_), backend, engine, flush, 30, seed=round_ + 1)
        for name, steps in threads.steps.items():
            totals[name] = totals.get(name, 0) + steps
    with capsys.disabled():
        done = ", ".join(f"{name} {steps}" for name, steps in totals.items())
        print(f"\n{backend} {engine.value} {flush.value}: {done}")  # noqa: T201
