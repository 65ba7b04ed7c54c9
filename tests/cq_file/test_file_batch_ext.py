"""Batch queues and extension files, which are read, cut and deleted but never written."""

from itertools import islice
from pathlib import Path
from struct import Struct

import pytest

from cqstore.cq_file.dump import rows_of_file
from cqstore.store.errors import UnsupportedFormatError
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import CqUnit, QueueKey
from tests.kit.file_queues import BATCH, EXT_UNIT, SIZE, Disk, rows
from tests.kit.tree import tree_digest

LOWER, UPPER = BoundaryType.LOWER, BoundaryType.UPPER
FILE = 3 * BATCH.size
# (record, first message, messages, store time)
UNITS = [(1, 0, 2, 100), (2, 2, 5, 100), (4, 7, 1, 120), (6, 8, 4, 130), (7, 12, 3, 130)]


def batch_disk(tmp_path: Path) -> Disk:
    """Return a store with five batch units in two files of three."""
    disk = Disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    folder.mkdir(parents=True)
    data = b"".join(
        BATCH.pack(record * SIZE, SIZE, 9, time, base, count, -1, 0)
        for record, base, count, time in UNITS
    )
    for start in (0, FILE):
        part = data[start : start + FILE].ljust(FILE, b"\0")
        (folder / f"{start:020d}").write_bytes(part)
    return disk


def test_a_batch_queue_is_known_and_counts_messages(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    assert list(store.queues("B")) == [QueueKey("B", 0)]
    assert store.queue_type("B") is QueueType.BATCH
    assert store.queue_type("T") is QueueType.SIMPLE
    assert store.queue("B", 0).ends() == (0, 15)
    assert store.dispatch_from_phy_offset() == 8 * SIZE
    with pytest.raises(UnsupportedFormatError):
        store.queue("B", 0).read_units(0, 1)
    disk.log.min_phy = 3 * SIZE
    assert store.queue("B", 0).min_offset() == 7
    disk.log.min_phy = 8 * SIZE
    assert store.queue("B", 0).min_offset() == 15
    store.close()


def test_an_estimate_counts_the_messages_of_a_batch_queue(tmp_path: Path) -> None:
    """Units were counted: a lag of fifteen was told as five."""
    store = batch_disk(tmp_path).open()
    queue = store.queue("B", 0)
    assert queue.estimate_message_count(0, 15, lambda _: True) == 15
    assert queue.estimate_message_count(-1, 100, lambda code: code == 9) == 15
    assert queue.estimate_message_count(7, 12, lambda _: True) == 5
    assert queue.estimate_message_count(3, 9, lambda _: True) == 6
    assert queue.estimate_message_count(0, 15, lambda code: code == 8) == 0
    store.close()


@pytest.mark.parametrize("crashed", [False, True])
def test_nothing_is_cut_behind_a_file_that_is_missing(tmp_path: Path, *, crashed: bool) -> None:
    """The units behind it were taken for a torn end, and cut."""
    disk = batch_disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    last = folder / f"{2 * FILE:020d}"
    unit = BATCH.pack(8 * SIZE, SIZE, 9, 140, 15, 2, -1, 0)
    last.write_bytes(unit.ljust(FILE, b"\0"))
    (folder / f"{FILE:020d}").unlink()
    store = disk.open(crashed=crashed)
    assert store.queue("B", 0).max_offset() == 17
    assert list(store.queue("B", 0).iterate(16)) == [CqUnit(15, 8 * SIZE, SIZE, 9, 2)]
    store.close()
    assert last.read_bytes().startswith(unit)


def test_an_empty_file_behind_one_that_is_missing_is_no_end(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    (folder / f"{2 * FILE:020d}").write_bytes(bytes(FILE))
    (folder / f"{FILE:020d}").unlink()
    store = disk.open(crashed=True)
    assert store.queue("B", 0).max_offset() == 8, "behind the third unit"
    store.close()


def test_iteration_begins_with_the_unit_that_holds_the_offset(tmp_path: Path) -> None:
    store = batch_disk(tmp_path).open()
    for offset, first in ((0, 0), (1, 0), (2, 1), (6, 1), (7, 2), (11, 3), (14, 4)):
        assert list(store.queue("B", 0).iterate(offset)) == [
            CqUnit(base, record * SIZE, SIZE, 9, count) for record, base, count, _ in UNITS[first:]
        ]
    assert not list(store.queue("B", 0).iterate(15))
    assert store.queue("B", 0).unit_timestamp(9) == 130
    assert store.queue("B", 0).unit_timestamp(15) == -1
    store.close()


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(99, 0, 0), (100, 0, 2), (101, 7, 7), (120, 7, 7), (125, 7, 7), (130, 12, 12), (999, 12, 12)],
)
def test_a_search_by_time_answers_with_first_messages_of_units(
    tmp_path: Path, timestamp: int, lower: int, upper: int
) -> None:
    store = batch_disk(tmp_path).open()
    assert store.queue("B", 0).offset_by_time(timestamp, LOWER) == lower
    assert store.queue("B", 0).offset_by_time(timestamp, UPPER) == upper
    store.close()


def test_batch_units_behind_the_logs_end_are_cut_for_good(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    assert store.truncate_dirty(4 * SIZE) == 1
    assert store.queue("B", 0).max_offset() == 7
    store.close()
    files = sorted(disk.folder("B", 0, "batchconsumequeue").iterdir())
    assert [path.name for path in files] == [f"{0:020d}"]
    assert files[0].read_bytes()[2 * BATCH.size :] == bytes(BATCH.size)
    again = disk.open()
    assert again.queue("B", 0).max_offset() == 7
    again.close()


def test_read_only_batch_units_behind_the_logs_end_are_hidden_and_stay(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    before = tree_digest(tmp_path)
    store = disk.open(read_only=True)
    assert store.truncate_dirty(4 * SIZE) == 1
    assert store.queue("B", 0).max_offset() == 7
    store.close()
    assert tree_digest(tmp_path) == before


@pytest.mark.parametrize(
    ("row", "end"),
    [
        ((3 * SIZE, SIZE, 9, 110, 7, 1), 8),
        ((2 * SIZE + 1, 1, 9, 110, 0, 1), 1),
        ((2 * SIZE, SIZE, 9, 110, 7, 1), 7),  # the record of the row before
        ((SIZE, SIZE, 9, 110, 7, 1), 7),
        ((3 * SIZE, 0, 9, 110, 7, 1), 7),
        ((3 * SIZE, SIZE, 9, 110, 7, 0), 7),
        ((3 * SIZE, SIZE, 9, 110, -1, 1), 7),
        ((3 * SIZE, SIZE, 9, 110, (1 << 63) - 2, 1), (1 << 63) - 1),
        ((3 * SIZE, SIZE, 9, 110, (1 << 63) - 3, 2), (1 << 63) - 1),
        ((3 * SIZE, SIZE, 9, 110, (1 << 63) - 1, 1), 7),
    ],
)
def test_a_batch_queue_ends_at_the_first_row_that_is_no_unit(
    tmp_path: Path, row: tuple[int, int, int, int, int, int], end: int
) -> None:
    disk = batch_disk(tmp_path)
    first, second = sorted(disk.folder("B", 0, "batchconsumequeue").iterdir())
    second.unlink()
    data = bytearray(first.read_bytes())
    data[2 * BATCH.size :] = BATCH.pack(*row, -1, 0)
    first.write_bytes(data)
    for _ in range(2):
        store = disk.open(crashed=True)
        assert store.queue("B", 0).max_offset() == end
        store.close()
    assert (first.read_bytes() == bytes(data)) == (end != 7), "what is no unit is zeroed"


def test_a_batch_queue_longer_than_one_read_is_known_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in (1, 2, 3, 4, 5, 6):
        monkeypatch.setattr("cqstore.cq_file.batch_queue._BLOCK_UNITS", block)
        store = batch_disk(tmp_path / str(block)).open()
        assert store.queue("B", 0).max_offset() == 15
        assert [unit.queue_offset for unit in store.queue("B", 0).iterate(0)] == [0, 2, 7, 8, 12]
        store.close()


def test_an_iteration_gives_no_unit_that_was_cut_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The iteration knows the end of before; where it ended there are zeros now, or no file."""
    monkeypatch.setattr("cqstore.cq_file.batch_queue._BLOCK_UNITS", 1)
    for left in range(1, 5):
        store = batch_disk(tmp_path / str(left)).open()
        whole = [unit.queue_offset for unit in store.queue("B", 0).iterate(0)]
        units = store.queue("B", 0).iterate(0)
        seen = [next(units).queue_offset]
        store.truncate_dirty(UNITS[left][0] * SIZE)
        seen.extend(unit.queue_offset for unit in units)
        assert seen == whole[:left]
        store.close()


def test_leading_files_of_a_batch_queue_expire(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    disk.log.min_phy = 5 * SIZE
    assert store.clean_expired(5 * SIZE) == 1
    assert store.queue("B", 0).ends() == (8, 15)
    store.close()
    again = disk.open()
    assert again.queue("B", 0).ends() == (8, 15)
    again.close()


LOWEST = -(1 << 63)


def ext_disk(tmp_path: Path, codes: list[int]) -> Disk:
    """Return a store whose queue has ``codes``, with ext units at bytes 0 and 64 (next file)."""
    disk = Disk(tmp_path)
    disk.write(
        0, [(phy, size, code) for (phy, size, _), code in zip(rows(1, 9), codes, strict=False)]
    )
    folder = disk.folder("T", 0, "consumequeue_ext")
    folder.mkdir(parents=True)
    for start in (0, 64):
        (folder / f"{start:020d}").write_bytes(EXT_UNIT.ljust(64, b"\0"))
    return disk


def test_extension_addresses_lead_to_tags_codes(tmp_path: Path) -> None:
    codes = [5, LOWEST, LOWEST + 64, -(1 << 31), LOWEST + 24, LOWEST + 60, LOWEST + 128]
    store = ext_disk(tmp_path, codes).open()
    found = [unit.tags_code for unit in store.queue("T", 0).iterate(0)]
    assert found == [5, 0x195, 0x195, -(1 << 31), None, None, None]
    assert store.queue("unknown", 0).resolve_tags_code(LOWEST) is None
    store.close()


def test_the_check_names_addresses_that_lead_nowhere(tmp_path: Path) -> None:
    disk = ext_disk(tmp_path, [LOWEST, 5, LOWEST + 24])
    store = disk.open()
    findings = list(store.check_files())
    assert [(item.queue_offset, item.position, item.path) for item in findings] == [
        (2, 40, str(disk.file(0)))
    ]
    store.close()


def test_a_dump_of_a_bare_extension_file_tells_every_unit_up_to_its_end(tmp_path: Path) -> None:
    folder = ext_disk(tmp_path, []).folder("T", 0, "consumequeue_ext")
    path = folder / f"{64:020d}"
    longer = Struct(">hqqh").pack(28, 7, 11, 8) + b"filtered"
    path.write_bytes((EXT_UNIT + longer + EXT_UNIT).ljust(128, b"\0"))
    found = [tuple(row.values())[:4] for row in islice(rows_of_file(path) or (), 9)]
    unit = Struct(">hqq").unpack_from(EXT_UNIT)
    assert found == [(64, *unit), (64 + 24, 28, 7, 11), (64 + 52, *unit)]
    path.write_bytes(Struct(">hqqh").pack(20, 7, 11, 0))  # a head alone is a unit too
    assert [row["logicOffset"] for row in islice(rows_of_file(path) or (), 9)] == [64]


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (b"", 15),
        (bytes(BATCH.size - 1) + b"\1", 15),
        (BATCH.pack(9 * SIZE, SIZE, 9, 140, 15, 1, -1, 0), 16),
    ],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_what_lies_behind_a_batch_queue_goes_when_it_is_opened_to_be_written(
    tmp_path: Path, last: bytes, end: int, *, ahead: bool
) -> None:
    disk = batch_disk(tmp_path)
    _, second = sorted(disk.folder("B", 0, "batchconsumequeue").iterdir())
    third = second.with_name(f"{2 * FILE:020d}")
    units = second.read_bytes()[: 2 * BATCH.size]
    second.write_bytes((units + last).ljust(FILE, b"\0"))
    if ahead:
        third.write_bytes(bytes(FILE))
    before = tree_digest(tmp_path)
    for read_only in (True, False):
        store = disk.open(crashed=True, read_only=read_only)
        assert store.queue("B", 0).max_offset() == end
        store.close()
        assert not read_only or tree_digest(tmp_path) == before
    assert second.read_bytes() == (units + last * (end == 16)).ljust(FILE, b"\0")
    assert not third.exists()


@pytest.mark.parametrize("ahead", range(7))
def test_however_many_files_were_made_ahead_a_batch_queue_ends_before_them(
    tmp_path: Path, ahead: int
) -> None:
    disk = batch_disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    for number in range(2, 2 + ahead):
        (folder / f"{number * FILE:020d}").write_bytes(bytes(FILE))
    store = disk.open(crashed=True)
    assert store.queue("B", 0).max_offset() == 15
    assert len(list(folder.iterdir())) == 2
    store.close()


@pytest.mark.parametrize("ahead", range(1, 6))
def test_a_batch_queue_of_one_file_ends_in_it_however_many_were_made_ahead(
    tmp_path: Path, ahead: int
) -> None:
    disk = batch_disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    for number in range(1, 1 + ahead):
        (folder / f"{number * FILE:020d}").write_bytes(bytes(FILE))
    store = disk.open(crashed=True)
    assert store.queue("B", 0).max_offset() == 8
    store.close()


def test_a_batch_queue_whose_files_are_all_of_zeros_is_empty(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    for path in folder.iterdir():
        path.write_bytes(bytes(FILE))
    store = disk.open()
    assert store.queue("B", 0).ends() == (0, 0)
    assert store.dispatch_from_phy_offset() == 0
    assert list(store.queue("B", 0).iterate(0)) == []
    assert not list(folder.iterdir())
    store.close()


def test_a_batch_queue_without_a_file_in_the_middle_is_read_behind_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    folder.mkdir(parents=True)
    units = [BATCH.pack(at * SIZE, SIZE, 9, 100 + at, 2 * at, 2, -1, 0) for at in range(15)]
    for start in (0, 2, 3, 4):
        data = b"".join(units[3 * start :][:3])
        (folder / f"{start * FILE:020d}").write_bytes(data)
    store = disk.open(read_only=True)
    assert store.queue("B", 0).max_offset() == 30
    behind = store.queue("B", 0).iterate(19)
    assert [unit.queue_offset for unit in behind] == [18, 20, 22, 24, 26, 28]
    disk.log.min_phy = 7 * SIZE
    assert store.queue("B", 0).min_offset() == 14
    assert store.queue("B", 0).offset_by_time(107, LOWER) == 14
    (found,) = store.check_files()
    assert (found.path, found.queue_offset) == (str(folder / f"{2 * FILE:020d}"), None)
    store.close()
