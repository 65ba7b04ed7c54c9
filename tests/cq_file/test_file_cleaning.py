"""Cutting behind the log's end, expiry, deleting topics, and what a flush touches."""

import os
import shutil
from pathlib import Path

import pytest

from cqstore.store.queue.units import QueueKey
from tests.kit.file_queues import PRE_BLANK, SIZE, Disk, put, read_all, rows

ZERO = (0, 0, 0)


def test_truncation_cuts_several_files_and_leaves_zeros(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 35))
    put(store, 0, rows(2, 3), topic="short")
    assert store.truncate_dirty(13 * SIZE) == 1
    assert read_all(store) == rows(1, 12)
    assert read_all(store, "short") == rows(2, 3)
    assert store.truncate_dirty(13 * SIZE) == 0
    put(store, 12, rows(20, 1))
    store.close()
    assert disk.units(200) == rows(11, 2) + rows(20, 1) + [ZERO] * 7
    assert not disk.file(400).exists()


def test_truncation_at_the_border_of_a_file_leaves_no_empty_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 15))
    store.truncate_dirty(11 * SIZE)
    assert store.queue("T", 0).max_offset() == 10
    assert not disk.file(200).exists()
    store.close()


def test_truncation_of_all_units_keeps_the_next_offset_if_older_ones_expired(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 12, rows(5, 3))
    put(store, 0, rows(5, 3), topic="young")
    assert store.truncate_dirty(5 * SIZE) == 2
    assert store.queue("T", 0).ends() == (12, 12)
    assert store.queue("young", 0).max_offset() == 0
    store.close()
    assert disk.units(200) == [PRE_BLANK] * 2 + [ZERO] * 8
    again = disk.open()
    assert (again.queue("T", 0).max_offset(), again.queue("young", 0).max_offset()) == (12, 0)
    put(again, 12, rows(6, 1))
    assert read_all(again) == rows(6, 1)
    again.close()


def test_an_emptied_queue_keeps_its_next_offset_at_the_border_of_a_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(200, rows(11, 3))
    store = disk.open()
    store.truncate_dirty(11 * SIZE)
    assert store.queue("T", 0).max_offset() == 10
    store.close()
    again = disk.open()
    assert again.queue("T", 0).max_offset() == 10
    again.close()


def test_expiry_removes_leading_files_but_never_the_last(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 35))
    disk.log.min_phy = 20 * SIZE
    assert store.clean_expired(20 * SIZE) == 1  # unit 19, the second file's last, is alive
    assert store.queue("T", 0).ends() == (19, 35)
    disk.log.min_phy = 99 * SIZE
    assert store.clean_expired(99 * SIZE) == 2
    assert store.queue("T", 0).ends() == (35, 35)
    assert [path.name for path in disk.folder().iterdir()] == ["00000000000000000600"]
    put(store, 35, rows(100, 2))
    assert read_all(store) == rows(100, 2)
    store.close()


def test_a_deleted_topic_is_gone_with_all_its_kinds_of_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    ext = disk.folder("T", 0, "consumequeue_ext")
    ext.mkdir(parents=True)
    (ext / "00000000000000000000").write_bytes(bytes(64))
    store = disk.open()
    put(store, 0, rows(1, 12))
    put(store, 0, rows(13, 1), queue_id=7)
    put(store, 0, rows(14, 1), topic="T2")
    store.delete_topics(["T"])
    assert not disk.folder("T").parent.exists()
    assert not ext.parent.exists()
    assert list(store.queues()) == [QueueKey("T2", 0)]
    assert store.queue("T", 0).max_offset() == store.next_offset("T", 0) == 0
    put(store, 0, rows(20, 1))
    assert read_all(store) == rows(20, 1)
    assert read_all(store, "T2") == rows(14, 1)
    store.flush()  # nothing of the removed folders is asked of the disk
    store.close()


def test_a_flush_has_exactly_what_changed_since_the_last(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    store.flush()
    put(store, 0, rows(1, 12))
    put(store, 0, rows(20, 1), topic="A")
    unsynced = store._unsynced
    assert unsynced.files == {
        str(disk.file(0)),
        str(disk.file(200)),
        str(disk.file(0, topic="A")),
    }
    assert unsynced.folders == {
        str(tmp_path / "consumequeue"),
        str(tmp_path / "consumequeue/T"),
        str(tmp_path / "consumequeue/T/0"),
        str(tmp_path / "consumequeue/A"),
        str(tmp_path / "consumequeue/A/0"),
    }
    store.flush()
    assert not unsynced.files
    assert not unsynced.folders
    put(store, 12, rows(21, 1))
    assert unsynced.files == {str(disk.file(200))}
    assert not unsynced.folders
    put(store, 0, rows(1, 12))  # repeats change nothing
    store.flush()
    put(store, 0, rows(1, 12))
    assert not unsynced.files
    store.close()


def test_a_flush_of_many_files_leaves_nothing_noted(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    for queue_id in range(70):
        put(store, 0, rows(queue_id + 1, 1), queue_id=queue_id)
    store.flush()
    assert not store._unsynced.files
    assert not store._unsynced.folders
    store.close()


def test_what_is_removed_while_it_is_synced_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush runs beside the writer, who may delete a topic meanwhile."""
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(0, 3))
    put(store, 0, rows(0, 3), topic="other")
    synced: list[str] = []
    fdatasync = os.fdatasync

    def sync(fd: int) -> None:
        fdatasync(fd)
        if not synced:
            shutil.rmtree(tmp_path / "consumequeue" / "T")
        synced.append(str(fd))

    monkeypatch.setattr(os, "fdatasync", sync)
    store.flush()
    assert synced
    put(store, 3, rows(3, 1), topic="other")
    store.flush()
    store.close()
