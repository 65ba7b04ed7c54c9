"""Units at the ends of queues in files: the core leaves what Python leaves, also in a fault."""

import os
import resource
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.cq_file._table import OpenFile
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import (
    CorruptionError,
    RetryableDiskFullError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.queue.units import MAX_UNITS, QueueKey, UnitBatch
from tests.kit.declining import DeclinesAppends
from tests.kit.file_queues import SIZE, UNIT, Disk, NoLog, put, read_all, rows

QUEUES = 4
NOTES = "note_files"
steps = st.lists(
    st.tuples(
        st.integers(0, QUEUES - 1),
        st.integers(1, 12),  # units: a file has room for ten
        st.sampled_from([0, 0, 0, 0, 0, 0, -1, -3, 1, 7]),  # where, counted from the end
        st.sampled_from([1, 1, 1, 1, 0, -40, -(1 << 40)]),  # records since the last one
        st.sampled_from([1, 1, 1, 1, 0, -1]),  # records from one to the next
    ),
    min_size=1,
    max_size=8,
)


class Both:
    """The same batches for a store with the core, and for one without."""

    def __init__(self, root: Path, log: NoLog) -> None:
        self.disks = [Disk(root / name, log) for name in ("core", "slow")]
        self.core, self.slow = (disk.open() for disk in self.disks)
        self.slow._appends = DeclinesAppends()  # type: ignore[assignment]

    def put(self, batch: UnitBatch) -> object:
        """Put ``batch`` into both, which answer alike; return what they did."""
        found = [outcome(store, batch) for store in (self.core, self.slow)]
        assert found[0] == found[1]
        return found[0]

    def check_alike(self) -> None:
        """Compare what both know, and their files."""
        assert state(self.core) == state(self.slow)
        assert content(self.disks[0].root) == content(self.disks[1].root)

    def close(self) -> None:
        self.core.close()
        self.slow.close()


def content(root: Path) -> dict[Path, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root): path.read_bytes() for path in files}


def outcome(store: FileConsumeQueueStore, batch: UnitBatch) -> object:
    try:
        return store.put_batch(batch)
    except Exception as exc:  # noqa: BLE001 - of the other one the same is asked
        return type(exc), str(exc).replace("/core/", "/slow/")


def state(store: FileConsumeQueueStore) -> object:
    """All that is known of each queue, and what a sync would touch."""
    queues = {
        (topic, queue_id): ends(queue)
        for topic, queues in store._table.simple.items() for queue_id, queue in queues.items()
    }  # fmt: skip
    noted = {Path(path).relative_to(store._folder): size
             for path, size in store._unsynced._files.items()}  # fmt: skip
    return queues, noted, len(store._unsynced.folders)


def ends(queue: FileConsumeQueue) -> list[object]:
    tail = queue._tail_path
    return [
        queue.first_offset, queue.max_offset, queue.last_phy, queue.end_phy, queue.starts,
        queue.generation, tail and Path(tail).name, queue._tail_position,
    ]  # fmt: skip


def batch_of(*runs: tuple[int, ...]) -> UnitBatch:
    """Return a batch of runs: queue, first offset, first record, count, step of the records."""
    batch = UnitBatch()
    for queue_id, offset, record, count, *step in runs:
        for at, (phy, size, tags_code) in enumerate(rows(record, count, record)):
            moved = phy + at * SIZE * (step[0] - 1) if step else phy
            batch.add(("T", queue_id), offset + at, moved, size, tags_code, 0)
    return batch


@settings(max_examples=150)
@given(
    batches=st.lists(steps, min_size=2, max_size=8),
    begin=st.sampled_from([0, 0, MAX_UNITS - 30]),
    record=st.sampled_from([1, 1, (1 << 62) // SIZE - 20]),
)
def test_core_and_twin_leave_the_same(
    batches: list[list[tuple[int, int, int, int, int]]], begin: int, record: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both = Both(Path(folder), NoLog(min_phy=500))
        known = [begin] * QUEUES
        for given_steps in batches:
            runs = []
            for queue_id, count, beside, gap, step in given_steps:
                offset, first = max(known[queue_id] + beside, 0), record + gap
                runs.append((queue_id, offset, first, count, step))
                known[queue_id], record = offset + count, max(first, 0) + count
            if isinstance(both.put(batch_of(*runs)), tuple):
                break  # a gap ends all: how far the other queues are is not told
            both.check_alike()
        both.close()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def store(disk: Disk) -> Iterator[FileConsumeQueueStore]:
    """Three queues of two units each, whose files are open."""
    opened = disk.open()
    opened.put_batch(batch_of((0, 0, 1, 2), (1, 0, 3, 2), (2, 0, 5, 2)))
    yield opened
    opened.close()


def more() -> UnitBatch:
    """Three units more for each of the queues."""
    return batch_of((0, 2, 11, 3), (1, 2, 14, 3), (2, 2, 17, 3))


def left_by(store: FileConsumeQueueStore, batch: UnitBatch) -> list[int]:
    return list(store._appends.append(batch, store._damaged.held_back))


def queue_of(store: FileConsumeQueueStore, queue_id: int) -> FileConsumeQueue:
    return store._table.simple["T"][queue_id]


def test_plain_queues_are_written_without_a_line_of_python_each(
    store: FileConsumeQueueStore,
) -> None:
    called: list[str] = []
    sys.setprofile(
        lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None
    )
    try:
        left = left_by(store, more())
    finally:
        sys.setprofile(None)
    assert left == [0, 0, 0]
    assert called.count(NOTES) == 1
    assert not {*called} & {"append", "write_file", "note_file", "get", "write_all"}
    for queue_id, (old, new) in enumerate([(1, 11), (3, 14), (5, 17)]):
        assert read_all(store, "T", queue_id) == [*rows(old, 2, old), *rows(new, 3, new)]


def test_what_is_not_plain_is_left_untouched(store: FileConsumeQueueStore) -> None:
    before = state(store)
    odd = [
        (0, 3, 11, 1),  # a gap
        (1, 2, 4, 1),  # the last record again
        (2, 2, 11, 9),  # more than the file has room for
        (3, 0, 11, 1),  # a queue that is not there
    ]
    assert left_by(store, batch_of(*odd)) == [1, 1, 1, 1]
    assert state(store) == before
    assert left_by(store, batch_of((0, 2, 20, 1), (0, 4, 22, 1), (1, 2, 21, 1))) == [1, 0]


def test_a_queue_that_is_held_back_is_left(store: FileConsumeQueueStore) -> None:
    store._damaged.held_back.add(QueueKey("T", 1))
    store.put_batch(more())
    assert [queue_of(store, queue_id).max_offset for queue_id in range(3)] == [5, 2, 5]


def test_a_queue_that_is_named_twice_is_left(store: FileConsumeQueueStore) -> None:
    batch = batch_of((0, 2, 11, 1), (1, 2, 12, 1))
    batch.queues[1] = batch.queues[0]
    before = state(store)
    assert left_by(store, batch) == [1, 1]
    assert state(store) == before


@pytest.mark.parametrize("offset", [-1, MAX_UNITS, MAX_UNITS + 1])
def test_an_impossible_offset_is_refused_before_anything_is_written(
    store: FileConsumeQueueStore, disk: Disk, offset: int
) -> None:
    before = content(disk.root)
    sound, batch = batch_of((0, 2, 11, 3), (1, 2, 14, 1)), UnitBatch()
    offsets = array("q", [*[*sound.queue_offset][:-1], offset])
    batch.take(sound.queues, bytes(sound.queue_index), offsets.tobytes(), bytes(sound.units))
    with pytest.raises(CorruptionError, match="invalid queue offset"):
        store.put_batch(batch)
    assert content(disk.root) == before
    assert queue_of(store, 0).max_offset == 2


def loose(batch: UnitBatch) -> Any:
    """Return something with the columns of a batch that can be anything."""
    return SimpleNamespace(
        queues=[*batch.queues], queue_index=array("i", batch.queue_index),
        queue_offset=array("q", batch.queue_offset), units=bytearray(batch.units),
    )  # fmt: skip


def test_columns_of_other_lengths_and_queues_that_are_not_there_are_left(
    store: FileConsumeQueueStore,
) -> None:
    before = state(store)
    for name in ("queue_index", "queue_offset", "units", "queues"):
        batch = loose(more())
        getattr(batch, name).pop()
        assert all(left_by(store, batch)), name
    for index in (-1, 3):
        batch = loose(more())
        batch.queue_index[0] = index
        assert all(left_by(store, batch)), index
    assert left_by(store, UnitBatch()) == []
    assert state(store) == before


# ---- faults


@contextmanager
def refusing(store: FileConsumeQueueStore, queue_id: int) -> Iterator[None]:
    """Let the system refuse writes of a queue's file: it was opened to read."""
    path = queue_of(store, queue_id)._tail_path
    assert path is not None
    entries = store._cache.entries
    writable, entries[path] = entries[path], OpenFile(os.open(path, os.O_RDONLY), path)
    try:
        yield
    finally:
        entries[path] = writable


def test_a_refused_write_leaves_its_queue_and_those_behind_to_the_slow_path(
    store: FileConsumeQueueStore,
) -> None:
    with refusing(store, 1):
        batch = more()
        assert left_by(store, batch) == [0, 1, 1]
        assert [queue_of(store, queue_id).max_offset for queue_id in range(3)] == [5, 2, 2]
    runs = batch.runs()
    store._put_runs(runs)  # what the core has written is known by its records, and passed over
    for queue_id, (old, new) in enumerate([(1, 11), (3, 14), (5, 17)]):
        assert read_all(store, "T", queue_id) == [*rows(old, 2, old), *rows(new, 3, new)]


def test_a_write_that_is_refused_again_fails_the_store(
    store: FileConsumeQueueStore, disk: Disk
) -> None:
    with refusing(store, 1), pytest.raises(StoreIOError, match="cannot write a queue file") as hit:
        store.put_batch(more())
    assert hit.value.path == disk.file(0, queue_id=1)
    assert [queue_of(store, queue_id).max_offset for queue_id in range(3)] == [5, 2, 2]
    with pytest.raises(StoreFailedError):
        store.put_batch(batch_of((0, 5, 30, 1)))
    again = disk.open(crashed=True)
    again.put_batch(more())
    assert [queue_of(again, queue_id).max_offset for queue_id in range(3)] == [5, 5, 5]
    assert read_all(again, "T", 1) == [*rows(3, 2, 3), *rows(14, 3, 14)]
    again.close()


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let the system take nothing behind ``size`` bytes of any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("taken", [1, 19, 20, 21, 59])
def test_a_write_that_the_system_takes_in_part_is_made_again(
    store: FileConsumeQueueStore, disk: Disk, taken: int
) -> None:
    batch, before = more(), ends(queue_of(store, 0))
    with files_end_at(2 * 20 + taken):
        assert left_by(store, batch) == [1, 1, 1]
    units = b"".join(UNIT.pack(*row) for row in rows(11, 3, 11))
    assert disk.file().read_bytes()[40:100] == units[:taken].ljust(60, b"\0")
    assert ends(queue_of(store, 0)) == before
    store._put_runs(batch.runs())
    assert read_all(store) == [*rows(1, 2, 1), *rows(11, 3, 11)]


def test_a_file_that_takes_no_more_waits_for_room(store: FileConsumeQueueStore) -> None:
    with files_end_at(55), pytest.raises(RetryableDiskFullError, match="File too large"):
        store.put_batch(more())
    assert queue_of(store, 0).max_offset == 2
    store.put_batch(more())
    assert read_all(store) == [*rows(1, 2, 1), *rows(11, 3, 11)]


def test_bytes_are_in_the_file_when_it_is_noted_and_ends_move_behind_that(
    store: FileConsumeQueueStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    seen = []
    real = UnsyncedFiles.note_files

    def noting(self: UnsyncedFiles, paths: list[str], sizes: list[int]) -> None:
        seen.append((disk.units(queue_id=2)[2:5], queue_of(opened, 2).max_offset, len(paths)))
        real(self, paths, sizes)

    monkeypatch.setattr(UnsyncedFiles, NOTES, noting)
    opened = disk.open()
    put(opened, 2, rows(16, 1, 16), queue_id=2)  # the first one opens the file
    opened.put_batch(batch_of((2, 3, 17, 2)))
    assert seen[-1] == ([*rows(16, 1, 16), *rows(17, 2, 17)], 3, 1)
    opened.close()


class Interrupted(BaseException):
    """As a signal's handler raises it."""


def test_an_interrupt_between_the_writes_and_the_ends_leaves_the_ends(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(UnsyncedFiles, NOTES, interrupt)
    store = disk.open()
    first, last = batch_of((0, 0, 1, 2), (1, 0, 3, 2)), batch_of((0, 2, 11, 3), (1, 2, 14, 3))
    with monkeypatch.context() as patched:
        patched.setattr(store, "_appends", DeclinesAppends())
        store.put_batch(first)
    with pytest.raises(Interrupted):
        store.put_batch(last)
    assert [queue_of(store, queue_id).max_offset for queue_id in range(2)] == [2, 2]
    again = disk.open(crashed=True)
    again.put_batch(first)
    again.put_batch(last)
    for queue_id, (old, new) in enumerate([(1, 11), (3, 14)]):
        assert read_all(again, "T", queue_id) == [*rows(old, 2, old), *rows(new, 3, new)]
    again.close()


def test_files_that_were_let_go_are_opened_by_the_slow_path(tmp_path: Path) -> None:
    disk = Disk(tmp_path).limited_to(16)
    store = disk.open()
    for turn in range(3):
        store.put_batch(batch_of(*((at, turn, 20 * turn + at, 1) for at in range(20))))
    assert {queue_of(store, at).max_offset for at in range(20)} == {3}
    assert len(store._cache) == 16
    assert read_all(store, "T", 19) == [(SIZE * at, SIZE, at) for at in (19, 39, 59)]
    store.close()


def test_a_file_that_appends_use_stays_open_while_others_are_let_go(tmp_path: Path) -> None:
    """Files that were not used since the last round are closed first."""
    disk = Disk(tmp_path).limited_to(16)
    store = disk.open()
    for turn in range(17):  # one more than there is room for: a round, after which none is in use
        store.put_batch(batch_of((turn, 0, turn, 1)))
    assert left_by(store, batch_of((1, 1, 100, 1))) == [0]
    store.put_batch(batch_of((17, 0, 200, 1)))
    assert left_by(store, batch_of((1, 2, 300, 1))) == [0], "its file is open"
    assert left_by(store, batch_of((2, 1, 400, 1))) == [1], "its file was let go instead"
    store.close()
