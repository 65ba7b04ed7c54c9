"""A comparison finds every kind of damage, with exact counts, whichever side is the reference.

The damage is done past our own code, to RocksDB's keys and values.
"""

import struct
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from cqstore.store.comparing import blocks, comparison
from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.listed_queues import Range
from cqstore.store.comparing.ranges import RANGE_QUEUES, cut_ranges
from cqstore.store.comparing.tally import ComparisonFinding, DifferenceKind
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline import both_backends
from cqstore.store.service.offline.both_backends import compare_backends
from cqstore.store.service.opening.components import components_of
from tests.kit.double_write import StoredOffsets, open_store

EACH = 30
BOTH = ("file", "rocksdb")
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
        StoredOffsets().put(store, 5 * EACH)
    return tmp_path / "store"


Counts = dict[DifferenceKind, int]


def counts(root: Path, read: str) -> tuple[Counts, dict[str, int]]:
    """Return what an open store says, as one at rest does: of each kind, and what each side lacks.

    What a queue that is not there at all has had does not matter to either.
    """
    with MessageStore.open(root, read_only=True, backend=read) as store:
        found = [store.verify(), compare_backends(store)]
        for each in found:
            assert (each.reference, each.is_clean) == (read, not each.tally.counts)
        reported = [
            (each.tally, [*map(each.missing_units, BOTH)], list(each.differences()), each.timeless)
            for each in found
        ]
        assert reported[0] == reported[1]
        lacks = {name: found[0].missing_units(name) for name in BOTH}
    return found[0].tally.counts, lacks


@pytest.mark.slow
def test_many_ranges_are_compared_by_processes_as_one_is_by_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, topics = tmp_path / "store", ["a", "b", "c", "t", "u"]
    with open_store(root) as store:
        for topic in topics:
            StoredOffsets().put(store, 5 * EACH, topic)
    with Database(root) as database:
        database.lose(1, 4, 5, topic=b"b")
        database.change(2, 7, "size", 1)
        database.lose(3, 0, topic=b"u")
    ranges: list[object] = []

    def cut_small(*sides: QueuePlace, max_queues: int) -> list[Range]:
        assert max_queues == RANGE_QUEUES
        ranges.extend(found := cut_ranges(*sides, max_queues=1))
        return found

    with MessageStore.open(root, read_only=True) as store:
        one = compare_backends(store)
        monkeypatch.setattr(both_backends, "cut_ranges", cut_small)
        many = compare_backends(store)
    assert len(ranges) == len(topics)
    assert one.tally.counts == {
        DifferenceKind.HOLE: 2,
        DifferenceKind.DIFFERENT: 1,
        DifferenceKind.MISSING_HEAD: 1,
    }
    assert many.tally == one.tally
    assert [*map(many.missing_units, BOTH)] == [*map(one.missing_units, BOTH)]
    assert (many.queues, many.units) == (len(topics) * 5, len(topics) * 5 * EACH)


@pytest.mark.parametrize("block", [7, 8192])
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_differs_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, field: str, block: int
) -> None:
    monkeypatch.setattr(comparison, "RUN_UNITS", block)
    monkeypatch.setattr(blocks, "BLOCK_UNITS", block)
    with Database(root) as database:
        for offset in (7, 8, 20):
            database.change(1, offset, field, 1)
    counts(root, "file")
    with MessageStore.open(root, read_only=True) as store:
        found = store.verify()
        (_, first), (_, last) = found.differences()
        right = components_of(store).queues.queue("t", 1).read_units(7, 1)
    assert (found.tally.counts, found.tally.fields) == ({DifferenceKind.DIFFERENT: 3}, {field: 3})
    assert (found.units, found.queues) == (5 * EACH, 5)
    assert [(each.first, each.last) for each in (first, last)] == [(7, 8), (20, 20)]
    assert {found.incomplete_backend(each) for each in (first, last)} == {""}
    other = "log" if field == "store_timestamp" else "file"
    values = found.values(first)
    assert set(values) == {"rocksdb", other}
    assert int(values["rocksdb"]) - int(values[other]) == 1
    if other == "file":
        assert values["file"] == next(right.rows())[FIELDS.index(field)]


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
    lacks = {"file": 5, "rocksdb": 6}
    kinds = {
        DifferenceKind.HOLE: 4,
        DifferenceKind.NEXT_OFFSET: 2,
        DifferenceKind.MISSING_TAIL: 2,
        DifferenceKind.EXTRA: 1,
    }
    assert counts(root, "file") == (kinds | {DifferenceKind.ONLY_TARGET: 1}, lacks)
    kinds = {
        DifferenceKind.EXTRA: 6,
        DifferenceKind.NEXT_OFFSET: 2,
        DifferenceKind.MISSING_TAIL: 1,
        DifferenceKind.ONLY_SOURCE: 1,
    }
    assert counts(root, "rocksdb") == (kinds, lacks)


@pytest.mark.parametrize("read", ["file", "rocksdb"])
def test_what_a_combined_start_of_rocketmq_leaves_out_is_told(root: Path, read: str) -> None:
    """Only the newest units are there; ends and checkpoint say that nothing is missing."""
    with Database(root) as database:
        for queue_id in range(4):
            database.lose(queue_id, *range(25))
        database.lose(4, *range(EACH))
    assert counts(root, read)[1] == {"file": 0, "rocksdb": 4 * 25 + EACH}
    with MessageStore.open(root, read_only=True) as store:
        damage = [finding for finding in store.check() if finding.damage]
    assert {finding.queue for finding in damage} >= {QueueKey("t", queue) for queue in range(4)}


@pytest.mark.parametrize("emptied", [0, 1])
def test_queues_without_a_unit_on_one_side_count_once(root: Path, emptied: int) -> None:
    with open_store(root) as store:
        components_of(store).queues.backends()[emptied].truncate_dirty(0)
        found = store.verify()
        lacking = components_of(store).queues.backends()[emptied].name
        kind = [DifferenceKind.ONLY_TARGET, DifferenceKind.ONLY_SOURCE][emptied]
        assert found.tally.counts == {kind: 5}
        assert (found.missing_units(lacking), found.queues) == (5 * EACH, 5)
        (_, first), *_ = found.differences()
        assert found.incomplete_backend(first) == lacking
        sentence = found.sentence(first)
        assert sentence.startswith(f"the queue is missing in the {lacking} queues: ")


def test_one_queue_or_topic_can_be_asked_for(root: Path) -> None:
    with Database(root) as database:
        database.lose(2, 5)
    with open_store(root) as store:
        assert not store.verify("t", 2).is_clean
        assert store.verify("t", 1).is_clean
        assert store.verify("t", 1).units == EACH
        assert store.verify("t").queues == 5
        assert store.verify("u").queues == 0


def test_puts_go_on_beside_a_comparison(root: Path) -> None:
    with open_store(root) as store:

        def put(_: int) -> None:
            assert store.put_message(Message("t", b"x" * 40, 3)).ok

        assert store.verify(progress=put).is_clean
        assert store.max_offset("t", 3) == EACH + 5


def test_a_store_with_one_backend_has_nothing_to_compare(tmp_path: Path) -> None:
    with (
        MessageStore.open(tmp_path / "store", backend="file") as store,
        pytest.raises(
            RefusedStoreError, match="nothing to compare: the store keeps only the file queues"
        ),
    ):
        store.verify()


def test_a_difference_is_told_in_a_sentence() -> None:
    both = Compared("rocksdb", "file", ComparisonFindings(), frozenset({"file"}))

    def said(kind: DifferenceKind, field: str | None = None, **given: int | None) -> str:
        sides: dict[str, int | None] = {"first": 3, "last": 4, "source": 1, "target": 2}
        return both.sentence(ComparisonFinding(kind=kind, units=1, field=field, **sides | given))

    hole = "units 3 to 4 are missing in the file queues (hole)"
    assert said(DifferenceKind.HOLE, source=None) == hole
    extra = "units 3 to 4 are missing in the rocksdb queues (extra)"
    assert said(DifferenceKind.EXTRA, source=None) == extra
    odd = "size differs in units 3 to 4: rocksdb 1, file 2"
    assert said(DifferenceKind.DIFFERENT, "size") == odd
    odd = "store_timestamp differs in units 3 to 3: rocksdb 1, log 2"
    assert said(DifferenceKind.DIFFERENT, "store_timestamp", last=3) == odd
    ends = said(DifferenceKind.NEXT_OFFSET, first=None, last=None)
    assert ends == "next_offset differs: rocksdb 1, file 2"
