"""What both engines do beside reading and writing: tables, snapshots, compactions, the filter."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.compaction import CompactionRun
from cqstore.cq_rocksdb.engine.database_stats import written_bytes
from cqstore.cq_rocksdb.engine.logged_counters import logged_counters
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.store.errors import (
    CorruptionError,
    StoreClosedError,
    StoreStateError,
    UnsupportedFormatError,
)
from cqstore.store.queue.units import BlockStop
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES, engine_in_use, put_raw
from tests.kit.forks import forked
from tests.kit.waiting import running_threads, until

pytestmark = pytest.mark.usefixtures("engine")
PREFIX = queue_prefix("T", 0)
KEEP_NOTHING = (1 << 63) - 1


def open_in(folder: Path, engine: RocksDBEngine | None = None, **changes: object) -> RocksEngine:
    config = StoreConfig(rocksdb_engine=engine or engine_in_use(), rocksdb_memory_bytes=16 << 20)
    config = config.model_copy(update=changes)
    opened, _ = open_engine(folder / "db", config, folder / "log", read_only=False)
    return opened


def units(phys: range) -> NDArray[np.uint8]:
    rows = np.zeros((len(phys), 28), np.uint8)
    rows[:, :8] = np.array(phys, ">i8").view(np.uint8).reshape(-1, 8)
    return rows


def batch(offsets: range, step: int = 100, prefix: bytes = PREFIX) -> EngineBatch:
    """Units for ``offsets``, the records ``step`` apart."""
    phys = range(offsets.start * step, offsets.stop * step, step)
    return EngineBatch(
        [prefix], np.zeros(len(offsets), np.int64), np.array(offsets, np.int64), units(phys)
    )


def offsets_left(engine: RocksEngine) -> list[int]:
    rows = engine.scan(Family.DEFAULT, PREFIX, PREFIX + b"\xff", 10_000)
    return [int.from_bytes(key[-8:], "big") for key, _ in rows]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[RocksEngine]:
    engine = open_in(tmp_path)
    yield engine
    engine.close()  # else the folder of the next test may pass for this one, by its inode


def test_compactions_drop_what_lies_strictly_below_and_nothing_else(
    opened: RocksEngine, tmp_path: Path
) -> None:
    opened.write(batch(range(10)))
    opened.write(EngineBatch(puts=[(b"offset", bytes(16)), (b"long", bytes(40))]))
    put_raw(opened, PREFIX + b"short", bytes(27), tmp_path / "short.sst")
    opened.flush()
    opened.compact(Family.DEFAULT)
    assert len(offsets_left(opened)) == 11, "everything is kept until a minimum is set"
    opened.expire_below(500)
    opened.expire_below(200)  # never lowered
    for family in Family:
        opened.compact(family)
    filtered = opened.filters_expired
    kept = [*range(5 if filtered else 0, 10)]
    assert [offset for offset in offsets_left(opened) if offset < 10] == kept
    assert opened.get(Family.DEFAULT, PREFIX + b"short") == bytes(27)
    assert opened.get(Family.OFFSET, b"long") == bytes(40)
    assert opened.dropped_units == (5 if filtered else 0)
    opened.close()


def test_a_later_filter_works_on_what_was_compacted_before(opened: RocksEngine) -> None:
    """The last level is rewritten too, and automatic compactions are filtered like others."""
    for round_ in range(1, 4):
        opened.write(batch(range((round_ - 1) * 100, round_ * 100)))
        opened.expire_below(round_ * 5_000)
        opened.compact(Family.DEFAULT)
    left = offsets_left(opened)
    assert left == list(range(150 if opened.filters_expired else 0, 300))
    opened.close()


def test_tables_are_ingested_with_units_and_entries(opened: RocksEngine, tmp_path: Path) -> None:
    other = queue_prefix("T", 1)
    writer = opened.table_writer(Family.DEFAULT, tmp_path / "a.sst")
    writer.put_units(PREFIX, 5, units(range(500, 1500, 100)))
    writer.put_units(other, 0, units(range(3)))
    writer.put(other + bytes(7) + b"\x09", bytes(28))
    size = writer.finish()
    assert size == (tmp_path / "a.sst").stat().st_size
    entries = opened.table_writer(Family.OFFSET, tmp_path / "b.sst")
    entries.put(b"key", b"value")
    entries.finish()
    opened.write(batch(range(5)))
    opened.ingest(Family.DEFAULT, [tmp_path / "a.sst"])
    opened.ingest(Family.OFFSET, [tmp_path / "b.sst"])
    assert opened.scan_units(PREFIX, 0, 100)[1:] == (BlockStop.END, 15)
    assert opened.scan_units(other, 0, 100)[1:] == (BlockStop.HOLE, 9)
    assert opened.get(Family.OFFSET, b"key") == b"value"
    opened.close()
    again = open_in(tmp_path)
    assert again.scan_units(PREFIX, 0, 100).next_offset == 15
    again.close()


def test_a_snapshot_sees_one_moment_of_both_families(opened: RocksEngine) -> None:
    opened.write(batch(range(5)))
    if opened.name == "rocksdict":  # whose snapshots leak what is written later
        with pytest.raises(UnsupportedFormatError):
            opened.snapshot()
        opened.close()
        return
    with opened.snapshot() as before:
        write = batch(range(5, 10))
        write.puts.append((b"end", b"10"))
        opened.write(write)
        target = np.zeros((20, 28), np.uint8)
        assert before.scan_into(PREFIX, 0, target) == (5, BlockStop.END, 5)
        assert before.get(Family.OFFSET, b"end") is None
        assert opened.scan_into(PREFIX, 0, target) == (10, BlockStop.END, 10)
    with opened.snapshot() as after:
        assert after.get(Family.OFFSET, b"end") == b"10"
    opened.close()


def test_a_scan_fills_the_callers_buffer_and_says_why_it_stopped(opened: RocksEngine) -> None:
    opened.write(batch(range(2, 8)))
    opened.write(batch(range(10, 12)))
    target = np.full((4, 28), 0xAA, np.uint8)
    assert opened.scan_into(PREFIX, 2, target) == (4, BlockStop.LIMIT, 6)
    assert target.tobytes() == units(range(200, 600, 100)).tobytes()
    assert opened.scan_into(PREFIX, 6, target) == (2, BlockStop.HOLE, 10)
    assert target[2:].tobytes() == units(range(400, 600, 100)).tobytes(), "not touched"
    assert opened.scan_into(PREFIX, 11, target) == (1, BlockStop.END, 12)
    assert opened.scan_into(PREFIX, 0, target) == (0, BlockStop.HOLE, 2)
    assert opened.scan_into(PREFIX, 11, target[:0]) == (0, BlockStop.LIMIT, 11)
    opened.close()


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 1 << 40])
def test_scans_of_any_length_stop_where_the_units_do(opened: RocksEngine, count: int) -> None:
    opened.write(batch(range(9000)))
    found = opened.scan_units(PREFIX, 10, count)
    there = min(count, 8990)
    assert len(found.data) == 28 * there
    stop = BlockStop.LIMIT if count <= 8990 else BlockStop.END
    assert (found.stop, found.next_offset) == (stop, 10 + there)
    assert found.data == units(range(1000, 1000 + 100 * there, 100)).tobytes()
    opened.close()


def test_every_scan_sees_what_was_changed_before_it_began(
    opened: RocksEngine, tmp_path: Path
) -> None:
    other = queue_prefix("U", 0)

    def there(prefix: bytes = PREFIX) -> int:
        return len(opened.scan_units(prefix, 0, 100).data) // 28

    for end in range(1, 20):
        opened.write(batch(range(end - 1, end)))
        assert [there(), there()] == [end, end]
    opened.write(EngineBatch(delete_ranges=[(Family.DEFAULT, unit_key(PREFIX, 9), PREFIX + b"~")]))
    assert there() == 9
    writer = opened.table_writer(Family.DEFAULT, tmp_path / "other.sst")
    writer.put_units(other, 0, units(range(0, 500, 100)))
    writer.finish()
    assert there(other) == 0
    opened.ingest(Family.DEFAULT, [tmp_path / "other.sst"])
    assert there(other) == 5
    opened.close()


def test_no_reader_ever_misses_a_write_that_has_returned(opened: RocksEngine) -> None:
    written, wrong = [0], list[tuple[int, int]]()

    def read() -> None:
        while written[0] < 300 and not wrong:
            before = written[0]
            found = len(opened.scan_units(PREFIX, max(before - 30, 0), 4000).data) // 28
            if found + max(before - 30, 0) < before:
                wrong.append((before, found))

    readers = [threading.Thread(target=read) for _ in range(4)]
    with running_threads(readers):
        for offset in range(300):
            opened.write(batch(range(offset, offset + 1)))
            written[0] = offset + 1
    assert not wrong
    opened.close()


def test_scans_keep_no_table_file_that_a_compaction_has_replaced(
    opened: RocksEngine, tmp_path: Path
) -> None:
    for start in range(0, 400, 100):
        opened.write(batch(range(start, start + 100)))
        opened.flush()
        opened.scan_units(PREFIX, 0, 10)
    opened.compact(Family.DEFAULT)
    until(  # a thread of RocksDB deletes what is replaced
        lambda: (
            {path.name for path in (tmp_path / "db").glob("*.sst")}
            == {file.name for file in opened.live_files()}
        )
    )
    opened.close()


def test_what_rocksdb_counted_is_read_from_its_own_log(tmp_path: Path) -> None:
    assert logged_counters(tmp_path / "log") is None
    engine = open_in(tmp_path, stat_rocksdb_cq_interval_sec=1)
    engine.write(batch(range(100)))
    engine.flush()
    for _ in range(50):
        engine.scan_units(PREFIX, 0, 100)

    def reported(name: str) -> int:
        text = engine.property_value(Family.DEFAULT, "rocksdb.options-statistics") or ""
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{name} ")]
        return int(line.split()[-1])

    names = ("rocksdb.block.cache.hit", "rocksdb.block.cache.miss", "rocksdb.flush.write.bytes")
    wanted = {name: reported(name) for name in names}
    assert all(wanted.values())
    logs, sizes = tmp_path / "log", {0}

    def is_logged() -> bool:
        """Ask when the log has grown: to read it all the time takes a whole processor."""
        if (size := sum(path.stat().st_size for path in logs.iterdir())) in sizes:
            return False
        sizes.add(size)
        logged = logged_counters(logs)
        return logged is not None and {name: logged.counts[name] for name in names} == wanted

    until(is_logged)
    engine.close()


def test_what_is_written_is_the_sizes_of_the_tables_that_were_made(opened: RocksEngine) -> None:
    def table_bytes() -> int:
        return sum(file.size_bytes for file in opened.live_files())

    assert written_bytes(opened) == {"flush": 0, "compaction": 0, "wal": 0}
    opened.write(batch(range(1_000)))
    opened.flush()  # one table: nothing that would be compacted by itself
    flushed = table_bytes()
    assert written_bytes(opened) == {"flush": flushed, "compaction": 0, "wal": 0}
    opened.compact(Family.DEFAULT)
    found, compacted = written_bytes(opened), table_bytes()
    assert (found["flush"], found["wal"]) == (flushed, 0)
    assert found["compaction"] in {compacted, 2 * compacted}, "by hand it goes down two levels"


def test_of_two_units_of_one_key_in_a_batch_the_later_wins_in_any_order(
    opened: RocksEngine,
) -> None:
    prefixes = [queue_prefix("b", 0), queue_prefix("a", 0)]
    index, offsets = np.array([0, 1, 0, 1, 0]), np.array([7, 3, 6, 3, 7])
    opened.write(EngineBatch(prefixes, index, offsets, units(range(5))))
    found = {(p, o): opened.get(Family.DEFAULT, unit_key(prefixes[p], o)) for p, o in
             ((0, 7), (0, 6), (1, 3))}  # fmt: skip
    rows = units(range(5))
    assert found == {
        (0, 7): rows[4].tobytes(),
        (0, 6): rows[2].tobytes(),
        (1, 3): rows[3].tobytes(),
    }
    opened.close()


def test_what_one_engine_wrote_the_others_read_compact_and_go_on_with(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    first = open_in(tmp_path, engine)
    first.write(batch(range(100)))
    first.close()
    written = 100
    for other in [*ENGINES, *ENGINES]:
        then = open_in(tmp_path, other)
        assert then.scan_units(PREFIX, 0, 1000).next_offset == written
        then.compact(Family.DEFAULT)
        then.write(batch(range(written, written + 10)))
        written += 10
        then.close()
    last = open_in(tmp_path, engine)
    assert offsets_left(last) == list(range(written))
    last.close()


def test_a_too_short_value_in_a_long_scan_is_an_error(opened: RocksEngine, tmp_path: Path) -> None:
    opened.write(batch(range(50)))
    put_raw(opened, unit_key(PREFIX, 50), bytes(3), tmp_path / "short.sst")
    for count in (51, 10_000):
        with pytest.raises(CorruptionError):
            opened.scan_units(PREFIX, 0, count)
    opened.close()


def test_a_compaction_can_be_watched_and_waited_for(opened: RocksEngine) -> None:
    opened.write(batch(range(1000)))
    opened.expire_below(KEEP_NOTHING)
    run = CompactionRun(opened, list(Family))
    assert run.wait(30)
    assert not run.is_running
    assert run.fault is None
    assert run.dropped_units == (1000 if opened.filters_expired else 0)
    again = CompactionRun(opened, [Family.DEFAULT])
    assert again.wait(30)
    assert again.dropped_units == 0, "the others were dropped before"
    assert run.cancel()
    assert not run.is_cancelled
    opened.close()


@pytest.mark.slow
def test_a_cancelled_compaction_leaves_everything_readable(opened: RocksEngine) -> None:
    prefixes = [queue_prefix("T", number) for number in range(100)]
    for prefix in prefixes:
        opened.write(batch(range(5000), prefix=prefix))
    run = CompactionRun(opened, [Family.DEFAULT])
    if not run.cancel():
        assert opened.name == "rocksdict"
    assert run.wait(30)
    for prefix in prefixes:
        assert opened.scan_units(prefix, 0, 6000).next_offset == 5000
    opened.compact(Family.DEFAULT)  # not forbidden for good
    opened.close()


def test_closing_waits_for_a_scan_and_ends_a_compaction(opened: RocksEngine) -> None:
    for number in range(20):
        opened.write(batch(range(5000), prefix=queue_prefix("T", number)))
    run = CompactionRun(opened, list(Family))
    seen: list[int] = []

    def scan() -> None:
        try:
            while True:
                seen.append(len(opened.scan_units(PREFIX, 0, 5000).data))
        except StoreClosedError:
            return

    reader = threading.Thread(target=scan)
    reader.start()
    while len(seen) < 5:
        assert reader.is_alive()
    run.cancel()
    opened.close()
    reader.join(30)
    assert run.wait(30)
    assert not reader.is_alive()
    assert set(seen) == {28 * 5000}


def test_a_forked_child_may_not_use_what_its_parent_opened(opened: RocksEngine) -> None:
    opened.write(batch(range(3)))

    def be_child() -> None:
        with pytest.raises(StoreStateError):
            opened.get(Family.DEFAULT, b"x")

    assert forked(be_child) == 0
    assert opened.scan_units(PREFIX, 0, 5).next_offset == 3
    opened.close()
