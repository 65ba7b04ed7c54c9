"""A comparison finds every kind of damage, with exact counts, whichever side is the reference.

The damage is done past our own code, to RocksDB's keys and values.
"""

import struct
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from store.errors import RefusedStoreError
from store.queue import verify as verifying
from store.queue.units import QueueKey
from store.queue.verify import Difference, Kind
from store.record.message import Message
from store.service.message_store import MessageStore
from tests.kit.double_write import Told, open_store

EACH = 30
"""Units of each of the five queues."""
VALUE = struct.Struct(">qiqq")
FIELDS = ("phy_offset", "size", "tags_code", "store_timestamp")


class Database:
    """RocksDB's entries, raw."""

    def __init__(self, root: Path) -> None:
        families = {name: Options(raw_mode=True) for name in ("default", "offset")}
        folder = str(root / "consumequeue")
        self._units = Rdict(folder, families["default"], column_families=families)
        self._ends = self._units.get_column_family("offset")

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        self._units.close()

    def lose(self, queue_id: int, *offsets: int, topic: bytes = b"t") -> None:
        for offset in offsets:
            self._units.delete(unit_key(queue_id, offset, topic))

    def change(self, queue_id: int, offset: int, field: str, by: int) -> None:
        values = list(VALUE.unpack(self._value(queue_id, offset)))
        values[FIELDS.index(field)] += by
        self._units[unit_key(queue_id, offset)] = VALUE.pack(*values)

    def set_end(self, queue_id: int, end: int, unit: int, topic: bytes = b"t") -> None:
        """Let the queue's last unit be ``end - 1``, with the record of unit ``unit`` of queue 0."""
        phy_offset = VALUE.unpack(self._value(0, unit))[0]
        prefix = struct.pack(">IB", len(topic), 1) + topic
        key = prefix + b"\1" + b"max" + b"\1" + struct.pack(">i", queue_id)
        self._ends[key] = struct.pack(">qq", phy_offset, end - 1)

    def add(self, queue_id: int, offset: int, like: int, topic: bytes = b"t") -> None:
        """Add a unit with the value of another one of queue 0."""
        self._units[unit_key(queue_id, offset, topic)] = self._value(0, like)

    def _value(self, queue_id: int, offset: int) -> bytes:
        value = self._units[unit_key(queue_id, offset)]
        assert isinstance(value, bytes)
        return value


def unit_key(queue_id: int, offset: int, topic: bytes = b"t") -> bytes:
    head = struct.pack(">IB", len(topic), 1) + topic + b"\1"
    return head + struct.pack(">i", queue_id) + b"\1" + struct.pack(">q", offset)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        Told().put(store, 5 * EACH)
    return tmp_path / "store"


def counts(root: Path, read: str) -> dict[tuple[Kind, str, str], int]:
    with MessageStore.open(root, read_only=True, backend=read) as store:
        report = store.verify()
        assert report.reference == read
        assert report.clean is not bool(report.counts)
        return dict(report.counts)


@pytest.mark.parametrize("block", [7, 8192])
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_differs_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, field: str, block: int
) -> None:
    monkeypatch.setattr(verifying, "_BLOCK", block)
    with Database(root) as database:
        for offset in (7, 8, 20):
            database.change(1, offset, field, 1)
    with MessageStore.open(root, read_only=True) as store:
        report = store.verify()
        first, *_, last = report.examples
        right = store.queues.read_units("t", 1, 7, 1)
    assert dict(report.counts) == {(Kind.DIFFERENT, "", field): 3}
    assert (report.units, report.queues) == (5 * EACH, 5)
    if block > 7:
        assert (first.offsets, last.offsets) == (range(7, 9), range(20, 21))
    other = "log" if field == "store_timestamp" else "file"
    assert first.values is not None
    assert set(first.values) == {"rocksdb", other}
    assert first.values["rocksdb"] - first.values[other] == 1
    if other == "file":
        assert first.values["file"] == next(right.rows())[FIELDS.index(field)]


def test_every_class_of_missing_and_extra_units_is_told(root: Path) -> None:
    with Database(root) as database:
        database.lose(0, 11, 12, 13, 20)
        database.lose(1, 28, 29)
        database.set_end(1, 28, 28)
        database.add(2, EACH, like=29)
        database.set_end(2, EACH + 1, 29)
        for offset in range(4):
            database.add(0, offset, like=offset, topic=b"extra")
        database.set_end(0, 4, 3, topic=b"extra")
    assert counts(root, "file") == {
        (Kind.HOLE, "rocksdb", ""): 4,
        (Kind.MISSING_TAIL, "rocksdb", ""): 2,
        (Kind.EXTRA, "file", ""): 5,
    }
    assert counts(root, "rocksdb") == {
        (Kind.HOLE, "rocksdb", ""): 4,
        (Kind.EXTRA, "rocksdb", ""): 2,
        (Kind.MISSING_TAIL, "file", ""): 5,
    }


@pytest.mark.parametrize("read", ["file", "rocksdb"])
def test_what_a_combined_start_of_rocketmq_leaves_out_is_told(root: Path, read: str) -> None:
    """Only the newest units are there; ends and checkpoint say that nothing is missing."""
    with Database(root) as database:
        for queue_id in range(4):
            database.lose(queue_id, *range(25))
        database.lose(4, *range(EACH))
    found = counts(root, read)
    assert sum(found.values()) == 4 * 25 + EACH
    assert {lacking for _, lacking, _ in found} == {"rocksdb"}
    with MessageStore.open(root, read_only=True) as store:
        damage = [finding for finding in store.check() if finding.damage]
    assert {finding.queue for finding in damage} >= {QueueKey("t", queue) for queue in range(4)}


@pytest.mark.parametrize("emptied", [0, 1])
def test_queues_without_a_unit_on_one_side_count_once(root: Path, emptied: int) -> None:
    with open_store(root) as store:
        store.queues.parts()[emptied].truncate_dirty(0)
        report = store.verify()
        lacking = store.queues.parts()[emptied].name
        kind = [Kind.EXTRA, Kind.MISSING_TAIL][emptied]
        assert report.counts[kind, lacking, ""] == 5 * EACH
        assert report.queues == 5


def test_one_queue_or_topic_can_be_asked_for(root: Path) -> None:
    with Database(root) as database:
        database.lose(2, 5)
    with open_store(root) as store:
        assert not store.verify("t", 2).clean
        assert store.verify("t", 1).clean
        assert store.verify("t", 1).units == EACH
        assert store.verify("t").queues == 5
        assert store.verify("u").queues == 0


def test_puts_go_on_beside_a_comparison(root: Path) -> None:
    with open_store(root) as store:

        def put(_: int) -> None:
            assert store.put_message(Message("t", b"x" * 40, 3)).ok

        assert store.verify(progress=put).clean
        assert store.max_offset("t", 3) == EACH + 5


def test_a_store_with_one_backend_has_nothing_to_compare(tmp_path: Path) -> None:
    with (
        MessageStore.open(tmp_path / "store", backend="file") as store,
        pytest.raises(RefusedStoreError, match="only the file queues"),
    ):
        store.verify()


def test_a_difference_is_told_in_a_sentence() -> None:
    queue = QueueKey("t", 0)
    missing = Difference(Kind.HOLE, queue, range(3, 5), "file")
    assert missing.sentence() == "units 3 to 4 are missing in the file queues (hole)"
    sides = {"file": 1, "log": 2}
    odd = Difference(Kind.DIFFERENT, queue, range(3, 4), "", "size", sides)
    assert odd.sentence() == "size is not the same in units 3 to 3: file 1, log 2"
    ends = Difference(Kind.DIFFERENT, queue, range(0), "", "next_offset", sides)
    assert ends.sentence() == "next_offset is not the same: file 1, log 2"
