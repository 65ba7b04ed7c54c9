"""More queues than descriptors, and readers beside a writer that cuts under them."""

import os
import resource
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cqstore.cq_file._table import OpenFile
from cqstore.cq_file.descriptor_cache import DescriptorCache, descriptor_limit
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import (
    CorruptionError,
    StoreClosedError,
    StoreError,
    StoreIOError,
    TruncatedRecordError,
)
from cqstore.store.queue.units import UnitBatch
from tests.kit.descriptors import descriptors_of
from tests.kit.faults import EACCES, EMFILE, ENOSPC, Faults
from tests.kit.file_queues import SIZE, UNIT, Disk, Row, open_below, put, read_all, rows

if TYPE_CHECKING:
    from collections.abc import Callable


def test_more_queues_than_descriptors_lose_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path).limited_to(16)
    store = disk.open()
    for step in range(4):
        batch = UnitBatch()
        for queue_id in range(100):
            batch.add(("T", queue_id), step, SIZE * (100 * step + queue_id), SIZE, queue_id, 0)
        store.put_batch(batch)
    assert len(descriptors_of(tmp_path)) <= 16
    store.close()
    again = disk.open()
    for queue_id in range(100):
        assert read_all(again, "T", queue_id) == [
            (SIZE * (100 * step + queue_id), SIZE, queue_id) for step in range(4)
        ]
    assert len(descriptors_of(tmp_path)) <= 16
    again.close()


class Acting(str):
    """A topic that calls ``act`` the n-th time that it is compared."""

    act: "Callable[[], None]"
    left: int
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.left -= 1
        if not self.left:
            self.act()
        return str.__eq__(self, other)


@pytest.mark.parametrize("comparison", [1, 2])
def test_a_file_forgotten_while_a_batch_is_planned_gets_its_units(
    tmp_path: Path, comparison: int
) -> None:
    """The number of the file must not become that of another one before the write."""
    disk, other = Disk(tmp_path), tmp_path / "other"
    other.write_bytes(bytes(SIZE))
    store, opened = disk.open(), list[int]()
    for topic in "TU":
        put(store, 0, rows(1, 1), topic)
    (path,) = disk.folder("T").iterdir()

    def act() -> None:
        store._cache.forget(str(path))
        opened.append(os.open(other, os.O_RDWR))

    topic = Acting("U")
    topic.act, topic.left = act, comparison
    batch = UnitBatch()
    for key in (("T", 0), (topic, 0)):
        batch.add(key, 1, 2 * SIZE, SIZE, 7, 0)
    store.put_batch(batch)
    (number,) = opened
    os.close(number)
    assert read_all(store, "T") == read_all(store, "U") == [*rows(1, 1), (2 * SIZE, SIZE, 7)]
    assert other.read_bytes() == bytes(SIZE)
    store.close()


def test_a_descriptor_in_use_outlives_its_eviction(tmp_path: Path) -> None:
    cache = DescriptorCache(1, read_only=False)
    for name in "ab":
        (tmp_path / name).write_text(name)
    held = cache.get(str(tmp_path / "a"))
    cache.get(str(tmp_path / "b"))
    assert len(cache) == 1
    assert os.pread(held.number, 1, 0) == b"a"
    cache.close()
    assert os.pread(held.number, 1, 0) == b"a"
    number = held.number
    del held
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    with pytest.raises(StoreClosedError):
        cache.get(str(tmp_path / "a"))


def test_the_least_recently_used_file_goes_first(tmp_path: Path) -> None:
    cache = DescriptorCache(2, read_only=False)
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        Path(path).touch()
    first = cache.get(paths[0])
    second_number = cache.get(paths[1]).number
    cache.get(paths[0])
    third = cache.get(paths[2])  # may be given the number that just came free
    assert cache.get(paths[0]) is first
    assert len(cache) == 2
    assert third.number == second_number
    cache.close()


def test_a_file_that_is_used_again_and_again_stays(tmp_path: Path) -> None:
    cache = DescriptorCache(3, read_only=False)
    paths = [str(tmp_path / str(number)) for number in range(20)]
    for path in paths:
        Path(path).touch()
    kept = cache.get(paths[0])
    for path in paths[1:]:
        cache.get(path)
        assert cache.get(paths[0]) is kept
        assert len(cache) <= 3


def test_one_goes_also_where_all_were_used(tmp_path: Path) -> None:
    cache = DescriptorCache(3, read_only=False)
    paths = [str(tmp_path / name) for name in "abcd"]
    for path in paths:
        Path(path).touch()
    for path in [*paths[:3], *paths[:3]]:
        cache.get(path)
    cache.get(paths[3])
    assert [*cache.entries] == paths[1:]


def test_a_file_made_anew_under_the_same_name_is_opened_anew(tmp_path: Path) -> None:
    cache = DescriptorCache(4, read_only=False)
    path = tmp_path / "a"
    old = cache.create(str(path), 1)
    path.unlink()
    cache.forget(str(path))
    new = cache.create(str(path), 2)
    assert (os.fstat(old.number).st_size, os.fstat(new.number).st_size) == (1, 2)
    cache.close()


def test_an_open_file_is_closed_with_its_last_holder(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    one = OpenFile(os.open(tmp_path / "a", os.O_RDONLY), "a")
    number, other = one.number, one
    del one
    assert os.fstat(number).st_size == 0
    del other
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.parametrize("number", [-1, -5, 1 << 31, 1 << 70, "0", None])
def test_what_is_no_descriptor_opens_and_closes_nothing(number: Any) -> None:
    before = os.fstat(0)
    with pytest.raises((ValueError, OverflowError, TypeError)):
        OpenFile(number, "a")
    assert os.fstat(0) == before


def faults_of_a_look(store: FileConsumeQueueStore, queue_id: int) -> list[str]:
    """Read the beginning of a queue; each unit tells its own offset."""
    try:
        block = store.queue("T", queue_id).read_units(store.queue("T", queue_id).min_offset(), 40)
    except StoreError as exc:
        return [repr(exc)]
    return [
        f"unit {index} of queue {queue_id}: {row}"
        for index, row in enumerate(block.rows(), block.queue_offset)
        if row[1:] != (SIZE, index) or row[0] % SIZE
    ]


def churn(store: FileConsumeQueueStore) -> None:
    """Write, let start over, cut, expire and delete twelve queues."""
    record = 0
    for step in range(12):
        for queue_id in range(12):
            begin = 0 if step % 3 == 0 else store.queue("T", queue_id).max_offset()
            put(
                store,
                begin,
                [(SIZE * (record + i), SIZE, begin + i) for i in range(25)],
                queue_id=queue_id,
            )
            record += 25
        if step % 4 == 3:
            store.truncate_dirty(SIZE * (record - 40))
        if step % 5 == 4:
            store.clean_expired(SIZE * (record - 200))
        if step == 7:
            store.delete_topics(["T"])


@pytest.mark.slow
def test_readers_never_see_a_unit_that_was_cut_or_half_written(tmp_path: Path) -> None:
    store = Disk(tmp_path).limited_to(16).open()
    stop = threading.Event()
    faults: list[str] = []

    def read() -> None:
        while not stop.is_set() and not faults:
            for queue_id in range(12):
                faults.extend(faults_of_a_look(store, queue_id))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    churn(store)
    stop.set()
    for reader in readers:
        reader.join()
    store.close()
    assert faults == []


@pytest.mark.parametrize("change", ["cut", "restart", "delete"])
def test_a_read_that_a_cut_overtook_is_made_again(tmp_path: Path, change: str) -> None:
    """The cut comes between a reader's look at the end and its read: the worst moment."""
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 25))
    queue = store._table.simple["T"][0]
    changes: dict[str, tuple[Callable[[], object], list[Row]]] = {
        "cut": (lambda: store.truncate_dirty(5 * SIZE), rows(1, 4)),
        "restart": (lambda: put(store, 0, rows(50, 2)), rows(50, 2)),
        "delete": (lambda: store.delete_topics(["T"]), []),
    }
    overtake, left = changes[change]
    once = [overtake]

    def read() -> list[Row]:
        end = queue.max_offset
        if once:
            once.pop()()
        return list(UNIT.iter_unpack(queue.read(0, end * UNIT.size)))

    assert queue.stable(read) == left
    store.close()


def test_a_read_of_a_file_made_anew_that_has_no_length_yet_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader knows the file that was removed; one of that name is made, and is empty at first."""
    store = Disk(tmp_path).open()
    put(store, 0, rows(1, 25))
    queue = store._table.simple["T"][0]
    size, met = os.ftruncate, list[StoreError]()

    def met_before_it_is_sized(number: int, length: int) -> None:
        with pytest.raises(TruncatedRecordError, match="the queue file is truncated") as caught:
            queue._read_file(0, 0, UNIT.size)
        met.append(caught.value)
        monkeypatch.undo()
        size(number, length)

    monkeypatch.setattr(os, "ftruncate", met_before_it_is_sized)
    once = [lambda: put(store, 0, rows(50, 2))]

    def read() -> list[Row]:
        if once:
            once.pop()()
            raise met[0]
        return list(UNIT.iter_unpack(queue.read(0, queue.max_offset * UNIT.size)))

    assert queue.stable(read) == rows(50, 2)
    store.close()


@pytest.mark.parametrize(
    ("soft", "wanted", "limit"),
    [
        (resource.RLIM_INFINITY, 100_000, 100_000), (resource.RLIM_INFINITY, 3, 8),
        (1024, 100_000, 768), (1024, 768, 768), (1024, 767, 767), (1024, 3, 8),
        (300, 100_000, 150), (301, 100_000, 151), (10, 100_000, 8),
    ],
)  # fmt: skip
def test_of_the_descriptors_that_the_process_may_have_some_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch, soft: int, wanted: int, limit: int
) -> None:
    """256 of them, half where there are few; but eight are taken in any case."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert descriptor_limit(wanted) == limit


@pytest.mark.parametrize(("held", "left"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_without_a_free_descriptor_half_of_what_is_open_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, left: int
) -> None:
    cache = DescriptorCache(8, read_only=False)
    for number in range(6):
        (tmp_path / str(number)).touch()
    for number in range(held):
        cache.get(str(tmp_path / str(number)))
    Faults(monkeypatch).fail("open", EMFILE, str(tmp_path), times=1)
    cache.get(str(tmp_path / "5"))
    assert open_below(tmp_path) == [str(tmp_path / str(at)) for at in [*range(held), 5][-left:]]
    cache.close()
    assert open_below(tmp_path) == []


@pytest.mark.parametrize(("code", "held"), [(EMFILE, 0), (EACCES, 0), (EACCES, 3)])
def test_a_file_that_cannot_be_opened_is_named_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, held: int
) -> None:
    cache = DescriptorCache(8, read_only=False)
    for number in range(4):
        (tmp_path / str(number)).touch()
    for number in range(held):
        cache.get(str(tmp_path / str(number)))
    Faults(monkeypatch).fail("open", code, "/3")
    with pytest.raises(StoreIOError, match="cannot open a queue file: ") as caught:
        cache.get(str(tmp_path / "3"))
    assert caught.value.path == tmp_path / "3"
    assert len(cache) == held
    cache.close()


def test_what_is_missing_or_no_file_is_no_queue_file(tmp_path: Path) -> None:
    cache = DescriptorCache(8, read_only=False)
    for call in (cache.get, lambda path: cache.create(path, 9)):
        with pytest.raises(FileNotFoundError):
            call(str(tmp_path / "gone" / "a"))
    with pytest.raises(CorruptionError):
        cache.get(str(tmp_path))
    cache.forget(str(tmp_path / "gone"))
    assert len(cache) == 0
    cache.close()


def test_a_file_is_opened_to_be_written_only_where_the_store_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    reading = DescriptorCache(8, read_only=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(reading.get(str(tmp_path / "a")).number, b"x", 0)
    reading.close()
    writing = DescriptorCache(8, read_only=False)
    assert os.pwrite(writing.get(str(tmp_path / "a")).number, b"x", 0) == 1
    made = writing.create(str(tmp_path / "b"), 5)
    assert writing.get(str(tmp_path / "b")) is made
    assert os.pwrite(made.number, b"y", 4) == 1
    writing.create(str(tmp_path / "a"), 2)
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"xl", b"\0\0\0\0y"]
    writing.close()
    with pytest.raises(StoreClosedError):
        writing.get(str(tmp_path / "a"))


def test_a_file_that_cannot_be_sized_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DescriptorCache(8, read_only=False)
    Faults(monkeypatch).fail("truncate", ENOSPC, "/a")
    with pytest.raises(StoreIOError, match="cannot set the size of a queue file: ") as caught:
        cache.create(str(tmp_path / "a"), 5)
    assert caught.value.path == tmp_path / "a"
    cache.close()
