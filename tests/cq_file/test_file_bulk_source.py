"""File queues read whole, as a migration reads them: where a read ends, from hand-made files."""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from cqstore.cq_file.bulk_source import FileUnitSource
from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UNIT_ROWS
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig
from tests.kit.faults import EACCES, EIO, Faults
from tests.kit.file_queues import (
    ADDRESS,
    EXT_UNIT,
    FILE_SIZE,
    PRE_BLANK,
    SIZE,
    Disk,
    Row,
    open_below,
    rows,
)  # fmt: skip
from tests.kit.no_log import NoCheckpoint

QUEUE = QueueKey("T", 0)
ZERO = (0, 0, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Return units 3 to 17, a missing file, units 30 to 33, and something behind the end."""
    disk = Disk(tmp_path)
    disk.write(0, [PRE_BLANK] * 3 + rows(103, 7))
    disk.write(FILE_SIZE, [*rows(110, 8), ZERO, ZERO])
    disk.write(3 * FILE_SIZE, [*rows(130, 4), ZERO, *rows(135, 1)])
    return disk


@pytest.fixture
def source(disk: Disk) -> Iterator[FileUnitSource]:
    paths, config = StorePaths(disk.root), StoreConfig(**disk.settings)
    context = QueueStoreContext(
        paths, config, disk.log, NoCheckpoint(), last_exit_ok=True, read_only=True
    )
    source = FileUnitSource(context)
    yield source
    source.close()
    assert open_below(disk.root) == []


@pytest.mark.parametrize(
    ("first", "count", "found"),
    [
        (3, 15, 15), (3, 15 + 1, 15), (3, 60, 15), (9, 2, 2), (10, 1, 1), (17, 3, 1),
        (0, 5, 0), (2, 5, 0), (18, 1, 0), (20, 1, 0), (25, 9, 0),
        (30, 60, 4), (32, 2, 2), (34, 2, 0), (40, 1, 0),
    ],
)  # fmt: skip
def test_a_read_ends_at_the_first_row_that_is_no_unit_or_is_not_there(
    source: FileUnitSource, first: int, count: int, found: int
) -> None:
    target = np.zeros(count, UNIT_ROWS)
    assert source.fill(QUEUE, first, target) == found
    read: list[Row] = [row[:3] for row in target[:found].tolist()]
    assert read == rows(100 + first, found)
    assert set(target["store_timestamp"][:found].tolist()) <= {-1}


def test_runs_step_over_holes_and_what_lies_behind_is_found_up_to_the_logs_end(
    disk: Disk, source: FileUnitSource
) -> None:
    disk.write(3 * FILE_SIZE, [*rows(130, 2), (1 << 50, SIZE, 7), *rows(133, 2)])
    disk.log.max_phy = 200 * SIZE
    assert list(source.queues(None, None)) == [QUEUE]
    found: dict[int, tuple[int, ...]] = {}
    for run in source.runs(QUEUE, 6):
        assert 0 < len(run.rows) <= 6
        found.update(enumerate(run.rows.tolist(), run.queue_offset))
    assert list(found) == [*range(3, 18), 30, 31, 32, 33, 34]
    damaged = {32: (1 << 50, SIZE, 7, -1)}
    reported = {at: (*rows(at + 100, 1)[0], -1) for at in found}
    assert found == reported | damaged


def in_rocksdbs_order(queue: QueueKey) -> bytes:
    """Return what begins the key of a queue: length of the topic, the topic, the queue id."""
    name = queue.topic.encode()
    return len(name).to_bytes(4, "big") + name + (queue.queue_id & 0xFFFFFFFF).to_bytes(4, "big")


def test_queues_come_in_the_order_of_rocksdbs_keys_from_one_to_another(
    disk: Disk, source: FileUnitSource
) -> None:
    there = [("bb", 0), ("a", 10), ("a", 2), ("a", -1), ("主", 0), ("b", 0), ("bb", -7), ("aaa", 1)]
    for topic, queue_id in there:
        disk.write(0, rows(1, 1), topic, queue_id)
    disk.folder("a", 5).mkdir()  # no file
    (disk.folder("a", 5) / "folder").mkdir()
    disk.folder("ab", 0).parent.mkdir()
    (disk.root / "consumequeue" / "CURRENT").touch()
    (disk.root / "consumequeue" / "a" / "007").mkdir()
    disk.write(0, rows(1, 1), "a", queue_id=8).rename(disk.folder("a", 8) / "any")
    queues = sorted([QUEUE, *(QueueKey(*key) for key in [*there, ("a", 8)])], key=in_rocksdbs_order)
    bounds = [None, *queues, QueueKey("a", 4), QueueKey("ab", 0), QueueKey("zzzzz", 0)]
    for after, up_to in product(bounds, bounds):
        assert list(source.queues(after, up_to)) == [
            queue
            for queue in queues
            if (after is None or in_rocksdbs_order(queue) > in_rocksdbs_order(after))
            and (up_to is None or in_rocksdbs_order(queue) <= in_rocksdbs_order(up_to))
        ]


def test_next_offsets_are_the_ends_of_the_files_whatever_else_lies_in_the_folder(
    disk: Disk, source: FileUnitSource
) -> None:
    disk.write(0, rows(1, 7), queue_id=1)
    (disk.folder() / "notes").touch()
    (disk.folder() / f"{800:020d}").mkdir()
    other = QueueKey("T", 1)
    assert [source.next_offset(key) for key in (QUEUE, other, other, QUEUE)] == [36, 7, 7, 36]
    assert source.next_offset(QueueKey("T", 2)) == 0
    assert list(source.runs(QueueKey("T", 2), 6)) == []
    assert source.behind(QueueKey("T", 2)) is None


def test_a_file_that_ends_too_early_is_read_up_to_its_last_whole_unit(
    disk: Disk, source: FileUnitSource
) -> None:
    os.truncate(disk.file(0), 7 * 20 + 19)
    target = np.zeros(7, UNIT_ROWS)
    assert source.fill(QUEUE, 3, target) == 4
    assert open_below(disk.root) == []
    os.truncate(disk.file(0), 3)
    assert source.fill(QUEUE, 3, target) == 0


@pytest.mark.parametrize("call", ["open", "read"])
def test_what_the_disk_refuses_of_a_file_is_named(
    disk: Disk, source: FileUnitSource, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refused(*_: object) -> int:
        raise OSError(EIO, os.strerror(EIO))

    if call == "open":
        Faults(monkeypatch).fail("open", EACCES, f"{FILE_SIZE:020d}")
    else:
        monkeypatch.setattr(os, "preadv", refused)
    with pytest.raises(StoreIOError, match=f"cannot {call} a queue file: ") as caught:
        source.fill(QUEUE, 12, np.zeros(3, UNIT_ROWS))
    assert caught.value.path == disk.file(FILE_SIZE)
    assert open_below(disk.root) == []


@pytest.mark.parametrize("has_folder", [False, True])
def test_addresses_of_extension_units_become_tags_codes_where_there_are_such_units(
    disk: Disk,
    has_folder: bool,  # noqa: FBT001
) -> None:
    disk.write(0, [(0, SIZE, 4), (50, SIZE, ADDRESS), (100, SIZE, -(1 << 31)),
                   (150, SIZE, ADDRESS + 24)])  # fmt: skip
    disk.settings["mapped_file_size_consume_queue_ext"] = 64
    folder = disk.folder(kind="consumequeue_ext")
    if has_folder:
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(EXT_UNIT.ljust(64, b"\0"))
    context = QueueStoreContext(
        StorePaths(disk.root), StoreConfig(**disk.settings), disk.log, NoCheckpoint(),
        last_exit_ok=True, read_only=True,
    )  # fmt: skip
    source, target = FileUnitSource(context), np.zeros(3, UNIT_ROWS)
    assert source.fill(QUEUE, 0, target) == 3
    codes = [4, 0x195 if has_folder else ADDRESS, -(1 << 31)]
    assert target["tags_code"].tolist() == codes
    if has_folder:
        for read in (lambda: source.fill(QUEUE, 2, target), lambda: [*source.runs(QUEUE, 9)]):
            with pytest.raises(
                CorruptionError, match=r"^queue 0 of topic 'T': .* of unit 3\."
            ) as caught:
                read()
            assert caught.value.path == folder
            assert (caught.value.expected, caught.value.got) == (
                "the address of an extension unit",
                ADDRESS + 24,
            )
    else:
        assert len(next(source.runs(QUEUE, 9)).rows) == 4
    source.close()


@pytest.mark.parametrize("block", [1, 2, 3, 204])
@pytest.mark.parametrize(
    ("behind", "count"),
    [
        ([], 0), (rows(20, 5), 5), ([*rows(20, 3), (0, 0, 0), *rows(25, 1)], 3),
        ([*rows(20, 2), (90 * SIZE, SIZE, 7), *rows(22, 1)], 2), ([(20 * SIZE, 0, 7)], 0),
        ([(-1, SIZE, 7)], 0), (rows(0, 1), 1),
    ],
)  # fmt: skip
def test_behind_the_end_lies_what_rocketmq_would_take_for_units(
    disk: Disk,
    source: FileUnitSource,
    monkeypatch: pytest.MonkeyPatch,
    behind: list[Row],
    count: int,
    block: int,
) -> None:
    """It takes rows up to the first without a record, in order or not; the log ends at 90."""
    monkeypatch.setattr("cqstore.cq_file.bulk_source._BEHIND_UNITS", block)
    disk.log.max_phy = 90 * SIZE
    disk.write(0, rows(50, 5) + behind, queue_id=4)
    run = source.behind(QueueKey("T", 4))
    if not count:
        assert run is None
    else:
        assert run is not None
        assert run.queue_offset == 5
        assert run.rows.tolist() == [(*row, -1) for row in behind[:count]]


def test_a_read_goes_on_from_file_to_file(disk: Disk, source: FileUnitSource) -> None:
    for start in range(0, 50, 10):
        disk.write(start * 20, rows(start, 10), queue_id=2)
    for first, count in ((0, 50), (3, 31), (9, 22), (10, 30)):
        target = np.zeros(count, UNIT_ROWS)
        assert source.fill(QueueKey("T", 2), first, target) == count
        assert target.tolist() == [(*row, -1) for row in rows(first, count)]


def test_a_queue_that_begins_with_a_hole_has_no_empty_run(
    disk: Disk, source: FileUnitSource
) -> None:
    disk.write(0, [ZERO, *rows(1, 3)], queue_id=6)
    runs = [(run.queue_offset, len(run.rows)) for run in source.runs(QueueKey("T", 6), 9)]
    assert runs == [(1, 3)]
