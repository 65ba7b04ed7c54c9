"""RocksDB engines: openings and closes cut short between any two instructions."""

import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore.cq_rocksdb.engine._capi import ClosedError
from cqstore.cq_rocksdb.engine._snapshot import Snapshot
from cqstore.cq_rocksdb.engine._write_batch import WriteBatchColumns
from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import NestedCallError, StoreClosedError, UnsupportedFormatError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QUEUE_UNIT, UnitBatch
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.descriptors import descriptors_of
from tests.kit.engines import ENGINES, put_raw
from tests.kit.file_queues import NoLog
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.long_too import long_too
from tests.kit.no_log import NoCheckpoint

MANY = 10_000
PREFIX = b"a queue"
HOLE_AT, MORE_THAN_ONE_SCAN = 20, 9000
both_engines = pytest.mark.parametrize("engine", ENGINES)


def numbers_of(places: int, share: int, *, last: int = 0) -> list[int]:
    """Return ``share`` of the places, drawn evenly, and each of the ``last`` ones."""
    step = max(1, places // share)
    return sorted({*range(1, places + 1, step), *range(max(1, places - last), places + 1)})


def interrupt_opening(root: Path, engine: RocksDBEngine, share: int, *, read_only: bool) -> None:
    """Open again while the exception, and with it the frames of the first opening, is there."""
    config, folder = StoreConfig(rocksdb_engine=engine), root / "db"

    def opened(*, read_only: bool = read_only) -> RocksEngine:
        return open_engine(folder, config, root / "log", read_only=read_only)[0]

    def case(number: int) -> int:
        made: list[RocksEngine] = []
        places = 0
        try:
            places = run_interrupted(lambda: made.append(opened()), number)
            database = made[0]
        except Interrupted:
            database = opened()
        assert database.get(Family.DEFAULT, b"key") == b"value"
        database.close()
        assert descriptors_of(root) == [], number
        return places

    database = opened(read_only=False)
    put_raw(database, b"key", b"value", root / "table")
    database.close()
    places = case(0)
    assert places > 100
    for number in numbers_of(places, share, last=30):
        case(number)


@IGNORED
@both_engines
@pytest.mark.parametrize(
    ("most", "read_only"), [(20, False), *long_too([(MANY, False), (MANY, True)])]
)
def test_a_database_opens_where_its_opening_was_interrupted(
    tmp_path: Path, engine: RocksDBEngine, most: int, *, read_only: bool
) -> None:
    interrupt_opening(tmp_path, engine, most, read_only=read_only)


@both_engines
def test_queues_close_where_the_end_of_their_opening_was_interrupted(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    """A store that could not be opened closes the queues that it has made."""

    def case(number: int) -> int:
        root = tmp_path / str(number)
        config = StoreConfig(rocksdb_engine=engine)
        queues = RocksDBConsumeQueueStore(
            QueueStoreContext(
                StorePaths(root),
                config,
                NoLog(),
                NoCheckpoint(),
                last_exit_ok=True,
                read_only=False,
            )
        )
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(queues.load, number)
        queues.close()
        with pytest.raises(StoreClosedError):
            queues.recover()
        assert descriptors_of(root) == []
        return places

    places = case(0)
    for number in range(places - 30, places + 1):
        case(number)


def filled(root: Path, engine: RocksDBEngine) -> RocksEngine:
    """Return an open database with units of one queue, all but the one at ``HOLE_AT``."""
    database, _ = open_engine(
        root / "db", StoreConfig(rocksdb_engine=engine), root / "log", read_only=False
    )
    count = MORE_THAN_ONE_SCAN if engine is RocksDBEngine.NATIVE else 2 * HOLE_AT
    offsets = np.delete(np.arange(count), HOLE_AT)
    units = np.zeros((count - 1, QUEUE_UNIT.size), np.uint8)
    index = np.zeros(count - 1, np.int64)
    database.write(EngineBatch([PREFIX], index, offsets, units, puts=[(b"key", b"value")]))
    return database


ASK_NO_DATABASE = {"versions", "expire", "dropped", "size", "search", "cancel"}


def read_snapshot(database: RocksEngine) -> object:
    with database.snapshot() as held:
        held.get(Family.OFFSET, b"key")
        return held.scan_into(PREFIX, 0, np.empty((9, QUEUE_UNIT.size), np.uint8))


def append(database: RocksEngine) -> None:
    batch = UnitBatch()
    batch.add(("t", 0), 0, 1, 2, 3, 4)
    job: Any = database.append_job(batch)
    database.append(job, (b"key", b"other"))


CALLS: dict[str, Callable[[RocksEngine], object]] = {
    "append": append,
    "write": lambda database: database.write(EngineBatch(puts=[(b"key", b"other")])),
    "flush": lambda database: database.flush(),
    "compact": lambda database: database.compact(Family.DEFAULT),
    "cancel": lambda database: database.cancel_compaction(),
    "get": lambda database: database.get(Family.OFFSET, b"key"),
    "multi_get": lambda database: database.multi_get(Family.OFFSET, [b"key", b"other"]),
    "search": lambda database: database.search(PREFIX, (0, HOLE_AT), 5, (0, 9), upper=False),
    "scan_units": lambda database: database.scan_units(PREFIX, HOLE_AT - 5, 30),
    "scan_long": lambda database: database.scan_units(PREFIX, HOLE_AT + 1, 1 << 20),
    "scan_into": lambda database: database.scan_into(
        PREFIX, 0, np.empty((9, QUEUE_UNIT.size), np.uint8)
    ),
    "first": lambda database: database.first_unit(PREFIX, HOLE_AT),
    "last": lambda database: database.last_unit(PREFIX, HOLE_AT),
    "scan": lambda database: database.scan(Family.OFFSET, b"", b"z", 9),
    "snapshot": read_snapshot,
    "property": lambda database: database.property_value(Family.DEFAULT, "rocksdb.stats"),
    "size": lambda database: database.approximate_size(Family.DEFAULT, b"", b"z"),
    "files": lambda database: database.live_files(),
    "versions": lambda database: database.versions(),
    "expire": lambda database: database.expire_below(0),
    "dropped": lambda database: database.dropped_units,
}


def close_inside(root: Path, engine: RocksDBEngine, name: str, share: int) -> None:
    def case(number: int) -> int:
        database, places = filled(root / str(number), engine), 0

        def close() -> None:
            with suppress(NestedCallError):
                database.close()

        with suppress(StoreClosedError, UnsupportedFormatError):
            places = run_interrupted(lambda: CALLS[name](database), number, close)
        database.close()
        assert descriptors_of(root) == [], number
        with suppress(StoreClosedError, UnsupportedFormatError):
            CALLS[name](database)
            assert name in ASK_NO_DATABASE
        return places

    for number in numbers_of(case(0), share, last=2):
        case(number)


@both_engines
@pytest.mark.parametrize("most", [4, *long_too([200])])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_well_where_a_signals_handler_closes_the_database(
    tmp_path: Path, engine: RocksDBEngine, name: str, most: int
) -> None:
    """It answers, or says that the database is closed; it reads nothing that has been freed."""
    close_inside(tmp_path, engine, name, most)


def test_each_call_of_a_closed_database_is_refused_below_the_gate(tmp_path: Path) -> None:
    """Also through a snapshot that was taken before."""
    if RocksDBEngine.NATIVE not in ENGINES:
        pytest.skip("no RocksDB library")
    engine = filled(tmp_path, RocksDBEngine.NATIVE)
    database: Any = engine._database  # type: ignore[attr-defined]
    held = Snapshot(database)
    none, row = np.zeros(0, np.int64), np.zeros((1, QUEUE_UNIT.size), np.uint8)
    calls = {
        "write": (WriteBatchColumns(b"", none, none, none, row[:0], [], [], 1, [(b"a", b"b")]),),
        "flush_all": (), "flush": (0,), "set_options": (0, b"disable_auto_compactions", b"true"),
        "compact": (0, None, None), "cancel_compaction": (), "allow_compaction": (),
        "ingest": (0, [b"/missing"]), "get": (0, b"key"), "multi_get": (0, [b"key"]),
        "search": (PREFIX, 0, 9, 5, False, 0, 9), "scan_units": (PREFIX, 0, 9),
        "scan_into": (PREFIX, 0, row), "neighbour": (PREFIX, 0, True), "scan": (1, b"", b"z", 9),
        "property_value": (0, b"rocksdb.stats"), "approximate_size": (0, b"", b"z"),
        "live_files": (),
    }  # fmt: skip
    others = {"close", "filter", "snapshots"}
    assert {name for name in dir(database) if not name.startswith("_")} == {*calls, *others}
    database.scan_units(PREFIX, 0, 9)  # an iterator is kept for the next scan
    engine.close()
    for name, arguments in calls.items():
        with pytest.raises(ClosedError):
            getattr(database, name)(*arguments)
    for name in ("get", "scan_into"):
        with pytest.raises(ClosedError):
            getattr(held, name)(*calls[name])
    with pytest.raises(ClosedError):
        Snapshot(database)
    held.release()
    held.release()
    database.filter.raise_minimum(1)
    database.close()


def test_a_finalizer_that_closes_in_the_middle_of_a_listing_frees_nothing_that_is_read(
    tmp_path: Path,
) -> None:
    """The garbage collector calls it where the binding makes an object."""
    if RocksDBEngine.NATIVE not in ENGINES:
        pytest.skip("no RocksDB library")
    engine = filled(tmp_path, RocksDBEngine.NATIVE)
    entries = [(b"%04d" % number, b"x") for number in range(500)]
    engine.write(EngineBatch(puts=entries))

    def close(phase: str, _: object) -> None:
        if phase == "start":
            engine.close()

    threshold = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(close)
    gc.set_threshold(200)
    try:
        with suppress(StoreClosedError):
            assert engine.scan(Family.OFFSET, b"", b"key", 1000) == entries
    finally:
        gc.callbacks.remove(close)
        gc.set_threshold(*threshold)
    engine.close()
