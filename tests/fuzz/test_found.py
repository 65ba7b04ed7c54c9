"""What fuzzing has found, each input as small as it gets."""

import io
import json
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cqstore.cq_file.known_ends import ends_path, read_ends
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, queue_prefix
from cqstore.store.errors import CorruptionError, IllegalMessageError, RefusedStoreError
from cqstore.store.index.index_service import IndexService
from cqstore.store.index.layout import INDEX_HEADER
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal import _crc32c
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import MAX_UNITS, UnitBatch
from cqstore.store.record import compression
from cqstore.store.record.compression import compress, decompress
from cqstore.store.record.message import CompressionType, Message, MessageProperty
from cqstore.store.record.properties import dispatch_properties_of
from cqstore.store.record.record_layout import QUEUE_OFFSET_POSITION
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.service.dispatching.record_units import light_queues
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.settings.config import StoreConfig
from tests.fuzz.test_queue_files import known
from tests.kit.file_queues import BATCH, PRE_BLANK, Disk, NoLog, put, rows
from tests.kit.index_records import index_record
from tests.kit.model import FastLog
from tests.kit.mutations import in_time
from tests.kit.queue_drive import QueueDrive
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of

LONG_MAX = (1 << 63) - 1


# ---- records


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_small_body_takes_little_memory(kind: CompressionType) -> None:
    """Each LZ4 body took 256 MB for a moment."""
    packed, flag = compress(b"x1" * 500, kind)
    tracemalloc.start()
    try:
        assert decompress(packed, flag) == b"x1" * 500
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_bomb_stops(kind: CompressionType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zstandard's did not."""
    monkeypatch.setattr(compression, "_MAX_BODY", 4 << 20)
    packed, flag = compress(bytes(64 << 20), kind, 1)
    with pytest.raises(CorruptionError):
        decompress(packed, flag)


@pytest.mark.parametrize(
    "offset", [str(MAX_UNITS), str(LONG_MAX), str(1 << 63), "9" * 5000, "-1", "1_0", "\u0661"]
)
def test_a_light_queue_offset_that_no_queue_has_is_passed_over(offset: str) -> None:
    """The queues refuse one beyond their last: the store could not be opened."""
    properties = dispatch_properties_of({
        MessageProperty.INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b",
        MessageProperty.INNER_MULTI_QUEUE_OFFSET: f"{offset},{MAX_UNITS - 1}",
    })  # fmt: skip
    assert light_queues("T", properties) == [("%LMQ%b", MAX_UNITS - 1)]


def test_a_deliver_time_behind_all_time_wraps_as_javas_does() -> None:
    assert DelayLevels("1s").tags_code("1", LONG_MAX, 7) == 999 - (1 << 63)


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("offset", [-1, -(1 << 63), MAX_UNITS, LONG_MAX])
def test_an_impossible_queue_offset_is_refused(tmp_path: Path, name: str, offset: int) -> None:
    """Queue files with names that are not read, or numbers too large for the next put."""
    drive = QueueDrive(name, tmp_path, FastLog([1] * 9))
    batch = UnitBatch()
    batch.add(("T", 0), offset, 100, 100, 7, 5)
    with pytest.raises(CorruptionError, match="invalid queue offset") as caught:
        drive.store.put_batch(batch)
    assert caught.value.phy_offset == 100
    assert drive.offsets("T") == (0, 0)
    drive.put("T", 0, MAX_UNITS - 1)
    drive.reopen()
    assert drive.offsets("T") == (MAX_UNITS - 1, MAX_UNITS)
    drive.store.close()


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("offset", [-1, MAX_UNITS])
def test_a_record_with_an_impossible_queue_offset_is_damage_that_can_be_cut(
    tmp_path: Path, name: str, offset: int
) -> None:
    """No checksum covers it: such a store could be neither opened nor cut."""
    small = StoreConfig(mapped_file_size_commit_log=65536)
    with MessageStore.open(tmp_path, small, backend=name) as store:
        phys = [store.put_message(Message("T", b"x")).phy_offset for _ in range(5)]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(phys[2] + QUEUE_OFFSET_POSITION)
        file.write(offset.to_bytes(8, "big", signed=True))
    shutil.rmtree(tmp_path / "consumequeue")
    with pytest.raises(RefusedStoreError, match=r"invalid queue offset.*--cut-at"):
        MessageStore.open(tmp_path, backend=name)
    with MessageStore.open(
        tmp_path, backend=name, recovery=RecoveryOptions(cut_at=phys[2])
    ) as store:
        assert store.max_offset("T", 0) == 2
        assert store.put_message(Message("T", b"x")).queue_offset == 2


# ---- queue files


def test_a_batch_unit_that_ends_behind_all_offsets_is_none(tmp_path: Path) -> None:
    size = 10 * BATCH.size
    disk = Disk(tmp_path, settings={"mapper_file_size_batch_consume_queue": size})
    path = disk.folder(kind="batchconsumequeue") / f"{0:020d}"
    path.parent.mkdir(parents=True)
    units = BATCH.pack(0, 50, 7, 10, 0, 4, -1, 0) + BATCH.pack(50, 50, 7, 20, LONG_MAX, 4, -1, 0)
    path.write_bytes(units.ljust(size, b"\0"))
    store = disk.open(read_only=True)
    assert store.queue("T", 0).max_offset() == 4
    store.close()


def test_batch_units_out_of_order_lead_nowhere_behind_the_queue(tmp_path: Path) -> None:
    size = 10 * BATCH.size
    disk = Disk(tmp_path, settings={"mapper_file_size_batch_consume_queue": size})
    path = disk.folder(kind="batchconsumequeue") / f"{0:020d}"
    path.parent.mkdir(parents=True)
    bases = [0, 4, 9_000, 12]
    units = [BATCH.pack(50 * n, 50, 7, 10 * n, at, 4, -1, 0) for n, at in enumerate(bases)]
    path.write_bytes(b"".join(units).ljust(size, b"\0"))
    store = disk.open(read_only=True)
    assert store.queue("T", 0).max_offset() == 16
    assert store.queue("T", 0).offset_by_time(20, BoundaryType.LOWER) == 16
    store.close()


def test_a_queue_file_that_went_after_the_stop_is_found_by_the_check(tmp_path: Path) -> None:
    """The ends as they were written down were believed, and a bare FileNotFoundError came out."""
    disk = Disk(tmp_path, NoLog(0, 5_000))
    known_store(disk)
    disk.file(200).unlink()
    store = disk.open()
    (found,) = [f for f in store.check_files() if "missing" in f.problem]
    assert (found.queue, found.path) == (("T", 0), str(disk.folder()))
    assert store.queue("T", 0).read_units(10, 100).hole == range(10, 15)
    assert store.truncate_dirty(700) == 1
    assert store.queue("T", 0).max_offset() == 15  # never given twice
    store.close()


def known_store(disk: Disk) -> None:
    disk.root.joinpath("lock").write_bytes(b"lock")
    store = disk.open()
    put(store, 0, rows(0, 15))
    store.close()


def test_files_far_apart_are_walked_from_one_to_the_next(tmp_path: Path) -> None:
    """A file a row of which was named 2**60 made a read, and a check, step there file by file."""
    disk = Disk(tmp_path)
    far = (1 << 60) - (1 << 60) % 200
    disk.write(0, rows(0, 10))
    disk.write(far, [PRE_BLANK, *rows(30, 5)])
    store = disk.open(read_only=True)
    store._table.simple["T"][0].restore(0, far // 20 + 6, 34 * 50, 35 * 50)
    with in_time(20):
        block = store.queue("T", 0).read_units(10, 5)
        assert block.hole == range(10, far // 20)
        assert [f for f in store.check_files() if "invalid extension address" in f.problem] == []
    store.close()


# ---- what a stop knew


def rewritten(data: bytes, **changes: object) -> bytes:
    with np.load(io.BytesIO(data)) as stored:
        columns = {**dict(stored), **changes}
    file = io.BytesIO()
    np.savez(file, **columns)
    return file.getvalue()


def encrypted(data: bytes) -> bytes:
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + bytes([data[at] | 1]) + data[at + 1 :]


def huge_header(data: bytes) -> bytes:
    """Let a column say that it has 2**40 numbers, with the CRC as it was."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        at = data.index(archive.read("files.npy"))
    header = data.index(b"(1,)", at)
    digits = b"(%d,)" % 10**12
    return data[:header] + digits + data[header + len(digits) :]


NUMBERS = [0, 0, 0, 12, 550, 600]
LIES = {
    "no such topic": {"numbers": np.array([[7, *NUMBERS[1:]]])},
    "a negative topic": {"numbers": np.array([[-1, *NUMBERS[1:]]])},
    "no queue id": {"numbers": np.array([[0, 1 << 40, *NUMBERS[2:]]])},
    "behind its files": {"numbers": np.array([[0, 0, 0, 21, 550, 600]])},
    "first behind the end": {"numbers": np.array([[0, 0, 13, 12, 550, 600]])},
    "another folder": {"names": np.frombuffer(b"../../T", np.uint8)},
    "files that do not add up": {"files": np.array([3])},
    "a negative count": {"files": np.array([-2])},
    "files out of order": {"starts": np.array([200, 0])},
    "a file between two": {"starts": np.array([0, 100])},
    "no size": {"version": np.array([1, 0])},
    "three versions": {"version": np.array([1, 200, 3])},
    "other types": {"starts": np.array([0.0, 200.0])},
}


@pytest.mark.parametrize("lie", LIES)
def test_impossible_ends_are_not_believed(tmp_path: Path, lie: str) -> None:
    data = known(tmp_path / "root", 1)
    paths = StorePaths(tmp_path / "root")
    assert read_ends(paths) is not None
    ends_path(paths).write_bytes(rewritten(data, **LIES[lie]))
    assert read_ends(paths) is None


@pytest.mark.parametrize("damage", [encrypted, huge_header, lambda data: b"\x93NUMPY" + data[6:]])
def test_damaged_ends_are_not_believed(tmp_path: Path, damage: object) -> None:
    data = known(tmp_path / "root", 1)
    paths = StorePaths(tmp_path / "root")
    assert callable(damage)
    ends_path(paths).write_bytes(damage(data))
    assert read_ends(paths) is None


# ---- RocksDB, index, journals


def test_a_max_entry_that_no_put_could_follow_is_corruption(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open()
    key = max_key(queue_prefix("T", 0))
    engine_of(store).write(EngineBatch(puts=[(key, OFFSET_ENTRY.pack(OffsetEntry(0, LONG_MAX)))]))
    with pytest.raises(CorruptionError, match="max entry"):
        store.queue("T", 0).max_offset()
    store.close()


def test_an_index_header_that_counts_too_many_slots_stays_writable(tmp_path: Path) -> None:
    """The next key of a new slot was one more than the field holds."""
    data = bytearray()
    for again in (False, True):
        index = IndexService(tmp_path, 7, 40, read_only=False)
        index.load(last_exit_ok=True, index_timestamp=0)
        index_record(index, "T", None, f"k{again}", 100 + again, 10_000)
        index.close()
        (path,) = tmp_path.iterdir()
        data = bytearray(path.read_bytes())
        at = INDEX_HEADER.offset("hash_slot_count")
        if not again:
            data[at : at + 4] = struct.pack(">i", (1 << 31) - 1)
            path.write_bytes(data)
    assert INDEX_HEADER.unpack_from(data).hash_slot_count == 7


def line(text: bytes) -> bytes:
    return b"%08x %s\n" % (_crc32c(text), text)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"queue": ["T", 0], "next": %d}' % (MAX_UNITS + 1),
        b'{"queue": ["T", 0], "next": true}',
        b'{"queue": ["T", %d], "next": 1}' % (1 << 31),
        b'{"deleted": "T", "below": %d}' % (1 << 63),
        b'{"deleted": "T", "below": -1}',
    ],
)
def test_an_impossible_line_of_a_journal_is_damage(tmp_path: Path, text: bytes) -> None:
    good = json.dumps({"queue": ["T", 1], "next": 1, "deleted": "T", "below": 1}).encode()
    path = tmp_path / "journal"
    path.write_bytes(line(good) + line(text) + line(good))
    with pytest.raises(CorruptionError):
        ExpiredQueues(path).ends() if b"queue" in text else DeletedTopics(path).load()


def test_an_expired_queue_does_not_lead_out_of_the_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", StoreConfig(mapped_file_size_commit_log=4096)) as s:
        assert s.put_message(Message("t", b"x")).ok
    (tmp_path / "store" / "abort").touch()
    own = StorePaths(tmp_path / "store").expired_queues
    own.parent.mkdir(exist_ok=True)
    own.write_bytes(line(b'{"queue": ["../../out", 0], "next": 5}'))
    with pytest.raises(IllegalMessageError, match="folder"):
        MessageStore.open(tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
