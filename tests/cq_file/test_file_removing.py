"""What is removed is gone durably, and readers know before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.queue.units import QueueKey, UnitBlock
from tests.kit.call_order import Call, CallOrder
from tests.kit.file_queues import ADDRESS, BATCH, KINDS, SIZE, Disk, open_below, put, read_all, rows


@pytest.mark.parametrize("flushed", [False, True])
def test_what_is_removed_is_closed_forgotten_and_durably_gone_in_each_kind_of_folder(
    tmp_path: Path, *, flushed: bool
) -> None:
    disk = Disk(tmp_path)
    for topic in ("T", "U"):
        disk.fill(topic)
    store = disk.open()
    for topic in ("T", "U"):
        put(store, 0, rows(60, 12), topic=topic * 2, queue_id=3)
        assert list(store.queue(topic, 0).iterate(0))
        assert store.queue(topic, 0).resolve_tags_code(ADDRESS) == 0x195
    if flushed:
        store.flush()
    batch, simple = store._table.batch["T"][0], store._table.simple["T"][0]
    generations = batch.generation, simple.generation
    calls = CallOrder(tmp_path)
    seen: list[tuple[int, int]] = []
    calls.at_each = lambda call: seen.append((batch.max_offset, simple.max_offset))
    with calls.watching():
        store.delete_topics(["T", "TT", "never was"])
    assert set(seen) == {(0, 0)}, "readers know before the first file goes"
    assert (batch.generation, simple.generation) > generations
    for kind in KINDS:
        assert not disk.folder("T", 0, kind).parent.exists()
        assert disk.folder("U", 0, kind).exists()
        removed = calls.places("remove", f"{kind}/T")
        assert removed
        assert ("sync", kind) in calls.made[max(removed) :]
    assert not [path for path in open_below(tmp_path) if "(deleted)" in path]
    left = {str(disk.file(0, "UU", 3)), str(disk.file(200, "UU", 3))}
    assert store._unsynced.files == (set() if flushed else left)
    assert not [folder for folder in store._unsynced.folders if "/T" in folder]
    assert store.queue("T", 0).resolve_tags_code(ADDRESS) is None
    assert store.queue("U", 0).resolve_tags_code(ADDRESS) == 0x195
    assert list(store.queues()) == [QueueKey("U", 0), QueueKey("UU", 3)]
    store.close()


def test_a_removed_queue_leaves_its_neighbours_and_begins_anew(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    for queue_id in (0, 1):
        put(store, 0, rows(1 + 20 * queue_id, 12), queue_id=queue_id)
    calls = CallOrder(tmp_path)
    with calls.watching():
        store.delete_queue("T", 0)
    assert calls.made[-1] == ("sync", "consumequeue/T")
    assert not disk.folder().exists()
    assert not [path for path in open_below(tmp_path) if "(deleted)" in path]
    assert store._unsynced.files == {str(disk.file(start, queue_id=1)) for start in (0, 200)}
    assert str(disk.folder()) not in store._unsynced.folders
    assert [store.next_offset("T", queue_id) for queue_id in (0, 1)] == [0, 12]
    assert list(store.queues()) == [QueueKey("T", 1)]
    store.delete_queue("T", 0)
    store.delete_queue("U", 0)
    put(store, 0, rows(50, 2))
    assert read_all(store) == rows(50, 2)
    assert read_all(store, queue_id=1) == rows(21, 12)
    store.close()


@pytest.mark.parametrize("whole", [False, True])
def test_damage_is_forgotten_with_the_queue_that_is_removed(tmp_path: Path, *, whole: bool) -> None:
    disk = Disk(tmp_path)
    for queue_id in range(3):
        for start in (0, 400) if queue_id else (0, 200):
            disk.write(start, rows(1 + start // 20, 10), queue_id=queue_id)
        disk.write(200 if not queue_id else 600, rows(1 + 600 // 20, 3), queue_id=queue_id)
    store = disk.open()
    assert {damage.queue.queue_id for damage in store.damaged_queues()} == {1, 2}
    if whole:
        store.delete_topics(["T"])
    else:
        store.delete_queue("T", 1)
    assert [damage.queue.queue_id for damage in store.damaged_queues()] == ([] if whole else [2])
    for queue_id in (1, 2):
        put(store, 0, rows(50, 2), queue_id=queue_id)
    ends = [store.queue("T", queue_id).max_offset() for queue_id in (1, 2)]
    assert ends == [2, 2 if whole else 33]
    store.close()


Change = Callable[[FileConsumeQueueStore], object]
CHANGES: dict[str, tuple[Change, tuple[int, int]]] = {
    "a cut": (lambda store: store.truncate_dirty(13 * SIZE), (0, 12)),
    "expiry": (lambda store: store.clean_expired(12 * SIZE), (10, 25)),
    "a new incarnation": (lambda store: put(store, 0, rows(60, 2)), (0, 2)),
    "a new incarnation further on": (lambda store: put(store, 31, rows(60, 2)), (31, 33)),
    "a restored end": (lambda store: store.restore_end("T", 0, 7), (7, 7)),
    "deletion": (lambda store: store.delete_topics(["T"]), (0, 0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_reader_is_told_before_a_byte_that_it_was_promised_changes(
    tmp_path: Path, name: str
) -> None:
    """Readers compare the generation before and after; at each call it has risen already."""
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 25))
    if name == "a new incarnation further on":
        disk.log.min_phy = 26 * SIZE
    queue = store._table.simple["T"][0]
    before, calls = queue.generation, CallOrder(tmp_path)
    seen: list[tuple[Call, int, int]] = []
    calls.at_each = lambda call: seen.append((call, queue.generation, queue.max_offset))
    change, bounds = CHANGES[name]
    with calls.watching():
        change(store)
    assert seen
    assert min(generation for _, generation, _ in seen) > before
    assert {end for *_, end in seen} <= {0, *bounds, bounds[0] + 15 if name == "expiry" else 0}
    assert (queue.first_offset, queue.max_offset) == bounds
    if name.startswith(("a new", "a rest")):  # what was read while it was empty is no answer
        assert queue.generation > max(generation for _, generation, _ in seen)
    store.close()


@pytest.mark.parametrize("name", ["a cut", "expiry"])
def test_a_reader_of_a_batch_queue_is_told_before_a_byte_changes(tmp_path: Path, name: str) -> None:
    disk = Disk(tmp_path)
    folder = disk.folder("B", 0, "batchconsumequeue")
    folder.mkdir(parents=True)
    units = [BATCH.pack(at * SIZE, SIZE, 9, 100, 2 * at, 2, -1, 0) for at in range(9)]
    for start in range(3):
        data = b"".join(units[3 * start : 3 * start + 3])
        (folder / f"{start * len(data):020d}").write_bytes(data)
    store = disk.open()
    queue = store._table.batch["B"][0]
    before, calls = queue.generation, CallOrder(tmp_path)
    seen: list[int] = []
    calls.at_each = lambda call: seen.append(queue.generation)
    with calls.watching():
        if name == "a cut":
            assert store.truncate_dirty(4 * SIZE) == 1
        else:
            assert store.clean_expired(7 * SIZE) == 2
    assert seen
    assert min(seen) > before
    assert store.clean_expired(0) == 0
    generation = queue.generation
    store.clean_expired(0)
    assert queue.generation == generation
    store.close()


@pytest.mark.parametrize("how", ["deleted", "started over"])
def test_a_pull_that_a_new_incarnation_overtakes_tells_nothing_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    store = Disk(tmp_path).open()
    put(store, 0, rows(0, 33))
    real = FileConsumeQueue._read_block

    def overtaken(self: FileConsumeQueue, *requested: int) -> UnitBlock:
        monkeypatch.setattr(FileConsumeQueue, "_read_block", real)
        found = real(self, *requested)
        if how == "deleted":
            store.delete_queue("T", 0)
        put(store, 0, rows(50, 2))
        return found

    monkeypatch.setattr(FileConsumeQueue, "_read_block", overtaken)
    queue = store.queue("T", 0)
    low, high, block = queue.pull(0, 5)
    assert block is not None
    between = (0, 0, rows(0, 0))  # the old one was gone, and the new one not there yet
    new = (0, 2, rows(50, 2))
    assert (low, high, list(block.rows())) == (between if how == "deleted" else new)
    low, high, block = queue.pull(0, 5)
    assert block is not None
    assert (low, high, list(block.rows())) == new
    store.close()
