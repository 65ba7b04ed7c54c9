"""Damaged keys and values of RocksDB, and units that a damaged record leads to.

RocksDB's own checksums keep random damage of its files out; what is meant here is a database that
another process wrote. An input is a key and a value: it goes into an open database, which is then
read, checked, written to and cut, and taken out again.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_KEY,
    max_key,
    min_key,
    parse_offset_key,
    parse_unit_key,
    queue_prefix,
    topic_range,
    unit_key,
)
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QUEUE_UNIT, UnitBatch
from tests.fuzz.test_queue_files import ask
from tests.kit.engines import ENGINES, put_raw, using
from tests.kit.file_queues import NoLog
from tests.kit.golden import load_dump
from tests.kit.model import FastLog
from tests.kit.mutations import fuzz
from tests.kit.queue_drive import QueueDrive
from tests.kit.rocksdb_queues import RECORD_BYTES, RocksDBQueues, put

PREFIX = queue_prefix("T", 0)
UNITS = 40
KEY = len(unit_key(PREFIX, 0))
PLACE = Struct(">iqqqiq")
"""Queue id, queue offset, phy offset, tags code, size, store timestamp."""


@pytest.fixture(params=ENGINES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[RocksDBConsumeQueueStore, Path]]:
    with using(request.param):
        opened = RocksDBQueues(tmp_path, NoLog(300, 100_000)).open(rocksdbHotQueues=2)
    put(opened, "T", 0, range(UNITS), 0)
    put(opened, "T", 1, range(3), UNITS * RECORD_BYTES)
    yield opened, tmp_path
    opened.close()


def key_and_value(data: bytes) -> tuple[Family, bytes, bytes]:
    """Take an input apart: a byte for family and length of the key, then the key and the value."""
    head = data[0] if data else 0
    family = Family.OFFSET if head & 1 else Family.DEFAULT
    size = head >> 1
    return family, data[1 : 1 + size] or b"\0", data[1 + size :]


def joined(family: Family, key: bytes, value: bytes) -> bytes:
    return bytes([len(key) << 1 | (family is Family.OFFSET)]) + key + value


def seeds(store: RocksDBConsumeQueueStore) -> list[bytes]:
    keys = [
        (Family.OFFSET, max_key(PREFIX)), (Family.OFFSET, min_key(PREFIX)),
        (Family.OFFSET, CHECKPOINT_KEY), (Family.DEFAULT, unit_key(PREFIX, 0)),
        (Family.DEFAULT, unit_key(PREFIX, UNITS // 2)),
        (Family.DEFAULT, unit_key(PREFIX, UNITS - 1)),
        (Family.DEFAULT, unit_key(PREFIX, UNITS)),
    ]  # fmt: skip
    some = QUEUE_UNIT.struct.pack(1000, 100, 7, 8)
    return [joined(f, key, store.engine.get(f, key) or some) for f, key in keys]


def use(store: RocksDBConsumeQueueStore) -> None:
    """Read, check, put and cut; nothing is kept in memory from before."""
    store._offsets.forget_all()
    store._offsets._checkpoint = None
    end = UNITS * RECORD_BYTES
    for act in (
        lambda: ask(store, "T"),
        lambda: list(store.queues()),
        lambda: list(store.check_files()),
        lambda: put(store, "T", 0, range(10, UNITS + 5), 1000),
        lambda: put(store, "T", 0, range(UNITS + 5, UNITS + 6), end + 900),
        lambda: store.truncate_dirty(end),
        store.describe,
    ):
        with suppress(StoreError):
            act()


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)])
class TestDamaged:
    def test_keys(self, *, long: bool) -> None:
        raw = load_dump("special-defaultRocksDB")["rocksdbRaw"]["consumequeue"]
        keys = [bytes.fromhex(key) for rows in raw.values() for key, _ in rows[:300]]

        def run(data: bytes) -> None:
            for parse in (parse_unit_key, parse_offset_key):
                with suppress(CorruptionError):
                    parse(data)

        fuzz("key", keys, run, 500, long=long, fields=[range(4)])

    def test_values(self, store: tuple[RocksDBConsumeQueueStore, Path], *, long: bool) -> None:
        opened, folder = store
        engine = opened.engine

        def run(data: bytes) -> None:
            family, key, value = key_and_value(data)
            if family is Family.DEFAULT:
                put_raw(engine, key, value, folder / "one.sst")
            else:
                engine.write(EngineBatch(puts=[(key, value)]))
            use(opened)
            restore()

        def restore() -> None:
            ranges: list[tuple[str, bytes, bytes]] = [(each, b"", b"\xff" * 300) for each in Family]
            engine.write(EngineBatch(delete_ranges=ranges))
            opened._offsets.forget_all()
            opened._offsets.batch_written(0)
            opened._failed = False
            put(opened, "T", 0, range(UNITS), 0)

        fields = [range(1 + KEY + at, 1 + KEY + at + 8) for at in (-8, 0, 8, 12, 20)]
        fields += [range(1 + len(max_key(PREFIX)) + at, 9 + len(max_key(PREFIX)) + at)
                   for at in (0, 8)]  # fmt: skip
        assert topic_range("T")[0] < PREFIX
        fuzz(f"value {engine.name}", seeds(opened), run, 120, long=long, fields=fields)

    @pytest.mark.parametrize("name", backend_names())
    def test_units_of_damaged_records(self, tmp_path: Path, name: str, *, long: bool) -> None:
        made = [PLACE.pack(0, 3 + n, 600 + 100 * n, 7, 100, 5) for n in range(4)]
        numbers = [range(4), range(4, 12), range(12, 20), range(20, 28), range(28, 32)]
        fields = [range(r.start + 40 * n, r.stop + 40 * n) for n in range(3) for r in numbers]
        drive = QueueDrive(name, tmp_path, FastLog(low=100))

        def run(data: bytes) -> None:
            batch = UnitBatch()
            for queue_id, offset, phy, code, size, stamp in PLACE.iter_unpack(
                data[: len(data) // PLACE.size * PLACE.size]
            ):
                batch.add(
                    ("T", queue_id % 3), offset, phy % (1 << 40), size & 0x7FFFFFFF, code, stamp
                )
                batch.end_phy_offset = max(
                    batch.end_phy_offset, phy % (1 << 40) + size & 0x7FFFFFFF
                )
            for act in (
                lambda: drive.store.put_batch(batch),
                lambda: ask(drive.store, "T"),
                lambda: list(drive.store.check_files()),
                lambda: drive.store.truncate_dirty(900),
                lambda: drive.store.delete_topics(["T"]),
            ):
                with suppress(StoreError):
                    act()

        fuzz(f"unit {name}", [b"".join(made)], run, 250, long=long, fields=fields)
        drive.reopen()
        drive.store.close()
