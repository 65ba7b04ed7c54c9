"""Where a file queue ends, after a clean stop and after a crash, from hand-made files."""

from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.queue.units import BlockStop
from tests.kit.file_queues import (
    FILE_SIZE,
    PRE_BLANK,
    SIZE,
    UNIT,
    Disk,
    NoLog,
    put,
    read_all,
    rows,
)
from tests.kit.tree import tree_digest

ZERO = (0, 0, 0)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_queue_without_its_first_files_begins_at_the_first_one_left(
    tmp_path: Path,
    crashed: bool,  # noqa: FBT001
) -> None:
    disk = Disk(tmp_path)
    disk.write(400, rows(20, 10))
    disk.write(600, rows(30, 4))
    store = disk.open(crashed=crashed)
    assert store.queue("T", 0).ends() == (20, 34)
    disk.log.min_phy = 22 * SIZE
    assert store.queue("T", 0).min_offset() == 22
    disk.log.min_phy = 99 * SIZE
    assert store.queue("T", 0).min_offset() == 34
    store.close()


@pytest.mark.parametrize("crashed", [False, True])
def test_stale_units_behind_the_end_are_zeroed(tmp_path: Path, crashed: bool) -> None:  # noqa: FBT001
    disk = Disk(tmp_path)
    disk.write(0, rows(50, 4) + rows(20, 3))
    store = disk.open(crashed=crashed)
    assert read_all(store) == rows(50, 4)
    store.close()
    assert disk.units(0) == rows(50, 4) + [ZERO] * 6


@pytest.mark.parametrize("damaged", range(20))
def test_a_unit_that_leads_behind_the_log_costs_no_other(tmp_path: Path, damaged: int) -> None:
    disk = Disk(tmp_path)
    units = rows(1, 20)
    units[damaged] = (1 << 61, SIZE, 7)
    disk.write(0, units[:10])
    disk.write(200, units[10:])
    disk.log.max_phy = 30 * SIZE
    disk.open().close()
    last = 19 if damaged == 19 else 20  # at the very end it cannot be told from a torn one
    assert disk.open().queue("T", 0).max_offset() == last
    assert (disk.units(0) + disk.units(200))[:last] == units[:last]


def test_a_last_file_without_a_byte_is_passed_over(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 10))
    disk.file(200).touch()
    store = disk.open()
    put(store, 10, rows(11, 1))
    assert read_all(store) == rows(1, 11)
    store.close()


def test_a_hole_before_units_that_were_on_disk_is_kept_and_told(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, [*rows(1, 8), ZERO, ZERO])
    disk.write(200, [ZERO, *rows(12, 3)])
    disk.checkpoint.logics_phy_offset = 15 * SIZE
    for crashed in (False, True):
        store = disk.open(crashed=crashed)
        assert store.queue("T", 0).max_offset() == 14
        block = store.queue("T", 0).read_units(5, 32)
        assert (block.count, block.stop, block.hole) == (3, BlockStop.HOLE, range(8, 11))
        assert list(store.queue("T", 0).read_units(11, 32).rows()) == rows(12, 3)
        blocks = [(each.queue_offset, each.count) for each in store.queue("T", 0).blocks(5, 14, 2)]
        assert blocks == [(5, 2), (7, 1), (11, 2), (13, 1)]
        assert store.queue("T", 0).unit_timestamp(9) == -1
        store.close()


def test_after_a_crash_the_queue_ends_at_a_hole_that_a_replay_fills(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 10))
    disk.write(200, [*rows(11, 4), ZERO, *rows(16, 5)])
    disk.write(400, rows(21, 3))
    disk.checkpoint.logics_phy_offset = 6 * SIZE
    store = disk.open(crashed=True)
    assert store.queue("T", 0).max_offset() == 14
    assert store.dispatch_from_phy_offset() == 6 * SIZE
    put(store, 5, rows(6, 18))
    assert read_all(store) == rows(1, 23)
    store.close()


def test_a_missing_file_in_the_middle_is_a_hole(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 10))
    disk.write(400, rows(21, 2))
    store = disk.open()
    block = store.queue("T", 0).read_units(8, 32)
    assert (list(block.rows()), block.hole) == (rows(9, 2), range(10, 20))
    assert store.queue("T", 0).max_offset() == 22
    store.close()


def test_a_queue_of_pre_blanks_alone_keeps_its_next_offset(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(200, [PRE_BLANK] * 4)
    store = disk.open()
    assert store.queue("T", 0).ends() == (14, 14)
    assert store.dispatch_from_phy_offset() == 0
    put(store, 14, rows(3, 1))
    assert read_all(store) == rows(3, 1)
    store.close()


def test_read_only_recovery_changes_no_byte(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(50, 4) + rows(20, 3))
    disk.write(200, [])
    disk.file(400).touch()
    before = tree_digest(tmp_path)
    for crashed in (False, True):
        store = disk.open(crashed=crashed, read_only=True)
        assert read_all(store) == rows(50, 4)
        assert store.truncate_dirty(52 * SIZE) == 1
        assert read_all(store) == rows(50, 2)
        store.close()
    assert tree_digest(tmp_path) == before


def test_dispatch_starts_where_the_exit_allows(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    assert disk.open(crashed=True).dispatch_from_phy_offset() == 0
    disk.write(0, rows(1, 3), topic="A")
    disk.write(0, rows(7, 2), topic="B", queue_id=3)
    assert disk.open().dispatch_from_phy_offset() == 9 * SIZE
    assert disk.open(crashed=True).dispatch_from_phy_offset() == 0
    disk.checkpoint.min_timestamp, disk.log.by_timestamp = 1, 40
    assert disk.open(crashed=True).dispatch_from_phy_offset() == 40
    disk.checkpoint.logics_phy_offset = 70
    assert disk.open(crashed=True).dispatch_from_phy_offset() == 70


def test_a_checkpoint_is_not_believed_when_the_queues_are_gone(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.checkpoint.logics_phy_offset = 70
    assert disk.open(crashed=True).dispatch_from_phy_offset() == 0


def test_file_sizes_are_taken_from_the_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path, settings={})
    disk.write(0, rows(1, 10))
    disk.write(200, rows(11, 1))
    store = disk.open()
    assert store.describe()["queue file size"] == FILE_SIZE
    assert read_all(store) == rows(1, 11)
    store.close()


@pytest.mark.parametrize("settings", [{}, {"mapped_file_size_consume_queue": FILE_SIZE}])
def test_files_of_another_size_are_refused_with_both_sizes_unless_they_are_few(
    tmp_path: Path, settings: dict[str, int]
) -> None:
    disk = Disk(tmp_path, settings=settings)
    disk.write(0, rows(1, 10))
    disk.write(0, rows(11, 1), queue_id=1)
    with disk.file(0, queue_id=1).open("ab") as file:
        file.write(UNIT.pack(*ZERO))
    with pytest.raises(CorruptionError) as caught:
        disk.open()
    assert {caught.value.expected, caught.value.got} == {200, 220}
    disk.write(0, rows(12, 1), queue_id=2)
    store = disk.open(read_only=True)
    (damage,) = store.damaged_queues()
    assert (damage.queue, damage.path) == (("T", 1), str(disk.file(0, queue_id=1)))
    assert read_all(store) == rows(1, 10)
    assert read_all(store, queue_id=2) == rows(12, 1)
    store.close()


def test_a_name_between_two_files_and_an_empty_file_before_the_last_damage_their_queue_alone(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 1))
    disk.write(100, rows(1, 1), queue_id=1)
    disk.write(200, rows(1, 1), queue_id=2)
    disk.file(0, queue_id=2).touch()
    store = disk.open(read_only=True)
    assert {damage.queue: damage.path for damage in store.damaged_queues()} == {
        ("T", 1): str(disk.file(100, queue_id=1)),
        ("T", 2): str(disk.file(0, queue_id=2)),
    }
    assert read_all(store) == rows(1, 1)
    store.close()


def test_names_that_no_file_of_that_size_has_are_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(100, rows(1, 1))
    with pytest.raises(CorruptionError, match="queue files have invalid names"):
        disk.open()


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("files", [1, 3, 5])
@pytest.mark.parametrize("count", [0, 4, 10, 15])
def test_however_many_files_were_made_ahead_the_queue_ends_before_them(
    tmp_path: Path,
    count: int,
    files: int,
    crashed: bool,  # noqa: FBT001
) -> None:
    disk = Disk(tmp_path)
    for start in range(0, count, 10):
        disk.write(start * 20, rows(1 + start, min(10, count - start)))
    behind = -(-count // 10) * 200
    for number in range(files):
        disk.write(behind + number * FILE_SIZE, [])
    store = disk.open(crashed=crashed)
    assert store.queue("T", 0).max_offset() == count
    assert not (count and disk.file(behind).exists()), "RocketMQ takes its row for a unit"
    put(store, count, rows(1 + count, 12))
    assert read_all(store) == rows(1, count + 12)
    store.close()


def test_a_hole_before_the_file_that_holds_the_last_unit_costs_none_behind_it(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, [*rows(1, 9), ZERO])
    disk.write(200, rows(11, 5))
    for start in (400, 600, 800):
        disk.write(start, [])
    store = disk.open(crashed=True)
    assert store.queue("T", 0).max_offset() == 15
    store.close()
    assert disk.units(200)[:5] == rows(11, 5)


def test_holes_end_before_the_next_row_that_is_a_unit(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    torn = (5 * SIZE, 0, 7)
    disk.write(0, [*rows(0, 3), torn, torn, *rows(5, 2), (-1, SIZE, 7), *rows(8, 2)])
    disk.write(200, [ZERO, *rows(11, 2), *[ZERO] * 7])
    disk.write(600, [ZERO, ZERO, *rows(32, 2)])
    store = disk.open(read_only=True)
    assert store.queue("T", 0).max_offset() == 34
    for begin, count, hole in (
        (0, 3, range(3, 5)), (2, 1, range(3, 5)), (3, 0, range(3, 5)), (5, 2, range(7, 8)),
        (8, 2, range(10, 11)), (11, 2, range(13, 32)), (25, 0, range(25, 32)),
    ):  # fmt: skip
        block = store.queue("T", 0).read_units(begin, 32)
        assert (block.queue_offset, list(block.rows())) == (begin, rows(begin, count))
        assert (block.stop, block.hole) == (BlockStop.HOLE, hole)
        assert store.queue("T", 0).unit_timestamp(hole.start) == -1
    assert list(store.queue("T", 0).read_units(32, 32).rows()) == rows(32, 2)
    assert store.queue("T", 0).unit_timestamp(0) == 0
    store.close()


def test_what_lies_behind_the_end_of_a_read_only_queue_is_no_unit(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(50, 4) + rows(20, 3))
    store = disk.open(read_only=True)
    assert [store.queue("T", 0).unit_timestamp(at) for at in (-1, 3, 4, 5)] == [-1, 265, -1, -1]
    store.close()


@pytest.mark.parametrize("crashed", [False, True])
def test_a_damaged_unit_that_ends_behind_all_offsets_ends_at_the_last_one(
    tmp_path: Path,
    crashed: bool,  # noqa: FBT001
) -> None:
    """In a log whose last file is the last that there can be, its size may say anything."""
    last = (1 << 63) - 1
    disk = Disk(tmp_path, NoLog(max_phy=last))
    units = [*rows(0, 2), (last - 200, 0x7FFFFFFE, 7), (last - 100, 0x7FFFFFFE, 7)]
    disk.write(0, units)
    store = disk.open(crashed=crashed)
    queue = store._table.simple["T"][0]
    assert (queue.last_phy, queue.end_phy) == (last - 100, last)
    assert store.dispatch_from_phy_offset() == (0 if crashed else last)
    assert store.truncate_dirty(last - 100) == 1
    assert (queue.last_phy, queue.end_phy) == (last - 200, last)
    assert read_all(store) == units[:3]
    store.close()
