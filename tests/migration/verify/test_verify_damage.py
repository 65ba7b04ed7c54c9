"""Damage put into what a migration made: each kind is one finding, with exact counts.

Queue 1 of topic ``p`` has the 95 units 0 to 94, as RocketMQ wrote them; see the golden dump.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cqstore.cq_file.layout import FILE_UNIT, FileUnit
from cqstore.migration.verify import verified
from cqstore.store.comparing.tally import ComparisonFinding, DifferenceKind
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.record.record_layout import HEAD, HOST_V4_SIZE
from tests.kit.golden import load_dump
from tests.migration.made import UNIT, Made, migrate

if TYPE_CHECKING:
    from cqstore.migration.verify.verify_report import VerifyReport

QUEUE = QueueKey("p", 1)
NEW = QueueKey("q", 0)
UNITS = 95
OTHERS = 2000 - UNITS
FIELD_BYTES = {"phy_offset": 7, "size": 11, "tags_code": 19, "store_timestamp": 27}
"""The last byte of each field in a packed unit."""
Golden = Callable[[str], Path]


@pytest.fixture
def rocksdb(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> Made:
    return migrate(golden("basic-default"), "rocksdb", monkeypatch)


@pytest.fixture
def files(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> Made:
    return migrate(golden("basic-defaultRocksDB"), "file", monkeypatch)


def rows(name: str, queue: QueueKey) -> list[list[int]]:
    """Return the units of a queue as RocketMQ printed them."""
    held = load_dump(name)["queues"]
    found = next(each for each in held if (each["topic"], each["queueId"]) == queue)
    units: list[list[int]] = found["units"]
    return units


def flipped(unit: bytes, at: int) -> bytes:
    return unit[:at] + bytes([unit[at] ^ 1]) + unit[at + 1 :]


def check(
    made: Made, counts: dict[DifferenceKind, int], fields: dict[str, int] | None = None
) -> list[ComparisonFinding]:
    """Compare; return the findings of the one queue that differs, after checking all counts."""
    report = made.verify()
    result = report.result
    assert report.verdict == "different"
    assert (result.counts, result.fields) == (counts, fields or {})
    assert (result.differing, len(result.listed)) == (1, 1)
    assert result.listed[0].counts == counts
    assert "differences" in str(verified(made.space, made.plan))
    return result.listed[0].findings


def one(
    kind: DifferenceKind, first: int | None = None, last: int | None = None, **rest: object
) -> ComparisonFinding:
    fields = {"units": 0 if first is None else (last or first) - first + 1, "first": first}
    return ComparisonFinding.model_validate({**fields, "kind": kind, "last": last or first, **rest})


# ---- nothing wrong


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("basic-default", "rocksdb"),
        ("basic-defaultRocksDB", "file"),
        ("ext-default", "rocksdb"),
        ("special-defaultRocksDB", "file"),
    ],
)
def test_what_was_migrated_is_equal_with_the_sums_that_rocketmq_printed(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    dump = load_dump(name)
    live = dump["commitLog"].get("min", 0)
    made = migrate(golden(name), target, monkeypatch)
    report = made.verify(deep=True, range_units=300, range_queues=500)
    units = [unit for queue in dump["queues"] for unit in queue["units"] if unit[1] >= live]
    for side in (report.result.source, report.result.target):
        assert (side.units, side.bytes) == (len(units), sum(unit[2] for unit in units))
    assert (report.verdict, report.result.counts) == ("equal", {})
    assert report.result.queues == len([q for q in dump["queues"] if q["max"]])
    assert report.tasks > 1
    assert verified(made.space, made.plan) is None


# ---- RocksDB queues, made of files


@pytest.mark.parametrize("field", FIELD_BYTES)
def test_one_byte_of_a_field_in_rocksdb(rocksdb: Made, field: str) -> None:
    damaged = flipped(rocksdb.unit(QUEUE, 5), FIELD_BYTES[field])
    rocksdb.put_unit(QUEUE, 5, damaged)
    source = dict(zip(FIELD_BYTES, rows("basic-default", QUEUE)[5][1:], strict=False))
    (found,) = check(rocksdb, {DifferenceKind.DIFFERENT: 1}, {field: 1})
    target = QUEUE_UNIT.unpack_from(damaged)._asdict()[field]
    expected = source.get(field, target ^ 1)
    assert found == one(DifferenceKind.DIFFERENT, 5, field=field, source=expected, target=target)


@pytest.mark.parametrize(
    ("gone", "kind"),
    [
        (range(7, 8), DifferenceKind.HOLE),
        (range(10), DifferenceKind.MISSING_HEAD),
        (range(92, 95), DifferenceKind.MISSING_TAIL),
        (range(95), DifferenceKind.MISSING_HEAD),
    ],
)
def test_missing_units_in_rocksdb(rocksdb: Made, gone: range, kind: DifferenceKind) -> None:
    rocksdb.delete_units(QUEUE, gone)
    assert check(rocksdb, {kind: len(gone)}) == [one(kind, gone[0], gone[-1])]


def test_several_holes_are_several_findings(rocksdb: Made) -> None:
    for gone in (range(3), range(7, 9), range(20, 21), range(94, 95)):
        rocksdb.delete_units(QUEUE, gone)
    counts = {
        DifferenceKind.MISSING_HEAD: 3,
        DifferenceKind.HOLE: 3,
        DifferenceKind.MISSING_TAIL: 1,
    }
    assert check(rocksdb, counts) == [
        one(DifferenceKind.MISSING_HEAD, 0, 2), one(DifferenceKind.HOLE, 7, 8),
        one(DifferenceKind.HOLE, 20), one(DifferenceKind.MISSING_TAIL, 94),
    ]  # fmt: skip


def test_one_extra_unit_in_rocksdb(rocksdb: Made) -> None:
    unit = rocksdb.unit(QUEUE, UNITS - 1)
    rocksdb.put_unit(QUEUE, UNITS, unit)
    phy_offset = QUEUE_UNIT.unpack_from(unit).phy_offset
    expected = one(DifferenceKind.EXTRA, UNITS, field="phy_offset", target=phy_offset)
    assert check(rocksdb, {DifferenceKind.EXTRA: 1}) == [expected]


def test_one_extra_topic_in_rocksdb(rocksdb: Made) -> None:
    unit = rocksdb.unit(QUEUE, 0)
    rocksdb.put_unit(NEW, 0, unit)
    rocksdb.put_end(NEW, QUEUE_UNIT.unpack_from(unit).phy_offset, 1)
    (found,) = check(rocksdb, {DifferenceKind.ONLY_TARGET: 1})
    assert found == one(DifferenceKind.ONLY_TARGET, target="1 units, next offset 1")
    result = rocksdb.verify().result
    assert (result.topics_only_target, result.units_only_target) == (1, 1)
    assert (result.topics_only_source, result.units_only_source) == (0, 0)


def test_units_of_a_queue_that_no_entry_names(rocksdb: Made) -> None:
    rocksdb.put_unit(NEW, 3, rocksdb.unit(QUEUE, 0))
    (found,) = check(rocksdb, {DifferenceKind.ONLY_TARGET: 1})
    assert found.target == "1 units, next offset 0"


def test_a_queue_that_is_missing_in_rocksdb(rocksdb: Made) -> None:
    rocksdb.delete_units(QUEUE, range(UNITS))
    rocksdb.delete_end(QUEUE)
    assert check(rocksdb, {DifferenceKind.ONLY_SOURCE: 1})[0].source == "95 units, next offset 95"
    result = rocksdb.verify().result
    assert (result.topics_only_source, result.units_only_source) == (0, UNITS)


@pytest.mark.parametrize("next_offset", [UNITS - 1, UNITS + 1])
def test_a_wrong_next_offset_in_rocksdb(rocksdb: Made, next_offset: int) -> None:
    rocksdb.put_end(QUEUE, 0, next_offset)
    expected = one(DifferenceKind.NEXT_OFFSET, source=UNITS, target=next_offset)
    assert check(rocksdb, {DifferenceKind.NEXT_OFFSET: 1}) == [expected]


# ---- files, made of RocksDB queues


@pytest.mark.parametrize("field", ["phy_offset", "size", "tags_code"])
def test_one_byte_of_a_field_in_a_file(files: Made, field: str) -> None:
    at = FIELD_BYTES[field]
    damaged = flipped(files.file_unit(QUEUE, 5), at)
    files.write_file(QUEUE, 5, damaged)
    (found,) = check(files, {DifferenceKind.DIFFERENT: 1}, {field: 1})
    right = dict(zip(FIELD_BYTES, rows("basic-defaultRocksDB", QUEUE)[5][1:], strict=True))[field]
    assert found == one(DifferenceKind.DIFFERENT, 5, field=field, source=right, target=right ^ 1)


def test_a_store_time_that_the_log_does_not_confirm(files: Made) -> None:
    _, phy_offset, _, _, timestamp = rows("basic-defaultRocksDB", QUEUE)[5]
    log, start = files.log_place(phy_offset)
    with log.open("r+b") as file:
        file.seek(start + HEAD.size + HOST_V4_SIZE)
        file.write((timestamp + 4).to_bytes(8, "big"))
    (found,) = check(files, {DifferenceKind.DIFFERENT: 1}, {"store_timestamp": 1})
    assert (found.source, found.target) == (timestamp, timestamp + 4)


@pytest.mark.parametrize(
    ("gone", "kind"), [(range(7, 8), DifferenceKind.HOLE), (range(10), DifferenceKind.MISSING_HEAD)]
)
def test_missing_units_in_a_file(files: Made, gone: range, kind: DifferenceKind) -> None:
    files.write_file(QUEUE, gone[0], bytes(UNIT * len(gone)))
    assert check(files, {kind: len(gone)}) == [one(kind, gone[0], gone[-1])]


def test_a_file_that_ends_too_early(files: Made) -> None:
    files.write_file(QUEUE, 92, bytes(UNIT * 3))
    assert check(files, {DifferenceKind.MISSING_TAIL: 3, DifferenceKind.NEXT_OFFSET: 1}) == [
        one(DifferenceKind.NEXT_OFFSET, source=95, target=92),
        one(DifferenceKind.MISSING_TAIL, 92, 94),
    ]  # fmt: skip


def test_one_extra_unit_in_a_file(files: Made) -> None:
    every = [row for queue in load_dump("basic-defaultRocksDB")["queues"] for row in queue["units"]]
    _, last, size, tags_code, _ = max(every, key=lambda row: row[1])
    files.write_file(QUEUE, UNITS, FILE_UNIT.pack(FileUnit(last, size, tags_code)))
    assert check(files, {DifferenceKind.EXTRA: 1, DifferenceKind.NEXT_OFFSET: 1}) == [
        one(DifferenceKind.NEXT_OFFSET, source=95, target=96),
        one(DifferenceKind.EXTRA, UNITS, field="phy_offset", target=last),
    ]  # fmt: skip


@pytest.mark.parametrize("of", [QUEUE, QueueKey("p", 0)])
def test_rows_behind_the_end_that_rocketmq_would_take_for_units(files: Made, of: QueueKey) -> None:
    """A repeated or a foreign unit; no reader of ours sees it, RocketMQ's next start does."""
    stale = [files.file_unit(of, at) for at in (90, 50)]
    files.write_file(QUEUE, UNITS, b"".join(stale) + bytes(UNIT) + stale[0])
    (found,) = check(files, {DifferenceKind.BEHIND_END: 2})
    phy_offset = FILE_UNIT.unpack_from(stale[0]).phy_offset
    if of == QUEUE:
        assert found == one(
            DifferenceKind.BEHIND_END, 95, 96, field="phy_offset", target=phy_offset
        )


def test_rows_behind_the_end_of_the_source_are_told(rocksdb: Made) -> None:
    assert rocksdb.verify().result.notes.behind_end == 0
    path = rocksdb.root / "consumequeue" / QUEUE.topic / str(QUEUE.queue_id) / ("0" * 20)
    with path.open("r+b") as file:
        unit = file.read(UNIT)
        file.seek(UNITS * UNIT)
        file.write(unit)
    report = rocksdb.verify()
    assert report.verdict == "equal"
    assert report.result.notes.behind_end == 1


def test_one_extra_topic_in_files(files: Made) -> None:
    file = files.queue_file(NEW)
    file.parent.mkdir(parents=True)
    size = files.queue_file(QUEUE).stat().st_size
    file.write_bytes(files.file_unit(QUEUE, 0).ljust(size, b"\0"))
    (found,) = check(files, {DifferenceKind.ONLY_TARGET: 1})
    assert found.target == "1 units, next offset 1"


# ---- both sides agree, the log does not


@pytest.mark.parametrize(
    ("at", "deep", "kind"),
    [
        (HEAD.offset("magic_code"), False, DifferenceKind.NO_RECORD),
        (HEAD.offset("phy_offset") + 7, False, DifferenceKind.NO_RECORD),
        (HEAD.offset("queue_id") + 3, False, DifferenceKind.OTHER_QUEUE),
        (HEAD.offset("body_crc"), True, DifferenceKind.NO_RECORD),
        (-2, True, DifferenceKind.OTHER_TAGS),
    ],
)
def test_a_record_that_is_not_the_units(
    rocksdb: Made, at: int, *, deep: bool, kind: DifferenceKind
) -> None:
    unit = next(row for row in rows("basic-default", QUEUE) if row[3])
    offset, phy_offset, size = unit[:3]
    log, start = rocksdb.log_place(phy_offset)
    data = bytearray(log.read_bytes())
    if kind is DifferenceKind.OTHER_TAGS:
        at = bytes(data[start : start + size]).index(b"TAGS\x01") + 5
    data[start + at] ^= 1
    log.write_bytes(data)
    assert rocksdb.verify(deep=False).equal is deep
    report: VerifyReport = rocksdb.verify(deep=deep)
    assert report.result.counts == {kind: 1}
    assert report.result.listed[0].findings[0].first == offset
