"""The counters in RocksDB's log, on logs made by hand: a running database writes it in pieces."""

import errno
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine import logged_counters as logged_counters_module
from cqstore.cq_rocksdb.engine.logged_counters import LoggedCounters, logged_counters
from cqstore.cq_rocksdb.folders import log_folder
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.facts import QueueStat

OPENED = b"2026/11/21-13:47:26.995100 1405 RocksDB version: 11.0.0\n"
BETWEEN = b"2026/11/21-13:47:27.000868 1405 [/db_impl/db_impl.cc:1] Flushing memtable\n"
HIT, MISS = "rocksdb.block.cache.hit", "rocksdb.block.cache.miss"


def dump(second: int, hit: int, miss: int) -> tuple[bytes, bytes]:
    """Return the counters and the histograms of one dump."""
    heading = f"2026/11/21-13:47:{second}.000835 1405 [/db_impl/db_impl.cc:795] STATISTICS:\n"
    counters = f" {MISS} COUNT : {miss}\n{HIT} COUNT : {hit}\n"
    histogram = "rocksdb.db.get.micros P50 : 0.5 P95 : 0.9 P99 : 1.0 P100 : 2.0 COUNT : 7 SUM : 9\n"
    return (heading + counters).encode(), histogram.encode()


def test_a_dump_counts_when_it_is_whole_however_the_log_is_cut(tmp_path: Path) -> None:
    before = OPENED + b"".join(dump(27, 1234, 5)) + BETWEEN
    counters, histograms = dump(28, 5678, 6)
    older = LoggedCounters("2026/11/21-13:47:27.000835", {MISS: 5, HIT: 1234})
    newer = LoggedCounters("2026/11/21-13:47:28.000835", {MISS: 6, HIT: 5678})
    whole_from = len(counters) + histograms.index(b" P50 : ") + len(b" P50 : ")
    for end in range(len(counters) + len(histograms) + 1):
        (tmp_path / "LOG").write_bytes(before + (counters + histograms)[:end])
        assert logged_counters(tmp_path) == (newer if end >= whole_from else older), end


def test_a_log_whose_only_dump_is_not_whole_gives_way_to_the_log_before(tmp_path: Path) -> None:
    counters, histograms = dump(27, 3, 4)
    (tmp_path / "LOG").write_bytes(OPENED + counters)
    assert logged_counters(tmp_path) is None
    (tmp_path / "LOG.old.1").write_bytes(OPENED + counters + histograms)
    assert logged_counters(tmp_path) == LoggedCounters(
        "2026/11/21-13:47:27.000835", {MISS: 4, HIT: 3}
    )


def test_of_a_long_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = b"".join(dump(27, 1, 2)), b"".join(dump(28, 3, 4))
    (tmp_path / "LOG").write_bytes(older + BETWEEN * 50 + newer)
    for most in (len(newer), len(newer) + 100, 1 << 20):
        monkeypatch.setattr(logged_counters_module, "_MAX_LOG", most)
        logged = logged_counters(tmp_path)
        assert logged == LoggedCounters("2026/11/21-13:47:28.000835", {MISS: 4, HIT: 3})
    (tmp_path / "LOG").write_bytes(older)
    logged = logged_counters(tmp_path)
    assert logged == LoggedCounters("2026/11/21-13:47:27.000835", {MISS: 2, HIT: 1})
    assert logged_counters(tmp_path / "missing") is None


def test_counters_become_stats_as_far_as_they_are_told(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    assert RocksDBConsumeQueueStore.watch(paths) == []
    log_folder(paths).mkdir(parents=True)
    (log_folder(paths) / "LOG").write_bytes(b"".join(dump(27, 1, 2)))
    part = "logged by RocksDB at 2026/11/21-13:47:27.000835"
    assert RocksDBConsumeQueueStore.watch(paths) == [
        QueueStat("rocksdb_block_cache_hits", part, 1),
        QueueStat("rocksdb_block_cache_misses", part, 2),
    ]


def test_a_log_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "LOG").write_bytes(OPENED)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "of the test")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "stat", fail)
        with pytest.raises(StoreIOError, match="cannot read RocksDB's log") as caught:
            logged_counters(tmp_path)
    assert caught.value.path == tmp_path
