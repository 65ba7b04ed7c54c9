"""Which queues their files alone make suspect or damaged, after a crash or another broker."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from tests.kit.file_queues import PRE_BLANK, SIZE, Disk, put, rows

FIRST, LAST = "the first queue file is missing", "the last queue file is missing"


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize(
    ("starts", "count", "blanks", "least", "problem", "begin"),
    [
        ([0], 10, 0, 0, LAST, 11), ([0], 9, 0, 0, None, 0), ([0, 10], 20, 0, 30, LAST, 30),
        ([0, 10], 20, 0, 20, LAST, 21), ([10], 5, 0, 0, FIRST, 0), ([10], 5, 0, -1, FIRST, 0),
        ([10], 10, 0, 0, FIRST, 0), ([10], 5, 2, 0, None, 0), ([10], 0, 4, 0, None, 0),
        ([10], 5, 0, 1, None, 0), ([10], 5, 0, 0.9, FIRST, 0.9), ([10], 5, 0, 3, None, 0),
        ([0], 10, 0, -1, LAST, 11), ([10], 0, 10, 0, LAST, 0), ([10], 0, 10, 7, LAST, 7),
    ],
)  # fmt: skip
def test_a_queue_that_begins_or_ends_where_a_file_does_may_lack_one(
    tmp_path: Path,
    starts: list[int],
    count: int,
    blanks: int,
    least: float,
    problem: str | None,
    begin: float,
    *,
    crashed: bool,
) -> None:
    """Units are of records 1 and following; ``least`` is the log's first, -1 without a log."""
    disk = Disk(tmp_path)
    disk.log.min_phy = int(least * SIZE) if least >= 0 else -1
    table = [PRE_BLANK] * blanks + rows(1, count)
    for number, start in enumerate(starts):
        disk.write(start * 20, table[number * 10 :][:10])
    reading = disk.open(crashed=crashed, read_only=True)
    assert reading.damaged_queues() == [], "it is not rebuilt"
    reading.close()
    store = disk.open(crashed=crashed)
    expected = (("T", 0), problem, str(disk.folder()), 0, int(begin * SIZE))
    assert store.damaged_queues() == ([expected] if problem else [])
    end = store.queue("T", 0).max_offset()
    put(store, end, rows(60, 1))
    assert store.queue("T", 0).max_offset() == end + 1, "a suspect takes units"
    store.damage_is_settled()
    assert store.damaged_queues() == []
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_missing_between_two_is_damage_that_names_the_one_behind(
    tmp_path: Path, *, read_only: bool
) -> None:
    disk = Disk(tmp_path)
    for queue_id in (0, 1):
        for start in (0, 10, 20, 40) if queue_id else (0, 10, 20, 30):
            disk.write(start * 20, rows(1 + start, 5 if start >= 30 else 10), queue_id=queue_id)
    store = disk.open(read_only=read_only)
    path = str(disk.file(800, queue_id=1))
    assert store.damaged_queues() == [
        (("T", 1), "a queue file between two others is missing", path, 0, None)
    ]
    store.damage_is_settled()
    assert len(store.damaged_queues()) == 1
    store.close()


def test_a_file_cut_while_the_ends_are_looked_for_is_told_and_the_other_queues_are_recovered(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    for queue_id in range(3):  # with two files: the end of a short queue is found by ``load``
        disk.write(0, rows(1, 10), queue_id=queue_id)
        disk.write(200, rows(11, 3), queue_id=queue_id)
    store = FileConsumeQueueStore(replace(disk.open(read_only=True).context, read_only=False))
    store.load()
    os.truncate(disk.file(200, queue_id=1), 30)
    store.recover()
    path = str(disk.file(200, queue_id=1))
    assert store.damaged_queues() == [(("T", 1), "the queue file is truncated", path, 0, None)]
    assert [store.queue("T", queue_id).max_offset() for queue_id in (0, 2)] == [13, 13]
    store.close()
