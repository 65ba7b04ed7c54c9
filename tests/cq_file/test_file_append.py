"""What the file backend writes, byte by byte, and what it refuses to write."""

from pathlib import Path

import pytest

from cqstore.store.errors import (
    IllegalMessageError,
    RetryableDiskFullError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QueueKey
from tests.kit.faults import EIO, ENOSPC, Faults
from tests.kit.file_queues import FILE_SIZE, PRE_BLANK, SIZE, Disk, put, read_all, rows
from tests.kit.tree import tree_digest

ZERO = (0, 0, 0)
KEY = QueueKey("T", 0)


def test_a_unit_is_phy_offset_size_and_tags_code_big_endian(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with_unit = bytes.fromhex("0000000000000102 00000033 fffffffffffffffe")
    store = disk.open()
    put(store, 0, [(0x102, 0x33, -2)])
    store.close()
    assert disk.file(0).read_bytes() == with_unit.ljust(FILE_SIZE, b"\0")


def test_units_roll_into_files_named_by_their_first_byte(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 7))
    put(store, 7, rows(8, 18))
    store.close()
    assert [path.name for path in sorted(disk.folder().iterdir())] == [
        "00000000000000000000",
        "00000000000000000200",
        "00000000000000000400",
    ]
    assert disk.units(0) + disk.units(200) + disk.units(400) == rows(1, 25) + [ZERO] * 5


def test_a_full_file_has_no_empty_one_behind_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 10))
    assert [path.name for path in disk.folder().iterdir()] == ["00000000000000000000"]
    put(store, 10, rows(11, 1))
    assert disk.units(200)[0] == rows(11, 1)[0]
    store.close()


def test_a_queue_that_begins_late_is_filled_up_with_pre_blanks(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 23, rows(1, 2))
    assert store.queue("T", 0).ends() == (23, 25)
    assert store.queue("T", 0).read_units(20, 9).hole == range(20, 23)
    store.close()
    assert disk.units(400) == [PRE_BLANK] * 3 + rows(1, 2) + [ZERO] * 5
    again = disk.open()
    assert again.queue("T", 0).ends() == (23, 25)
    assert again.dispatch_from_phy_offset() == 3 * SIZE  # not 2147483647
    again.close()


def test_units_that_are_there_are_left_as_they_are(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 8, tags_code=1))
    put(store, 0, rows(1, 8, tags_code=2))
    put(store, 5, rows(6, 5, tags_code=3))
    assert read_all(store) == rows(1, 8, tags_code=1) + rows(9, 2, tags_code=3)
    store.close()


def test_a_gap_behind_units_that_all_expired_begins_the_queue_anew(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 3))
    disk.log.min_phy = 4 * SIZE
    assert put(store, 12, rows(9, 2)) == []
    assert store.queue("T", 0).ends() == (12, 14)
    assert [path.name for path in disk.folder().iterdir()] == ["00000000000000000200"]
    store.close()


def test_a_new_incarnation_from_zero_replaces_every_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 25))
    restarts = put(store, 0, rows(40, 2))
    assert restarts == [QueueRestart(KEY, range(25), 40 * SIZE)]
    assert read_all(store) == rows(40, 2)
    store.close()
    assert [path.name for path in disk.folder().iterdir()] == ["00000000000000000000"]
    assert disk.units(0) == rows(40, 2) + [ZERO] * 8


def test_a_new_incarnation_from_the_middle_leaves_nothing_of_the_old(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 25))
    assert put(store, 8, rows(40, 1)) == [QueueRestart(KEY, range(8, 25), 40 * SIZE)]
    store.close()
    assert disk.units(0) == rows(1, 8) + rows(40, 1) + [ZERO]
    assert not disk.file(200).exists()
    again = disk.open()
    assert read_all(again) == rows(1, 8) + rows(40, 1)
    again.close()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../T", "a\0b", "x" * 256, "\ud800"])
def test_a_topic_that_is_no_folder_name_is_refused_before_anything_is_written(
    tmp_path: Path, topic: str
) -> None:
    store = Disk(tmp_path / "root").open()
    before = tree_digest(tmp_path)
    with pytest.raises(IllegalMessageError):
        put(store, 0, rows(1, 1), topic=topic)
    store.delete_topics([topic])
    assert tree_digest(tmp_path) == before
    store.close()


def test_a_topic_named_like_a_file_in_the_folder_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    (tmp_path / "consumequeue" / "CURRENT").write_text("MANIFEST-000005")
    with pytest.raises(IllegalMessageError, match="CURRENT"):
        put(store, 0, rows(1, 1), topic="CURRENT")
    store.close()


def test_a_disk_that_refuses_fails_the_store_until_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 2))
    store.flush()
    faults.fail("write", EIO, "00000000000000000000")
    with pytest.raises(StoreIOError, match="00000000000000000000"):
        put(store, 2, rows(3, 1))
    assert store.queue("T", 0).max_offset() == 2
    for write in (store.flush, lambda: put(store, 2, rows(3, 1))):
        with pytest.raises(StoreFailedError):
            write()
    store.close()
    faults.heal()
    again = disk.open()
    assert read_all(again) == rows(1, 2)
    again.close()


def test_a_batch_that_found_no_room_is_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 2))
    faults.fail("write", ENOSPC, "00000000000000000000")
    for _ in range(2):
        with pytest.raises(RetryableDiskFullError, match="00000000000000000000"):
            put(store, 2, rows(3, 1))
        assert store.queue("T", 0).max_offset() == 2
        assert read_all(store) == rows(1, 2)
    faults.heal()
    put(store, 2, rows(3, 1))
    assert read_all(store) == rows(1, 3)
    store.close()
