"""What the file backend tells of itself and of its files."""

from pathlib import Path

import pytest

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.known_ends import ends_path
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import (
    StoreError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from tests.kit.file_queues import KINDS, PRE_BLANK, SIZE, Disk, put, rows


def test_a_description_counts_every_kind(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.fill("T")
    disk.fill("U", "batchconsumequeue")
    disk.write(200, rows(11, 1), "V", 1)
    disk.write(600, rows(31, 1), "V", 1)
    disk.write(0, rows(70, 1), "V", 2)
    store = disk.limited_to(20).open()
    assert store.describe() == {
        "queue file size": 200, "queues": 3, "queue files": 4, "descriptor limit": 20,
        "damaged queues": 1, "batch queues": 2, "queues with extension files": 1,
    }  # fmt: skip
    assert store.units_per_file == 10
    assert list(store.queues()) == [("T", 0), ("U", 0), ("V", 1), ("V", 2)]
    assert list(store.queues(after=QueueKey("V", 1))) == [("V", 2)]
    assert list(store.queues(after=QueueKey("Ta", 9), prefix="U")) == [("U", 0)]
    blocks = {
        kind: sum(
            path.stat().st_blocks * 512 for path in (tmp_path / kind).rglob("*") if path.is_file()
        )
        for kind in KINDS
    }
    assert all(blocks.values())
    assert store.total_size_bytes() == sum(blocks.values())
    store.close()
    (tmp_path / "other").mkdir()
    other = Disk(tmp_path / "other").open()
    assert other.describe().keys() == {
        "queue file size", "queues", "queue files", "descriptor limit",
    }  # fmt: skip
    other.close()


def test_own_files_are_the_folders_of_topics_and_the_ends(tmp_path: Path) -> None:
    disk, paths = Disk(tmp_path), StorePaths(tmp_path)
    assert FileConsumeQueueStore.own_files(paths) == []
    (tmp_path / "lock").touch()
    store = disk.open()
    put(store, 0, rows(1, 1))
    store.close()
    (tmp_path / "consumequeue" / "CURRENT").write_bytes(b"x")
    found = [disk.folder().parent, ends_path(paths)]
    assert FileConsumeQueueStore.own_files(paths) == found


def test_a_batch_queue_alone_makes_a_store_one_of_files(tmp_path: Path) -> None:
    Disk(tmp_path).fill("B", "batchconsumequeue")
    assert FileConsumeQueueStore.present(StorePaths(tmp_path))


def test_a_queue_of_which_nothing_is_left_says_nothing_of_the_log(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.checkpoint.logics_phy_offset = 70
    disk.write(0, [PRE_BLANK] * 4)
    assert disk.open(crashed=True).dispatch_from_phy_offset() == 0


def test_the_same_minimum_is_looked_for_once_in_each_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 25))
    looked: list[int] = []
    look = FileConsumeQueue.first_at_or_behind

    def counted(queue: FileConsumeQueue, phy_offset: int) -> int:
        looked.append(phy_offset)
        return look(queue, phy_offset)

    monkeypatch.setattr(FileConsumeQueue, "first_at_or_behind", counted)
    found = []
    for least in (0, 5, 5, 9, 9, 5):
        disk.log.min_phy = least * SIZE
        found.append(store.queue("T", 0).min_offset())
    assert found == [0, 4, 4, 8, 8, 4]
    assert looked == [5 * SIZE, 9 * SIZE, 5 * SIZE]
    put(store, 3, rows(40, 9))
    looked.clear()
    assert [store.queue("T", 0).min_offset() for _ in range(2)] == [3, 3]
    assert looked == [5 * SIZE]
    with pytest.raises(StoreError):
        put(store, 99, rows(99, 1))
    store.close()
