"""Units put into batch queues, compared with files made by hand."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import DiskFullError, IllegalMessageError, ReadOnlyStoreError
from cqstore.store.queue.facts import QueueRestart, QueueType
from cqstore.store.queue.units import QueueKey, UnitBatch
from tests.kit.file_queues import BATCH, SIZE, Disk, put, rows
from tests.kit.tree import tree_digest

PER_FILE = 3
FILE = PER_FILE * BATCH.size
Unit = tuple[int, int, int]
"""Number of the record, first message, messages."""
UNITS: list[Unit] = [(1, 0, 2), (2, 2, 5), (4, 7, 1), (6, 8, 32_767), (7, 32_775, 3)]
KEY = QueueKey("B", 0)


def batch_disk(root: Path) -> Disk:
    return Disk(root, settings={"mapper_file_size_batch_consume_queue": FILE})


def put_batches(
    store: FileConsumeQueueStore, units: Sequence[Unit], queue_id: int = 0
) -> list[QueueRestart]:
    batch = UnitBatch()
    for record, first, count in units:
        batch.add(("B", queue_id), first, record * SIZE, SIZE, 9, 100 + record)
        batch.batch_sizes[record * SIZE] = count
    return store.put_batch(batch)


def files(disk: Disk, queue_id: int = 0) -> dict[str, bytes]:
    folder = disk.folder("B", queue_id, "batchconsumequeue")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def by_hand(units: Sequence[Unit]) -> dict[str, bytes]:
    """Return the files that RocketMQ writes for these units."""
    data = b"".join(
        BATCH.pack(record * SIZE, SIZE, 9, 100 + record, first, count, -1, 0)
        for record, first, count in units
    )
    return {
        f"{start:020d}": data[start : start + FILE].ljust(FILE, b"\0")
        for start in range(0, len(data), FILE)
    }


@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
@pytest.mark.parametrize("reopened", [False, True])
def test_units_are_written_as_rocketmq_does(
    tmp_path: Path, at_once: int, *, reopened: bool
) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    for at in range(0, len(UNITS), at_once):
        assert put_batches(store, UNITS[at : at + at_once]) == []
        if reopened:
            store.close()
            store = disk.open(crashed=bool(at % 2))
    assert files(disk) == by_hand(UNITS)
    assert store.queue_type("B") is QueueType.BATCH
    queue = store.queue("B", 0)
    assert queue.ends() == (0, 32_778)
    assert [(u.phy_offset // SIZE, u.queue_offset, u.batch_num) for u in queue.iterate(0)] == UNITS
    store.close()
    store = disk.open()
    assert store.dispatch_from_phy_offset() == 8 * SIZE
    store.close()
    assert not (tmp_path / "consumequeue" / "B").exists()


def test_a_replay_changes_nothing_and_adds_what_is_missing(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    put_batches(store, UNITS[:4])
    before = tree_digest(tmp_path)
    put_batches(store, UNITS[:4])
    put_batches(store, UNITS[1:3])
    assert tree_digest(tmp_path) == before
    put_batches(store, UNITS[2:])
    assert files(disk) == by_hand(UNITS)
    store.close()


def test_a_first_unit_may_have_any_offset_and_gaps_are_allowed(tmp_path: Path) -> None:
    """Records before it have expired; RocketMQ gives offsets to plain messages, but no units."""
    disk = batch_disk(tmp_path)
    units = [(3, 40, 2), (5, 50, 1)]
    store = disk.open()
    put_batches(store, units)
    assert files(disk) == by_hand(units)
    assert store.queue("B", 0).ends() == (40, 51)
    store.close()


@pytest.mark.parametrize(
    ("first", "kept", "dropped"),
    [(0, 0, (0, 8)), (1, 0, (0, 8)), (2, 1, (2, 8)), (4, 1, (2, 8)), (7, 2, (7, 8))],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_unit_before_the_end_begins_a_new_incarnation(
    tmp_path: Path, first: int, kept: int, dropped: tuple[int, int], *, together: bool
) -> None:
    """A broker that deleted the topic had it begin again; the log shows both."""
    disk = batch_disk(tmp_path)
    store = disk.open()
    new = [(8, first, 2), (9, first + 2, 1)]
    if together:
        restarts = put_batches(store, [*UNITS[:3], *new])
    else:
        put_batches(store, UNITS[:3])
        restarts = put_batches(store, new)
    assert restarts == [QueueRestart(KEY, range(*dropped), 8 * SIZE)]
    assert files(disk) == by_hand([*UNITS[:kept], *new])
    assert store.queue("B", 0).max_offset() == first + 3
    store.close()


def test_a_new_incarnation_in_a_gap_keeps_the_unit_before_it(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    put_batches(store, [(1, 0, 3), (2, 10, 2)])
    restarts = put_batches(store, [(5, 5, 1)])
    assert restarts == [QueueRestart(KEY, range(10, 12), 5 * SIZE)]
    assert files(disk) == by_hand([(1, 0, 3), (5, 5, 1)])
    store.close()


def test_a_record_that_is_no_inner_batch_has_no_unit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    put_batches(store, UNITS[:1])
    with caplog.at_level(logging.WARNING):
        assert put(store, 2, rows(2, 1), "B") == []
    assert "the record at 100 in BatchCQ topic 'B' is not an inner batch" in caplog.text
    put_batches(store, [(3, 3, 1)])
    assert files(disk) == by_hand([UNITS[0], (3, 3, 1)])
    store.close()


def test_simple_and_batch_queues_are_put_together(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    batch = UnitBatch()
    batch.add(("T", 0), 0, 0, SIZE, 7, 0)
    batch.add(("B", 1), 0, SIZE, SIZE, 9, 101)
    batch.add(("T", 0), 1, 2 * SIZE, SIZE, 7, 0)
    batch.add(("B", 0), 0, 3 * SIZE, SIZE, 9, 103)
    batch.batch_sizes.update({SIZE: 4, 3 * SIZE: 2})
    store.put_batch(batch)
    assert store.queue("T", 0).ends() == (0, 2)
    assert files(disk, 1) == by_hand([(1, 0, 4)])
    assert files(disk) == by_hand([(3, 0, 2)])
    store.close()


def test_a_topic_with_simple_queues_keeps_them(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(0, 1), "B")
    put_batches(store, [(1, 1, 1)])
    assert store.queue_type("B") is QueueType.SIMPLE
    assert store.queue("B", 0).ends() == (0, 2)
    assert not disk.folder("B", 0, "batchconsumequeue").exists()
    store.close()


def test_units_of_a_full_disk_are_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    put_batches(store, UNITS[:2])
    write = type(store.queue("B", 0)._table.batch["B"][0]).write_file

    def full(*_: object) -> None:
        raise DiskFullError("no space left")

    monkeypatch.setattr("cqstore.cq_file.batch_queue.BatchConsumeQueue.write_file", full)
    with pytest.raises(DiskFullError):
        put_batches(store, UNITS[2:])
    assert store.queue("B", 0).max_offset() == 7
    monkeypatch.setattr("cqstore.cq_file.batch_queue.BatchConsumeQueue.write_file", write)
    put_batches(store, UNITS[2:])
    assert files(disk) == by_hand(UNITS)
    store.close()


def test_a_topic_is_created_by_its_folder_and_ends_with_it(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    store.create_batch_topic("B")
    store.create_batch_topic("B")
    assert store.queue_type("B") is QueueType.BATCH
    store.close()
    store = disk.open()
    assert store.queue_type("B") is QueueType.BATCH
    assert list(store.queues()) == []
    store.delete_topics(["B"])
    assert store.queue_type("B") is QueueType.SIMPLE
    for name in ("..", "a/b"):
        with pytest.raises(IllegalMessageError):
            store.create_batch_topic(name)
    store.close()
    reader = disk.open(read_only=True)
    with pytest.raises(ReadOnlyStoreError):
        reader.create_batch_topic("B")
    reader.close()


def test_a_deleted_queue_leaves_its_topic_the_type(tmp_path: Path) -> None:
    disk = batch_disk(tmp_path)
    store = disk.open()
    put_batches(store, UNITS)
    put_batches(store, UNITS[:1], 1)
    store.delete_queue("B", 0)
    assert list(store.queues()) == [QueueKey("B", 1)]
    store.delete_queue("B", 1)
    assert store.queue_type("B") is QueueType.BATCH
    put_batches(store, UNITS)
    assert files(disk) == by_hand(UNITS)
    store.close()
