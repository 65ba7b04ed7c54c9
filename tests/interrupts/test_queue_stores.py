"""Writes of a queue store cut short at any instant: what it knows is whole, or it takes no more.

Each write of each backend, interrupted at every place where Python looks for signals. What is read
behind it was there before or is there after, at its offset. If the store takes another write, its
queues are what it says; if it refuses, the next open with a replay and the same write is whole.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from cqstore_lmdb import database, lmdb_store, memory

import cqstore.cq_file
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.cq_rocksdb.engine.native_engine import NativeEngine
from cqstore.cq_rocksdb.queues import offset_table, rocksdb_store
from cqstore.store.errors import StoreFailedError
from cqstore.store.queue import combined
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import UnitBatch
from cqstore.store.settings.config import RocksDBEngine
from tests.kit import interrupts
from tests.kit.engines import ENGINES
from tests.kit.installing import install_lmdb
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.model import RECORD_SIZE, FastLog, batch_of
from tests.kit.mutations import in_time
from tests.kit.queue_drive import COMBINED, QueueDrive

SECONDS = 60
KEEPING = (
    combined.__file__, f"{cqstore.cq_file.__path__[0]}/", rocksdb_store.__file__,
    offset_table.__file__, lmdb_store.__file__, memory.__file__, database.__file__,
)  # fmt: skip
"""The modules that keep what is known of the queues, but for the cache, which is compiled."""
MOST = 300
"""As many places at most the long run takes."""
SHARE = 5
"""As many places at most the normal run takes; of a combined store half: it opens slowly."""
KEYS = [("gone", 0), ("a", 0), ("a", 1), ("b", 0), ("c", 5), ("r", 0)]
FIRST = [*[KEYS[0]] * 4, *[KEYS[1]] * 12, *[KEYS[2]] * 3, *[KEYS[3]] * 5]
"""The queue of each record that is there before the step."""
Row = tuple[tuple[str, int], int, int]
"""Queue, queue offset and number of the record."""
Queue = tuple[int, dict[int, int]]
"""The end of a queue, and the records that lie in the log by queue offset."""


def rows_of(keys: Iterable[tuple[str, int]], ends: dict[tuple[str, int], int]) -> list[Row]:
    """Return a record behind the last one for each of ``keys``; move ``ends``."""
    rows = []
    for key in keys:
        rows.append((key, ends[key], 0))
        ends[key] += 1
    return rows


class Model:
    """The queues as dicts: what RocketMQ's rules make of each write, step by step."""

    def __init__(self) -> None:
        self.low = 0
        self.records = 0
        self.rows: list[Row] = []
        """All units of the log, in its order."""
        self.queues: dict[tuple[str, int], Queue] = {key: (0, {}) for key in KEYS}

    def put(self, rows: Iterable[Row]) -> None:
        """Add a record behind the log's end for each row, and its unit to its queue."""
        for key, offset, _ in rows:
            end, units = self.queues[key]
            kept = {at: record for at, record in units.items() if at < offset <= end}
            self.rows.append((key, offset, self.records))
            self.queues[key] = offset + 1, {**kept, offset: self.records}
            self.records += 1

    def seen(self) -> dict[tuple[str, int], Queue]:
        """Return what a reader finds: the units whose records have not expired."""
        return {
            key: (end, {at: record for at, record in units.items() if record >= self.low})
            for key, (end, units) in self.queues.items()
        }

    def cut(self, record: int) -> None:
        self.records = record
        self.rows = [row for row in self.rows if row[2] < record]
        for key, (end, units) in self.queues.items():
            kept = {at: number for at, number in units.items() if number < record}
            self.queues[key] = (end - len(units) + len(kept)), kept

    def next_rows(self, *keys: tuple[str, int]) -> list[Row]:
        return rows_of(keys, {key: end for key, (end, _) in self.queues.items()})


class Case:
    """One open store with the first records, and its model."""

    def __init__(self, folder: Path, name: str, engine: RocksDBEngine) -> None:
        self.model = Model()
        self.log = FastLog()
        self.drive = QueueDrive(name, folder, self.log, engine, hot_queues=100)
        self.drive.store.allow_expiry(0)
        self.put(self.model.next_rows(*FIRST))
        self.drive.store.flush()
        self.again: Callable[[], object] = lambda: None
        """The step, once more, on whatever store is open then."""
        self.look()

    # ---- the steps: the model first, then the store

    def put(self, rows: list[Row]) -> None:
        first = len(self.model.rows)
        self.model.put(rows)
        self.log.stamps += [1000] * (self.model.records - len(self.log.stamps))
        put = self.model.rows[first:]
        self.again = lambda: self.drive.store.put_batch(self.batch(put))
        self.again()

    def batch(self, rows: Iterable[Row]) -> UnitBatch:
        return batch_of(
            self.log,
            [(key, at, (record * RECORD_SIZE, RECORD_SIZE, 7)) for key, at, record in rows],
        )

    def append(self) -> None:
        self.put(self.model.next_rows(KEYS[1], KEYS[2], KEYS[1], KEYS[3], KEYS[4], *[KEYS[2]] * 9))

    def append_one(self) -> None:
        self.put(self.model.next_rows(KEYS[3]))

    def begin_anew(self) -> None:
        self.put([(KEYS[1], 4, 0), (KEYS[1], 5, 0), (KEYS[3], 0, 0)])

    def append_and_begin_anew(self) -> None:
        anew = (KEYS[1], 4, 0), (KEYS[1], 5, 0)
        self.put([*self.model.next_rows(KEYS[2], KEYS[4], KEYS[2]), *anew])

    def jump(self) -> None:
        self.model.low = 4
        self.log.low = 4 * RECORD_SIZE
        self.put([(KEYS[0], 50, 0), (KEYS[0], 51, 0)])

    def truncate(self) -> None:
        self.model.cut(4 + 7)
        del self.log.stamps[4 + 7 :]
        end = (4 + 7) * RECORD_SIZE
        self.again = lambda: self.drive.store.truncate_dirty(end)
        self.again()

    def restore(self) -> None:
        self.model.queues[KEYS[5]] = 25, {}
        self.again = lambda: self.drive.store.restore_end(*KEYS[5], 25)
        self.again()

    def delete_queue(self) -> None:
        self.model.queues[KEYS[1]] = 0, {}
        self.again = lambda: self.drive.store.delete_queue(*KEYS[1])
        self.again()

    def delete_topics(self) -> None:
        for key in KEYS[:3]:
            self.model.queues[key] = 0, {}
        self.again = lambda: self.drive.store.delete_topics(["gone", "a"])
        self.again()

    def expire(self) -> None:
        self.model.low = 4 + 10
        low = self.log.low = (4 + 10) * RECORD_SIZE
        self.again = lambda: self.drive.store.clean_expired(low)
        self.again()

    def flush(self) -> None:
        self.again = lambda: self.drive.store.flush()  # noqa: PLW0108 - of the store open then
        self.again()

    # ---- the files

    def look(self) -> dict[tuple[str, int], Queue]:
        """Return what a reader finds."""
        found = {}
        for key in KEYS:
            low, high = self.drive.offsets(*key)
            units: dict[int, int] = {}
            while low < high:
                block = self.drive.read(*key, low, high - low)
                for at, row in enumerate(block.rows(), low):
                    units[at] = row[0] // RECORD_SIZE
                low = max(low + block.count, block.hole.stop if block.hole else 0)
                assert block.count or block.hole
            found[key] = high, units
        return found

    def reopen(self, *, clean: bool) -> None:
        """Open again; after a crash, as the recovery of a store does it, with a replay."""
        self.drive.last_exit_ok = clean
        self.drive.reopen()
        if clean:
            return
        store = self.drive.store
        store.truncate_dirty(self.log.max_phy_offset())
        start = store.dispatch_from_phy_offset()
        rows = [row for row in self.model.rows if row[2] * RECORD_SIZE >= start]
        live = [row for row in rows if row[2] >= self.model.low]
        store.put_batch(self.batch(live))
        store.catch_up()
        store.allow_expiry(self.log.low)


STEPS: dict[str, Callable[[Case], None]] = {
    "append": Case.append, "one": Case.append_one, "anew": Case.begin_anew,
    "append-and-anew": Case.append_and_begin_anew, "jump": Case.jump,
    "truncate": Case.truncate, "restore": Case.restore, "delete-queue": Case.delete_queue,
    "delete-topics": Case.delete_topics, "expire": Case.expire, "flush": Case.flush,
}  # fmt: skip


def takes_writes(case: Case) -> bool:
    try:
        case.drive.store.put_batch(UnitBatch())
    except StoreFailedError:
        return False
    return True


def check(case: Case, before: dict[tuple[str, int], Queue]) -> None:
    """Compare with the model what the store says now, and says after the step is done again."""
    after, seen = case.model.seen(), case.look()
    low = case.model.low
    for key, (end, units) in seen.items():
        known = {*before[key][1].items(), *after[key][1].items()}
        assert {*units.items()} <= known, key
        assert end <= max(before[key][0], after[key][0]), key
    on_disk = {tuple(span.queue): span.max_offset for span in case.drive.store.spans()}
    assert {key: on_disk.get(key, 0) for key in KEYS} == {
        key: end for key, (end, _) in seen.items()
    }
    whole = takes_writes(case)
    for key, queue in seen.items() if whole else ():
        end, units = before[key]
        still = end, {at: record for at, record in units.items() if record >= low}
        assert queue in (still, after[key]), key
    case.reopen(clean=whole)
    for key, queue in case.look().items() if whole else ():
        assert queue in (seen[key], after[key]), key
    case.again()
    assert case.look() == after
    assert list(case.drive.store.check_files()) == []
    case.drive.store.close()


def interrupt(folder: Path, variant: tuple[str, RocksDBEngine], step: str, number: int) -> int:
    case = Case(folder / str(number), *variant)
    before = case.model.seen()
    places = 0
    with suppress(Interrupted):
        places = run_interrupted(lambda: STEPS[step](case), number)
    check(case, before)
    return places


VARIANTS = {
    "file": ("file", RocksDBEngine.AUTO),
    "file-long": ("file", RocksDBEngine.AUTO),
    **{f"rocksdb-{engine.value}": ("rocksdb", engine) for engine in ENGINES},
    "rocksdb-long": ("rocksdb", RocksDBEngine.AUTO),
    **{f"combined-{name}": (COMBINED + name, RocksDBEngine.AUTO) for name in backend_names()},
    "lmdb": ("lmdb", RocksDBEngine.AUTO),
}


@pytest.fixture(params=VARIANTS)
def variant(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[str, RocksDBEngine]:
    if request.param == "lmdb":
        install_lmdb(tmp_path / "installed", monkeypatch)
    if request.param == "rocksdb-long":
        monkeypatch.setattr(NativeEngine, "append_job", lambda *_: None)
    if request.param == "file-long":
        # Between two lines of the slow path; the core has none.
        monkeypatch.setattr(FileConsumeQueueStore, "_append_fast", lambda _, batch: batch)
    return VARIANTS[request.param]


def interrupt_some(
    tmp_path: Path, variant: tuple[str, RocksDBEngine], step: str, most: int
) -> None:
    """Interrupt ``step`` at evenly chosen places, as many as ``most``."""
    with in_time(SECONDS):
        places = interrupt(tmp_path, variant, step, 0)
    assert places > 1
    for number in range(1, places + 1, -(-places // most)):
        with in_time(SECONDS):
            interrupt(tmp_path, variant, step, number)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_write_cut_short_leaves_queues_whole_or_the_store_failed(
    tmp_path: Path,
    variant: tuple[str, RocksDBEngine],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the modules that keep what is known of the queues."""
    monkeypatch.setattr(interrupts, "_OURS", KEEPING)
    interrupt_some(tmp_path, variant, step, SHARE // 2 if COMBINED in variant[0] else SHARE)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_write_cut_short_anywhere_leaves_queues_whole_or_the_store_failed(
    tmp_path: Path, variant: tuple[str, RocksDBEngine], step: str
) -> None:
    interrupt_some(tmp_path, variant, step, MOST)
