"""What a replay after a crash writes again, holds back, and takes for a loss; writes cut short."""

from itertools import permutations
from pathlib import Path

import pytest

from cqstore.store.errors import (
    QueueGapError,
)
from cqstore.store.queue.units import UnitBatch
from tests.kit.faults import EIO, Faults
from tests.kit.file_queues import SIZE, Disk, Row, put, read_all, rows
from tests.kit.shim import SHORT, Shim


def several(*units: tuple[tuple[str, int], int, Row]) -> UnitBatch:
    batch = UnitBatch()
    for key, offset, row in units:
        batch.add(key, offset, *row, 0)
    return batch


@pytest.mark.parametrize("pieces", [(3,), (1, 1, 1), (2, 1), (2, 3), (5,), (1, 4)])
def test_a_replay_writes_the_last_unit_of_a_crashed_queue_once_more(
    tmp_path: Path, pieces: tuple[int, ...]
) -> None:
    """A power cut may leave zeros where its tags code was, which look like any other."""
    disk = Disk(tmp_path)
    disk.write(0, [*rows(1, 2), (3 * SIZE, SIZE, 0)])
    store = disk.open(crashed=True)
    offset = 0
    for count in pieces:
        put(store, offset, rows(offset + 1, count))
        offset += count
    assert read_all(store) == rows(1, offset)
    store.flush()
    put(store, 0, rows(1, offset))
    assert not store._unsynced.files, "once is enough"
    store.close()
    assert disk.units(0) == [*rows(1, offset), *[(0, 0, 0)] * (10 - offset)]


def test_a_record_that_tells_another_offset_than_the_last_unit_writes_nothing(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 3))
    store = disk.open(crashed=True)
    for offset in (0, 1, 3, 7):
        assert put(store, offset, rows(3, 1, tags_code=9)) == []
    assert disk.units(0) == rows(1, 3) + [(0, 0, 0)] * 7
    store.close()


@pytest.mark.parametrize("reopened", [False, True])
def test_units_that_a_sound_queue_has_are_not_written_again(
    tmp_path: Path, *, reopened: bool
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 3))
    if reopened:
        store.close()
        store = disk.open()
    store.flush()
    put(store, 0, rows(1, 3, tags_code=9))
    put(store, 2, rows(3, 1, tags_code=9))
    assert not store._unsynced.files
    assert read_all(store) == rows(1, 3)
    store.close()


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_replay_that_shows_a_loss_holds_that_queue_back_and_stores_the_others(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    disk = Disk(tmp_path)
    for queue_id in (0, 2):
        disk.write(0, rows(1 + queue_id * 10, 4), queue_id=queue_id)
    disk.checkpoint.logics_phy_offset = 30 * SIZE
    store = disk.open(crashed=True)
    assert store.dispatch_from_phy_offset() == 30 * SIZE
    coming = [  # queue 1 is gone, and five units with it
        (("T", 0), 4, (40 * SIZE, SIZE, 7)),
        (("T", 1), 5, (41 * SIZE, SIZE, 7)),
        (("T", 2), 4, (42 * SIZE, SIZE, 7)),
    ]
    assert store.put_batch(several(*[coming[at] for at in order])) == []
    assert store.queue("T", 1).max_offset() == 0
    (damage,) = store.damaged_queues()
    assert (damage.queue, damage.path) == (("T", 1), str(disk.folder(queue_id=1)))
    assert (damage.is_suspect, damage.next_offset) == (False, 0)
    assert "missing" in damage.problem
    later = [(key, offset + 1, (phy + 9 * SIZE, SIZE, 7)) for key, offset, (phy, *_) in coming]
    assert store.put_batch(several(*[later[at] for at in order])) == []
    assert [store.queue("T", queue_id).max_offset() for queue_id in range(3)] == [6, 0, 6]
    assert store.describe()["damaged queues"] == 1
    (finding,) = store.check_files()
    assert finding[:5] == (damage.problem, damage.path, damage.queue, None, None)
    store.damage_is_settled()
    store.allow_expiry(0)
    put(store, 6, rows(60, 2), queue_id=1)
    assert store.queue("T", 1).ends() == (6, 8)
    store.close()


def test_once_the_replay_is_over_missing_units_are_an_error_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 4))
    disk.checkpoint.logics_phy_offset = 3 * SIZE
    store = disk.open(crashed=True)
    store.dispatch_from_phy_offset()
    store.allow_expiry(0)
    with pytest.raises(QueueGapError):
        put(store, 7, rows(8, 1))
    assert store.damaged_queues() == []
    store.close()


def test_a_queue_of_the_logs_very_first_record_may_have_expired_too(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(0, 1))
    disk.log.min_phy = 20 * SIZE
    disk.checkpoint.logics_phy_offset = 30 * SIZE
    store = disk.open(crashed=True)
    store.dispatch_from_phy_offset()
    put(store, 6, rows(40, 1))
    assert store.damaged_queues() == []
    assert store.queue("T", 0).ends() == (6, 7)
    store.close()


@pytest.mark.parametrize(
    ("least", "began", "offset", "phy", "lost"),
    [
        (0, 30, 6, 40, True), (0, 30, 4, 40, False), (0, 30, 5, 40, True), (0, 0, 6, 40, False),
        (30, 30, 6, 40, False), (29, 30, 6, 40, False), (4, 30, 6, 40, True),
        (5, 30, 6, 40, False),
    ],
)  # fmt: skip
def test_a_replayed_unit_shows_a_loss_where_the_replay_left_records_out_that_are_in_the_log(
    tmp_path: Path, least: int, began: int, offset: int, phy: int, *, lost: bool
) -> None:
    """The queue has four units, of records 1 to 4; ``least`` is the log's first record."""
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 4))
    disk.log.min_phy = least * SIZE
    disk.checkpoint.logics_phy_offset = began * SIZE
    store = disk.open(crashed=True)
    store.dispatch_from_phy_offset()
    try:
        put(store, offset, rows(phy, 1))
    except QueueGapError:
        assert began == 0
    assert bool(store.damaged_queues()) == lost
    assert store.queue("T", 0).max_offset() == (4 if lost or began == 0 else offset + 1)
    store.close()


def test_a_write_that_the_kernel_cuts_short_is_finished(tmp_path: Path) -> None:
    store = Disk(tmp_path).open()
    put(store, 0, rows(1, 2))
    with Shim() as shim:
        shim.arm(tmp_path, ["pwrite"], SHORT, times=3)
        put(store, 2, rows(3, 3))
    assert (shim.refused, shim.foreign["pwrite"] > 0) == (3, True)
    assert read_all(store) == rows(1, 5)
    store.close()


def test_a_write_that_is_refused_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 2))
    faults = Faults(monkeypatch)
    faults.fail("write", EIO, f"{0:020d}", times=1)
    put(store, 2, rows(3, 3))
    assert faults.refused == 1
    faults.heal()
    store.close()
    assert disk.units(0)[:5] == rows(1, 5)


def test_what_is_flushed_in_part_is_what_has_as_many_pages(tmp_path: Path) -> None:
    disk = Disk(tmp_path, settings={"mapped_file_size_consume_queue": 20_000})
    store = disk.open()
    put(store, 0, rows(1, 410))  # 8,200 bytes
    put(store, 0, rows(600, 200), queue_id=1)
    store.flush(2)
    assert store._unsynced.files == {str(disk.file(0, queue_id=1))}
    assert str(disk.folder()) in store._unsynced.folders
    put(store, 200, rows(900, 300), queue_id=1)  # together 10,000
    store.flush(3)
    assert store._unsynced.files
    store.flush(2)
    assert not store._unsynced.files
    store.flush()
    assert not store._unsynced.folders
    store.close()
