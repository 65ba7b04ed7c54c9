"""The promises of ``RocksEngine``, call by call, on each engine."""

import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from cqstore.cq_rocksdb.engine import choice as engines
from cqstore.cq_rocksdb.engine.database_options import database_options
from cqstore.cq_rocksdb.engine.errors import RocksDBError, RocksDBIOError
from cqstore.cq_rocksdb.engine.rocks_engine import (
    EngineBatch,
    Family,
    RocksEngine,
    units_in_key_order,
)
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.store.errors import (
    CorruptionError,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreIOError,
    StoreStateError,
    UnsupportedFormatError,
)
from cqstore.store.queue.units import BlockStop
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.engines import engine_in_use, hold_compactions, put_raw
from tests.kit.tree import tree_digest, unchanged

pytestmark = pytest.mark.usefixtures("engine")
PREFIX, OTHER = queue_prefix("T", 0), queue_prefix("T", 1)
Call = Callable[[], object]
KEYS = [b"a", b"b", b"c", b"d"]


def open_in(folder: Path, *, read_only: bool = False) -> RocksEngine:
    config = StoreConfig(rocksdb_engine=engine_in_use(), rocksdb_memory_bytes=16 << 20)
    log_folder = folder / "log" / "of" / "rocksdb"
    return engines.open_engine(folder / "db" / "x", config, log_folder, read_only=read_only)[0]


@pytest.fixture
def opened(tmp_path: Path) -> RocksEngine:
    return open_in(tmp_path)


def puts(*keys: bytes, value: bytes = bytes(16)) -> EngineBatch:
    return EngineBatch(puts=[(key, value) for key in keys])


def unit(offset: int, phy: int, prefix: bytes = PREFIX) -> EngineBatch:
    row = np.zeros((1, 28), np.uint8)
    row[0, :8] = np.frombuffer(phy.to_bytes(8, "big"), np.uint8)
    return EngineBatch([prefix], np.zeros(1, np.int64), np.array([offset]), row)


def is_native() -> bool:
    return engine_in_use() is RocksDBEngine.NATIVE


def test_an_engine_opens_any_families(tmp_path: Path) -> None:
    """Each keeps its own entries, through a flush, a compaction and both ways of opening again."""
    make, _ = engines._choose(StoreConfig(rocksdb_engine=engine_in_use()))
    two = database_options(16 << 20)
    names = [*two.families, "timers", "more"]
    like = two.families[Family.OFFSET]
    options = two._replace(families=dict.fromkeys(names, like) | dict(two.families))

    def opened(*, read_only: bool) -> RocksEngine:
        return make(tmp_path / "db", options, tmp_path / "log", read_only=read_only)

    def held(engine: RocksEngine) -> dict[str, list[tuple[bytes, bytes]]]:
        return {name: engine.scan(name, b"", b"\xff", 9) for name in names}

    engine = opened(read_only=False)
    for name in names:
        keys = [(key, key + name.encode()) for key in KEYS]
        engine.write(EngineBatch(puts=keys, puts_family=name))
    engine.write(EngineBatch(deletes=[("more", b"b")], delete_ranges=[("timers", b"b", b"d")]))
    whole = {name: [(key, key + name.encode()) for key in KEYS] for name in names}
    del whole["more"][1], whole["timers"][1:3]
    assert held(engine) == whole
    assert engine.get("more", b"b") is None
    assert engine.multi_get("timers", KEYS[::3]) == [b"atimers", b"dtimers"]
    engine.flush()
    for name in names:
        engine.compact(name)
        writer = engine.table_writer(name, tmp_path / "extra.sst")
        writer.put(b"e", name.encode())
        writer.finish()
        engine.ingest(name, [tmp_path / "extra.sst"])
        whole[name].append((b"e", name.encode()))
    assert {file.family for file in engine.live_files()} in ({*names}, {None})
    engine.close()
    for read_only in (True, False):
        again = opened(read_only=read_only)
        assert held(again) == whole
        again.close()


def make_one_family(folder: Path, *, with_a_key: bool) -> None:
    """Make a database as an opening leaves it that ends before it has added the second family."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - positional alone
    database = Rdict(str(folder), options)
    if with_a_key:
        database[b"key"] = b"value"
        database.flush()
    database.close()


def test_a_database_whose_making_was_cut_short_is_empty_until_it_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "db" / "x"
    make_one_family(folder, with_a_key=False)
    with unchanged(folder):
        engine = open_in(tmp_path, read_only=True)
        assert engine.multi_get(Family.OFFSET, [b"a"]) == [None]
        engine.close()
    engine = open_in(tmp_path)
    assert engine.multi_get(Family.OFFSET, [b"a"]) == [None]
    engine.write(puts(b"a"))
    engine.close()
    engine = open_in(tmp_path, read_only=True)
    assert engine.multi_get(Family.OFFSET, [b"a"]) == [bytes(16)]
    engine.close()


def test_a_database_without_the_second_family_that_holds_keys_is_not_empty(tmp_path: Path) -> None:
    folder = tmp_path / "db" / "x"
    make_one_family(folder, with_a_key=True)
    with unchanged(folder):
        with pytest.raises(RocksDBError, match="Column family not found: offset") as caught:
            open_in(tmp_path, read_only=True)
        assert caught.value.path == folder


@pytest.mark.parametrize("there", [False, True])
def test_a_read_only_engine_refuses_writes_before_it_makes_them(
    tmp_path: Path,
    there: bool,  # noqa: FBT001
) -> None:
    first = open_in(tmp_path)
    first.write(puts(b"a"))
    writer = first.table_writer(Family.OFFSET, tmp_path / "extra.sst")
    writer.put(b"extra", b"x")
    writer.finish()
    first.close()
    root = tmp_path if there else tmp_path / "elsewhere"
    before = tree_digest(tmp_path)
    engine = open_in(root, read_only=True)
    writes: list[Call] = [
        lambda: engine.write(puts(b"b")),
        engine.flush,
        lambda: engine.compact(Family.OFFSET),
        lambda: engine.ingest(Family.OFFSET, [tmp_path / "extra.sst"]),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyStoreError) as caught:
            write()
        assert caught.value.path == root / "db" / "x"
    found = engine.multi_get(Family.OFFSET, [b"a", b"b", b"extra"])
    assert found == [bytes(16) if there else None, None, None]
    engine.close()
    engine.close(flush=True)
    assert tree_digest(tmp_path) == before


def test_parts_of_a_write_are_applied_in_their_order(opened: RocksEngine) -> None:
    for family_keys in (puts(*KEYS), unit(0, 1), unit(1, 2), unit(2, 3)):
        opened.write(family_keys)
    write = unit(1, 20)
    write.delete_ranges = [
        (Family.DEFAULT, unit_key(PREFIX, 0), unit_key(PREFIX, 2)),
        (Family.OFFSET, b"a", b"c"),
    ]
    write.deletes = [(Family.DEFAULT, unit_key(PREFIX, 2)), (Family.OFFSET, b"c")]
    write.puts = [(b"c", b"new")]
    opened.write(write)
    assert opened.multi_get(Family.OFFSET, KEYS) == [None, None, b"new", bytes(16)]
    found = [opened.get(Family.DEFAULT, unit_key(PREFIX, offset)) for offset in range(3)]
    assert [value and value[7] for value in found] == [None, 20, None]
    opened.close()


def test_a_scan_gives_so_many_entries_of_its_range_and_no_others(opened: RocksEngine) -> None:
    opened.write(puts(*KEYS))
    opened.write(unit(0, 1))
    for _ in range(2):
        for low in range(4):
            for high in range(low, 5):
                for limit in (1, 2, 3, 10):
                    end = [*KEYS, b"e"][high]
                    rows = opened.scan(Family.OFFSET, KEYS[low], end, limit)
                    assert [key for key, _ in rows] == KEYS[low:high][:limit]
        assert opened.scan(Family.DEFAULT, b"", b"\xff", 9)[0][0] == unit_key(PREFIX, 0)
        opened.flush()
    opened.close()


def test_keys_that_are_no_units_are_passed_and_long_values_cut(
    opened: RocksEngine, tmp_path: Path
) -> None:
    opened.write(unit(0, 1))
    opened.write(unit(2, 3))
    odd = unit_key(PREFIX, 0) + b"\0", unit_key(PREFIX, 2) + b"\0", PREFIX + b"\0"
    for number, key in enumerate(odd):
        put_raw(opened, key, bytes(28), tmp_path / f"{number}.sst")
    put_raw(opened, unit_key(PREFIX, 1), bytes(7) + b"\2" + bytes(30), tmp_path / "long.sst")
    assert opened.scan_units(PREFIX, 0, 9)[1:] == (BlockStop.END, 3)
    data = opened.scan_units(PREFIX, 0, 3).data
    assert [data[at + 7] for at in range(0, 3 * 28, 28)] == [1, 2, 3]
    first, last = opened.first_unit(PREFIX, 0), opened.last_unit(PREFIX, 9)
    assert first is not None
    assert last is not None
    assert (first[0], last[0]) == (0, 2)
    assert opened.first_unit(PREFIX, 3) is None
    assert opened.last_unit(OTHER, 9) is None
    opened.close()


def test_a_unit_that_is_too_short_is_named_by_every_read(
    opened: RocksEngine, tmp_path: Path
) -> None:
    opened.write(unit(0, 1))
    put_raw(opened, unit_key(PREFIX, 1), bytes(27), tmp_path / "short.sst")
    target = np.zeros((5, 28), np.uint8)
    reads: list[Call] = [
        lambda: opened.scan_units(PREFIX, 0, 2),
        lambda: opened.scan_units(PREFIX, 0, 10_000),
        lambda: opened.scan_into(PREFIX, 0, target),
        lambda: opened.first_unit(PREFIX, 1),
        lambda: opened.last_unit(PREFIX, 5),
    ]
    if is_native():
        with opened.snapshot() as held, pytest.raises(CorruptionError, match="unit 1 of queue"):
            held.scan_into(PREFIX, 0, target)
    for read in reads:
        with pytest.raises(CorruptionError) as caught:
            read()
        named = f"unit 1 of queue {PREFIX.hex()}" if is_native() else unit_key(PREFIX, 1).hex()
        assert named in str(caught.value)
        assert caught.value.expected == "28 bytes"
    assert opened.scan_units(PREFIX, 0, 1).stop is BlockStop.LIMIT
    opened.close()


def test_the_largest_offset_can_be_read(opened: RocksEngine) -> None:
    largest = (1 << 63) - 2
    opened.write(unit(largest, 7))
    assert opened.scan_units(PREFIX, largest, 5)[1:] == (BlockStop.END, largest + 1)
    assert opened.scan_units(PREFIX, largest, 1)[1:] == (BlockStop.LIMIT, largest + 1)
    assert opened.scan_units(PREFIX, largest - 2, 5)[1:] == (BlockStop.HOLE, largest)
    opened.close()


def test_tables_take_the_options_of_their_family_and_are_moved(
    opened: RocksEngine, tmp_path: Path
) -> None:
    sizes, inodes = {}, set()
    for family in Family:
        path = tmp_path / f"{family.value}.sst"
        writer = opened.table_writer(family, path)
        for at in range(1000):
            writer.put(unit_key(PREFIX, at), bytes(100))
        sizes[family] = writer.finish()
        inodes.add(path.stat().st_ino)
        opened.ingest(family, [path])
    assert sizes[Family.DEFAULT] < 20_000, "zeros that are compressed"
    assert sizes[Family.OFFSET] > 100_000, "as they are"
    tables = list((tmp_path / "db" / "x").glob("*.sst"))
    assert {path.stat().st_ino for path in tables} == inodes
    assert not list(tmp_path.glob("*.sst"))
    opened.close()


def test_live_files_are_the_tables_of_the_folder(opened: RocksEngine, tmp_path: Path) -> None:
    hold_compactions(opened)
    for offset in (0, 1):
        write = unit(offset, offset)
        write.puts = [(b"a", bytes(16))]
        opened.write(write)
        opened.flush()
    opened.write(EngineBatch(deletes=[(Family.OFFSET, b"a"), (Family.DEFAULT, b"x")]))
    opened.flush()
    live = opened.live_files()
    tables = {path.name: path.stat().st_size for path in (tmp_path / "db" / "x").glob("*.sst")}
    assert {file.name: file.size_bytes for file in live} == tables
    assert {file.level for file in live} == {0}
    assert sorted(file.entries for file in live) == [1] * 6
    assert sorted(file.deletions for file in live) == [0] * 4 + [1] * 2
    families = [file.family for file in live]
    for family in Family:
        assert families.count(family) == (3 if is_native() else 0)
    opened.close()


def test_sizes_of_ranges_and_properties(opened: RocksEngine) -> None:
    for prefix in (PREFIX, OTHER):
        count = 20_000 if prefix == PREFIX else 1
        rows = np.random.default_rng(1).integers(0, 255, (count, 28)).astype(np.uint8)
        opened.write(EngineBatch([prefix], np.zeros(count, np.int64), np.arange(count), rows))
    opened.flush()
    opened.compact(Family.DEFAULT)
    large = opened.approximate_size(Family.DEFAULT, PREFIX, PREFIX + b"\xff")
    none = opened.approximate_size(Family.OFFSET, PREFIX, PREFIX + b"\xff")
    if is_native():
        assert large is not None
        assert large > 100_000
        assert none == 0
    else:
        assert large is none is None
    assert opened.property_value(Family.DEFAULT, "rocksdb.estimate-num-keys") == "20001"
    assert opened.property_value(Family.OFFSET, "rocksdb.estimate-num-keys") == "0"
    assert opened.property_value(Family.DEFAULT, "rocksdb.unheard-of") is None
    opened.close()


def test_versions_are_those_of_library_and_binding_however_it_is_opened(
    opened: RocksEngine, tmp_path: Path
) -> None:
    reported = opened.versions()
    (log,) = (tmp_path / "log" / "of" / "rocksdb").glob("*LOG")
    assert f"RocksDB version: {reported['RocksDB']}\n" in log.read_text()
    if is_native():
        assert reported.keys() == {"RocksDB", "RocksDB library", "the library lacks"}
        assert reported["the library lacks"] == "no function that is used"
        assert "rocksdb" in reported["RocksDB library"]
    else:
        assert reported == {"rocksdict": version("rocksdict"), "RocksDB": reported["RocksDB"]}
    opened.close()
    reader = open_in(tmp_path, read_only=True)
    assert reader.versions() == reported
    reader.close()


def test_after_a_cancelled_compaction_another_one_does_its_work(opened: RocksEngine) -> None:
    hold_compactions(opened)
    for offset in range(3):
        opened.write(unit(offset, offset))
        opened.flush()
    assert opened.cancel_compaction() == is_native()
    opened.compact(Family.DEFAULT)
    assert [file.entries for file in opened.live_files()] == [3]
    opened.close()


def test_a_snapshot_is_let_go_however_its_block_ends_and_a_close_waits_for_it(
    opened: RocksEngine, tmp_path: Path
) -> None:
    if not is_native():
        with pytest.raises(UnsupportedFormatError, match="does not support snapshots"):
            opened.snapshot()
        opened.close()
        return
    held = "rocksdb.num-snapshots"

    def fail() -> None:
        with opened.snapshot():
            assert opened.property_value(Family.DEFAULT, held) == "1"
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        fail()
    assert opened.property_value(Family.DEFAULT, held) == "0"
    closer = threading.Thread(target=opened.close)
    with opened.snapshot() as before:
        closer.start()
        closer.join(0.05)
        assert closer.is_alive()
        assert before.get(Family.OFFSET, b"a") is None
    closer.join(30)
    assert not closer.is_alive()
    with pytest.raises(StoreClosedError), opened.snapshot():
        pass
    open_in(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "x").write_bytes(b"")
    with pytest.raises(StoreIOError, match="cannot create the folder") as caught:
        open_in(tmp_path)
    assert caught.value.path == tmp_path / "db" / "x"
    (tmp_path / "db" / "x").unlink()
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(StoreIOError, match="cannot create the folder"):
        open_in(tmp_path)
    (tmp_path / "log").unlink()
    open_in(tmp_path).close()  # nothing is held


def test_what_cannot_be_closed_does_not_keep_the_rest(opened: RocksEngine, tmp_path: Path) -> None:
    if is_native():
        opened.close()
        return
    closed: list[str] = []

    class Broken:
        def close(self) -> None:
            closed.append("default")
            raise Exception("IO error: of the test")  # noqa: TRY002 - as rocksdict does

    families = opened._families  # type: ignore[attr-defined]
    real = families["default"]
    families["default"] = Broken()
    with pytest.raises(RocksDBIOError, match="of the test"):
        opened.close(flush=False)
    opened.close(flush=False)
    assert closed == ["default"]
    real.close()
    del real
    again = open_in(tmp_path)
    again._families["offset"].close()  # type: ignore[attr-defined]
    again.close(flush=False)  # closed already: nothing of it is an error
    open_in(tmp_path).close()


def test_one_process_loads_one_library(tmp_path: Path) -> None:
    if not is_native():
        return
    from cqstore.cq_rocksdb.engine.native_engine import load_library  # noqa: PLC0415

    loaded = load_library(None)
    assert load_library(None) is loaded
    assert load_library(loaded.path) is loaded
    other = tmp_path / "librocksdb.so"
    other.write_bytes(b"\x7fELF and no more")
    with pytest.raises(StoreStateError, match="cannot load a second RocksDB library: ") as caught:
        load_library(other)
    assert caught.value.path == other


LOADING = """
import ctypes, sys
from pathlib import Path
from cqstore.cq_rocksdb.engine.native_engine import load_library
from cqstore.store.errors import UnsupportedFormatError
libc = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line)
for path in sys.argv[1], libc:
    try:
        load_library(Path(path))
    except UnsupportedFormatError as exc:
        print(exc.path == Path(path), exc.reason)
load_library(None)
print("loaded")
"""


@pytest.mark.slow
def test_what_is_no_rocksdb_is_refused_and_another_one_can_be_loaded(tmp_path: Path) -> None:
    if not is_native():
        return
    other = tmp_path / "librocksdb.so"
    other.write_bytes(b"\x7fELF and no more")
    done = subprocess.run(
        [sys.executable, "-c", LOADING, other], capture_output=True, text=True, check=True
    )
    broken, foreign, loaded = done.stdout.splitlines()
    assert broken.startswith(f"True the RocksDB library {other} cannot be loaded: ")
    assert foreign.startswith("True the RocksDB library ")
    assert " has no rocksdb_" in foreign
    assert loaded == "loaded"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8))
def test_units_are_given_to_the_library_in_the_order_of_their_keys(
    units: list[tuple[int, int]],
) -> None:
    prefixes = [b"b", b"a", b"c"]
    wanted = sorted(range(len(units)), key=lambda at: (prefixes[units[at][0]], units[at][1]))
    index = np.array([prefix for prefix, _ in units], np.int64)
    order = units_in_key_order(prefixes, index, np.array([offset for _, offset in units], np.int64))
    if wanted == list(range(len(units))):
        assert order is None
    else:
        assert order is not None
        assert order.tolist() == wanted
