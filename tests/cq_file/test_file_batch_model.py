"""Batch queues against a plain list: every question at every place, also after cuts and expiry."""

import tempfile
from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.queue.time_search import BoundaryType
from tests.kit.file_queues import BATCH, SIZE, Disk

PER_FILE = 3
Unit = tuple[int, int, int, int]
"""Number of the record, first message, messages, store time."""


@st.composite
def units(draw: st.DrawFn) -> list[Unit]:
    count = draw(st.integers(1, 11))
    records = list(accumulate(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))))
    sizes = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    steps = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    firsts = [0, *accumulate(sizes)][:count]
    return list(zip(records, firsts, sizes, accumulate(steps, initial=9), strict=False))


def write(root: Path, queue: list[Unit]) -> Disk:
    disk = Disk(root)
    folder = disk.folder("B", 0, "batchconsumequeue")
    folder.mkdir(parents=True)
    size = PER_FILE * BATCH.size
    data = b"".join(
        BATCH.pack(record * SIZE, SIZE, 9, time, first, count, -1, 0)
        for record, first, count, time in queue
    )
    for start in range(0, len(data), size):
        (folder / f"{start:020d}").write_bytes(data[start : start + size].ljust(size, b"\0"))
    return disk


def by_time(queue: list[Unit], kept: int, time: int, boundary: BoundaryType, least: int) -> int:
    """Return what RocketMQ answers: first the file is chosen, then a unit in it."""
    files = [queue[at : at + PER_FILE] for at in range(0, len(queue), PER_FILE)]
    files = [file for at, file in enumerate(files) if at * PER_FILE >= kept]
    begun = [file for file in files if file[0][3] <= time]
    if not begun:
        return least
    file = begun[-1]
    exact = [unit for unit in file if unit[3] == time]
    if time >= file[-1][3]:
        found = file[-1]
    elif exact and boundary is BoundaryType.UPPER:
        found = exact[-1]
    else:
        found = next(unit for unit in file if unit[3] >= time)
    return max(found[1], least)


def check(store: FileConsumeQueueStore, disk: Disk, queue: list[Unit], kept: int) -> None:
    """Compare every answer; ``kept`` is the first unit whose file is there."""
    end = queue[-1][1] + queue[-1][2] if queue[kept:] else 0
    assert store.queue("B", 0).max_offset() == end
    alive = [unit for unit in queue[kept:] if unit[0] * SIZE >= disk.log.min_phy]
    least = alive[0][1] if alive else end
    assert store.queue("B", 0).min_offset() == least
    for offset in range(-1, end + 2):
        holding = [at for at in range(kept, len(queue)) if queue[at][1] <= offset < end]
        expected = [unit[:3] for unit in queue[holding[-1] :]] if holding else []
        found = list(store.queue("B", 0).iterate(offset))
        assert [(u.phy_offset // SIZE, u.queue_offset, u.batch_num) for u in found] == expected
        time = queue[holding[-1]][3] if holding else -1
        assert store.queue("B", 0).unit_timestamp(offset) == time
    for time in range(7, 35) if queue[kept:] else ():
        for boundary in BoundaryType:
            expected_offset = by_time(queue, kept, time, boundary, least)
            assert store.queue("B", 0).offset_by_time(time, boundary) == expected_offset


@given(units(), st.integers(0, 35), st.integers(0, 35))
def test_every_answer_is_the_lists(queue: list[Unit], minimum: int, cut_at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disk = write(Path(folder), queue)
        store = disk.open()
        check(store, disk, queue, 0)
        disk.log.min_phy = minimum * SIZE
        check(store, disk, queue, 0)
        behind = [unit for unit in queue if unit[0] >= cut_at]
        assert store.truncate_dirty(cut_at * SIZE) == bool(behind)
        queue = [unit for unit in queue if unit[0] < cut_at]
        check(store, disk, queue, 0)
        wholly = [at for at in range(PER_FILE, len(queue), PER_FILE) if queue[at - 1][0] < minimum]
        assert store.clean_expired(minimum * SIZE) == len(wholly)
        kept = max(wholly, default=0)
        check(store, disk, queue, kept)
        store.close()
        store = disk.open()
        check(store, disk, queue, kept)
        store.close()
