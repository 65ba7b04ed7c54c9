"""The engine on rocksdict: options on disk, locks, read-only opens, errors, closing."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import TypeVar

import numpy as np
import pytest

from cqstore.cq_rocksdb.engine import choice as engines
from cqstore.cq_rocksdb.engine import native_engine, rocksdict_engine
from cqstore.cq_rocksdb.engine.errors import RocksDBDamagedError, RocksDBError, RocksDBStatus
from cqstore.cq_rocksdb.engine.private_folder import PrivateFolder
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.folders import separate_folder
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import (
    ConsumeQueueError,
    CorruptionError,
    QueueGapError,
    RefusedStoreError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import BlockStop, UnitBatch
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.engines import engine_in_use, put_raw
from tests.kit.rocksdb_queues import RocksDBQueues, add, engine_of, lose, phys, put
from tests.kit.tree import unchanged
from tests.kit.waiting import running_threads

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = queue_prefix("T", 0)
FOOTER = Struct("<IQ")
BLOCK_BASED_TABLE_MAGIC = 0x88E241B785F4CFF7


def test_table_files_of_both_families_have_format_version_5(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    store.flush()
    engine_of(store).compact(Family.DEFAULT)
    store.close()
    tables = list((tmp_path / "consumequeue").glob("*.sst"))
    assert len(tables) >= 2
    for table in tables:
        footer = table.read_bytes()[-FOOTER.size :]
        assert FOOTER.unpack(footer) == (5, BLOCK_BASED_TABLE_MAGIC)


def test_nothing_goes_to_the_write_ahead_log_and_both_families_are_flushed(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    engine = engine_of(store)
    put(store, "T", 0, range(10), 0)
    logs = [log.stat().st_size for log in store.folder.glob("*.log")]
    assert logs == [0]
    unflushed = "rocksdb.num-entries-active-mem-table"
    assert [engine.property_value(family, unflushed) for family in Family] == ["10", "2"]
    store.flush()
    assert [engine.property_value(family, unflushed) for family in Family] == ["0", "0"]
    assert sorted(file.entries for file in engine.live_files()) == [2, 10]
    store.close()


def test_a_put_behind_a_range_delete_of_its_key_in_one_memtable_is_kept(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    key = b"\0\0\0\1\1T\1max\1\0\0\0\0"
    engine.write(EngineBatch(puts=[(key, b"a" * 16)]))
    engine.write(EngineBatch(delete_ranges=[(Family.OFFSET, key, key + b"\xff")]))
    engine.write(EngineBatch(puts=[(key, b"b" * 16)]))
    assert engine.get(Family.OFFSET, key) == b"b" * 16
    engine.flush()
    assert engine.get(Family.OFFSET, key) == b"b" * 16
    engine.close()


def test_a_batch_may_hold_keys_of_many_lengths_in_any_order(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    prefixes = [queue_prefix(topic, 7) for topic in ("abc", "a", "b", "abcdef")]
    index = np.array([0, 1, 2, 3, 1, 0], np.int64)
    offsets = np.array([5, 6, 7, 8, 9, 10], np.int64)
    units = np.arange(6 * 28, dtype=np.uint8).reshape(6, 28)
    engine.write(EngineBatch(prefixes, index, offsets, units))
    for row in range(6):
        key = unit_key(prefixes[index[row]], int(offsets[row]))
        assert engine.get(Family.DEFAULT, key) == units[row].tobytes()
    assert len(engine.scan(Family.DEFAULT, b"", b"\xff", 100)) == 6
    engine.close()


def test_scans_say_where_and_why_they_stopped(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 1, range(10), 1000)
    lose(store, "T", 0, range(4, 6))
    engine = engine_of(store)
    stops = [
        (0, 3, 3, BlockStop.LIMIT, 3),
        (0, 9, 4, BlockStop.HOLE, 6),
        (4, 1, 0, BlockStop.HOLE, 6),
        (8, 9, 2, BlockStop.END, 10),
        (50, 9, 0, BlockStop.END, 50),
    ]
    for start, limit, count, stop, following in stops:
        scan = engine.scan_units(PREFIX, start, limit)
        assert (len(scan.data) // 28, scan.stop, scan.next_offset) == (count, stop, following)
    found = [
        engine.first_unit(PREFIX, 4),
        engine.last_unit(PREFIX, 5),
        engine.first_unit(PREFIX, 10),
    ]
    assert [unit and unit[0] for unit in found] == [6, 3, None]
    assert engine.last_unit(queue_prefix("T", 1), 99) is not None
    assert engine.last_unit(queue_prefix("A", 0), 99) is None
    store.close()


@pytest.mark.parametrize("separate", [False, True])
def test_a_new_database_goes_where_the_setting_says_and_is_found_again(
    tmp_path: Path, *, separate: bool
) -> None:
    paths = StorePaths(tmp_path)
    assert not RocksDBConsumeQueueStore.present(paths)
    queues = RocksDBQueues(tmp_path)
    store = queues.open(use_separate_store_path_for_rocksdb_cq=separate)
    put(store, "T", 0, range(3), 0)
    store.close()
    folder = separate_folder(paths) if separate else paths.consume_queue
    assert (folder / "CURRENT").exists()
    assert not list(folder.glob("LOG*"))
    assert RocksDBConsumeQueueStore.present(paths)
    store = queues.open(use_separate_store_path_for_rocksdb_cq=not separate)
    assert (store.folder, store.queue("T", 0).max_offset()) == (folder, 3)
    store.close()


def test_two_databases_are_refused_by_both_names(tmp_path: Path) -> None:
    for name in ("consumequeue", "consumequeue_rocksdb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "CURRENT").touch()
    with pytest.raises(RefusedStoreError) as caught:
        RocksDBConsumeQueueStore.present(StorePaths(tmp_path))
    for name in ("consumequeue,"[:-1], "consumequeue_rocksdb"):
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(RefusedStoreError):
        RocksDBQueues(tmp_path).open()


@pytest.mark.slow
def test_a_second_opener_is_locked_out_in_this_process_and_in_another_one(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    with pytest.raises(StoreLockedError):
        queues.open()
    program = (
        "import sys; from pathlib import Path; from cqstore.store.errors import StoreLockedError\n"
        "from tests.kit.rocksdb_queues import RocksDBQueues\n"
        "try: RocksDBQueues(Path(sys.argv[1])).open()\n"
        "except StoreLockedError: sys.exit(7)"
    )
    other = subprocess.run([sys.executable, "-c", program, tmp_path], check=False, timeout=60)
    assert other.returncode == 7
    store.close()
    queues.open().close()


def test_a_read_only_open_changes_no_byte_and_leaves_no_folder(
    tmp_path: Path, temporary: Path
) -> None:
    queues = RocksDBQueues(tmp_path / "root")
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    store.close()
    (queues.root / "consumequeue" / "rocksdict-config.json").unlink(missing_ok=True)
    (queues.root / "consumequeue" / "Topic").mkdir()
    with unchanged(queues.root):
        first, second = queues.open(read_only=True), queues.open(read_only=True)
        assert phys(first, "T", 0) == phys(second, "T", 0) == list(range(0, 1000, 100))
        assert list(first.check_files()) == []
        assert first.total_size_bytes() > 0
        assert len(list(temporary.iterdir())) == 2
        first.close()
        second.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("changes", [1, 3])
def test_a_database_that_is_written_while_it_is_looked_at_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """What its manifest names by then was made after the folder was listed."""
    queues, offsets = RocksDBQueues(tmp_path), iter(range(100))
    writer = queues.open()

    def write_more() -> None:
        at = next(offsets)
        put(writer, "T", 0, range(at, at + 1), at * 100)
        writer.flush()

    class Listed(PrivateFolder):
        def __init__(self, folder: Path, *, is_empty: bool) -> None:
            super().__init__(folder, is_empty=is_empty)
            if left:
                left.pop()
                write_more()

    write_more()
    left = [None] * changes
    for module in (native_engine, rocksdict_engine):
        monkeypatch.setattr(module, "PrivateFolder", Listed)
    reader = queues.open(read_only=True)
    assert left == []
    assert phys(reader, "T", 0) == [100 * at for at in range(changes + 1)]
    reader.close()
    writer.close()


def test_a_damaged_database_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, looks = RocksDBQueues(tmp_path), []
    store = queues.open()
    put(store, "T", 0, range(3), 0)
    store.close()
    for table in (queues.root / "consumequeue").glob("*.sst"):
        table.unlink()

    class Listed(PrivateFolder):
        def __init__(self, folder: Path, *, is_empty: bool) -> None:
            super().__init__(folder, is_empty=is_empty)
            looks.append(folder)

    for module in (native_engine, rocksdict_engine):
        monkeypatch.setattr(module, "PrivateFolder", Listed)
    with pytest.raises(RocksDBError, match="No such file"):
        queues.open(read_only=True)
    assert len(looks) == 1


def test_a_read_only_open_without_a_database_has_no_queues_and_makes_none(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open(read_only=True)
    assert list(store.queues()) == []
    assert store.queue("T", 0).max_offset() == store.total_size_bytes() == 0
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_facts_name_the_rocksdb_that_wrote_its_own_log(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    facts = store.describe()
    (info_log,) = (tmp_path / "cqstore" / "rocksdb-log").iterdir()
    assert f"RocksDB version: {facts['RocksDB']}" in info_log.read_text()
    assert str(facts["engine"]).startswith(engine_in_use().value)
    assert facts["folder"] == str(tmp_path / "consumequeue")
    assert facts["default keys (estimate)"] == "10"
    store.close()


def test_sizes_count_the_databases_own_files_only(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(1000), 0)
    store.flush()
    (store.folder / "Topic").mkdir()
    (store.folder / "Topic" / "000001.sst").write_bytes(bytes(1 << 20))
    (store.folder / "note.txt").write_bytes(bytes(1 << 20))
    blocks = [file.stat().st_blocks for file in store.folder.glob("*") if file.is_file()]
    own = sum(blocks) - (store.folder / "note.txt").stat().st_blocks
    assert store.total_size_bytes() == own * 512
    store.close()


def test_closing_under_eight_readers_is_clean(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    for queue_id in range(8):
        put(store, "T", queue_id, range(100), queue_id * 10_000)
    started = threading.Barrier(9)
    outcomes: list[BaseException | str] = []

    def read(queue_id: int) -> None:
        try:
            assert store.queue("T", queue_id).read_units(0, 32).count == 32
            started.wait(30)
            while True:
                block = store.queue("T", queue_id).read_units(10, 32)
                if block.count != 32:
                    outcomes.append(f"short block of {block.count}")
                    return
                store.queue("T", queue_id).unit_timestamp(5)
                list(store.queues("T"))
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test looks at it
            outcomes.append(exc)

    readers = [threading.Thread(target=read, args=(queue_id,)) for queue_id in range(8)]
    with running_threads(readers, 30):
        started.wait(30)
        store.close()
    assert [type(outcome) for outcome in outcomes] == [StoreClosedError] * 8
    outcomes.clear()
    store = queues.open()
    assert store.queue("T", 7).max_offset() == 100
    store.close()


def test_after_close_every_call_is_refused_and_a_second_close_does_nothing(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    walking = store.queues()
    store.close()
    store.close()
    calls = [
        lambda: store.queue("T", 0).max_offset(),
        lambda: store.queue("T", 0).min_offset(),
        lambda: store.queue("T", 0).read_units(0, 1),
        lambda: store.queue("T", 0).unit_timestamp(0),
        lambda: next(walking),
        lambda: list(store.check_files()),
        store.describe,
        store.total_size_bytes,
        store.dispatch_from_phy_offset,
        store.flush,
        lambda: store.truncate_dirty(0),
        lambda: store.clean_expired(0),
        lambda: store.delete_topics(["T"]),
        lambda: put(store, "T", 0, range(10, 11), 1000),
    ]
    for call in calls:
        raised(call, StoreClosedError)


def test_a_suspended_walk_does_not_keep_the_database_locked(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    put(store, "T", 1, range(10), 1000)
    walking, units = store.queues(), store.queue("T", 0).iterate(0)
    next(walking)
    next(units)
    store.close()
    queues.open().close()


def test_a_flipped_bit_in_a_table_is_rocksdbs_corruption_with_its_status(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(100), 0)
    store.close()
    for table in (tmp_path / "consumequeue").glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[20] ^= 1
        table.write_bytes(data)
    store = queues.open()
    calls = [
        lambda: store.queue("T", 0).max_offset(),
        lambda: list(store.queues()),
        lambda: engine_of(store).scan_units(PREFIX, 0, 10),
        lambda: engine_of(store).first_unit(PREFIX, 0),
    ]
    calls.append(store.read_through)
    kept = [raised(call, RocksDBDamagedError) for call in calls]
    assert [error.status for error in kept] == [RocksDBStatus.CORRUPTION] * len(calls)
    tables = {*store.folder.glob("*.sst")}
    assert all((error.path in tables, error.position) == (True, 0) for error in kept)
    assert all("cqstore rebuild" in error.reason for error in kept)
    store.close()
    queues.open().close()  # a kept error does not keep the database open


@pytest.mark.parametrize(
    ("name", "content"),
    [("CURRENT", b"junk"), ("CURRENT", b"MANIFEST-999999\n"), ("MANIFEST-000005", b"\x55" * 99)],
)
def test_a_database_that_cannot_be_opened_is_an_error_of_ours(
    tmp_path: Path, name: str, content: bytes
) -> None:
    queues = RocksDBQueues(tmp_path)
    queues.open().close()
    (tmp_path / "consumequeue" / name).write_bytes(content)
    for read_only in (True, False):
        with pytest.raises(ConsumeQueueError):
            queues.open(read_only=read_only)


def test_a_unit_that_is_too_short_is_a_corruption_error(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    put_raw(engine, unit_key(PREFIX, 0), b"x" * 27, tmp_path / "extra.sst")
    with pytest.raises(CorruptionError):
        engine.scan_units(PREFIX, 0, 1)
    with pytest.raises(CorruptionError):
        engine.first_unit(PREFIX, 0)
    engine.close()


def test_a_database_moved_elsewhere_opens_there(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path / "old")
    store = queues.open()
    put(store, "T", 0, range(3), 0)
    store.close()
    shutil.move(tmp_path / "old", tmp_path / "new")
    store = RocksDBQueues(tmp_path / "new").open()
    assert phys(store, "T", 0) == [0, 100, 200]
    store.close()


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Corruption: block checksum mismatch", RocksDBStatus.CORRUPTION),
        ("IO error: No space left on device: While appending", RocksDBStatus.NO_SPACE),
        ("IO error: While appending: Disk quota exceeded", RocksDBStatus.NO_SPACE),
        ("IO error: No such file or directory", RocksDBStatus.IO_ERROR),
        ("No space left on device (os error 28)", RocksDBStatus.NO_SPACE),
        ("Input/output error (os error 5)", RocksDBStatus.IO_ERROR),
        ("Corruption: No space left on device", RocksDBStatus.CORRUPTION),
        ("Not implemented: read only", RocksDBStatus.NOT_SUPPORTED),
        ("something new", RocksDBStatus.OTHER),
    ],
)
def test_a_status_is_known_by_how_its_text_begins(text: str, status: RocksDBStatus) -> None:
    assert RocksDBStatus.of(text) is status


Fault = TypeVar("Fault", bound=StoreError)


def raised(call: Callable[[], object], kind: type[Fault]) -> Fault:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def open_engine(folder: Path) -> RocksEngine:
    config = StoreConfig(rocksdb_engine=engine_in_use(), rocksdb_memory_bytes=16 << 20)
    opened, _ = engines.open_engine(folder, config, folder / "log", read_only=False)
    return opened


FLUSH = re.compile(r"\[(default|offset)\] Manual flush start|Manual (atomic) flush start")


@pytest.mark.parametrize("failed", [False, True])
def test_units_are_flushed_before_the_entries_that_speak_of_them(
    tmp_path: Path,
    failed: bool,  # noqa: FBT001
) -> None:
    """As RocksDB's own log tells, at each flush and when the database is let go."""
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "T", 0, range(10), 0)
    store.flush()
    put(store, "T", 0, range(10, 20), 1000)
    store._failed = failed
    store.close()
    (log,) = (tmp_path / "cqstore" / "rocksdb-log").glob("*LOG")
    families = [found for flush in FLUSH.findall(log.read_text()) for found in flush if found]
    if engine_in_use() is RocksDBEngine.NATIVE:
        assert set(families) == {"atomic"}
    else:
        assert families == ["default", "offset"] * (2 if failed else 3)


def test_a_read_of_many_keys_answers_each_in_its_place(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    engine.write(EngineBatch(puts=[(b"a", b"1" * 16), (b"c", b"3" * 16)]))
    for _ in range(2):
        found = engine.multi_get(Family.OFFSET, [b"c", b"b", b"a", b"c"])
        assert found == [b"3" * 16, None, b"1" * 16, b"3" * 16]
        assert engine.multi_get(Family.OFFSET, []) == []
        assert engine.multi_get(Family.DEFAULT, [b"a"]) == [None]
        engine.flush()
    engine.close()


def test_queues_go_on_where_they_ended_after_they_are_opened_again(tmp_path: Path) -> None:
    queues = RocksDBQueues(tmp_path)
    store = queues.open()
    put(store, "A", 0, range(3), 0)
    put(store, "B", 7, range(5), 1000)
    store.close()
    store = queues.open()
    batch = UnitBatch()
    for offset, phy in ((2, 200), (3, 2000)):  # the first of them is dispatched once more
        add(batch, "A", 0, offset, phy)
    add(batch, "B", 7, 5, 2100)
    add(batch, "C", 1, 0, 2200)
    assert store.put_batch(batch) == []
    assert phys(store, "A", 0) == [0, 100, 200, 2000]
    assert phys(store, "B", 7) == [1000, 1100, 1200, 1300, 1400, 2100]
    assert phys(store, "C", 1) == [2200]
    put(store, "A", 0, range(1), 0)  # known already: the queue does not begin again
    with pytest.raises(QueueGapError):
        put(store, "B", 7, range(8, 9), 3000)
    assert [store.queue(*key).max_offset() for key in (("A", 0), ("B", 7))] == [4, 6]
    assert len(phys(store, "A", 0)) == 4
    store.close()


def test_stats_are_what_the_database_holds_of_each_family(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    put(store, "T", 0, range(10), 0)
    store.flush()
    put(store, "T", 0, range(10, 13), 1000)
    stats = {(stat.name, stat.part): stat.value for stat in store.stats()}
    entries = {"default": 13, "offset": 4}  # units; two entries, each written twice
    for family, count in entries.items():
        assert stats["rocksdb_keys_estimate", family] == count
        assert stats["rocksdb_background_errors", family] == 0
        assert stats["rocksdb_memtable_bytes", family] > 0
    tables = sum(stats["rocksdb_table_bytes", family] for family in entries)
    assert tables == sum(path.stat().st_size for path in store.folder.glob("*.sst"))
    assert stats["rocksdb_dropped_units", "database"] == 0
    assert stats["rocksdb_block_cache_bytes", "database"] < 16 << 20
    store.close()
