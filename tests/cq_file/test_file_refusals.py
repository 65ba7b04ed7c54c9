"""What the file backend refuses: closed, read-only, failed; and how its errors name the place."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cqstore.cq_file.known_ends import ends_path
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import (
    IllegalMessageError,
    QueueGapError,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.time_search import BoundaryType
from tests.kit.call_order import CallOrder
from tests.kit.faults import EACCES, EIO, Faults
from tests.kit.file_queues import ADDRESS, SIZE, Disk, open_below, put, read_all, rows
from tests.kit.tree import tree_digest

WRITES: dict[str, Callable[[FileConsumeQueueStore], object]] = {
    "put": lambda store: put(store, 3, rows(4, 1)),
    "clean": lambda store: store.clean_expired(1),
    "restore": lambda store: store.restore_end("U", 0, 4),
    "restore nothing": lambda store: store.restore_end("..", 0, 4),
    "delete topics": lambda store: store.delete_topics(["T"]),
    "delete queue": lambda store: store.delete_queue("T", 0),
}
READS: dict[str, Callable[[FileConsumeQueueStore], object]] = {
    "recover": lambda store: store.recover(),
    "dispatch": lambda store: store.dispatch_from_phy_offset(),
    "truncate nothing": lambda store: store.truncate_dirty(1 << 50),
    "truncate": lambda store: store.truncate_dirty(0),
    "flush": lambda store: store.flush(),
    "queues": lambda store: store.queues("T"),
    "max": lambda store: store.queue("T", 0).max_offset(),
    "min": lambda store: store.queue("T", 0).min_offset(),
    "units": lambda store: store.queue("T", 0).read_units(0, 1),
    "time": lambda store: store.queue("T", 0).unit_timestamp(0),
    "by time": lambda store: store.queue("T", 0).offset_by_time(1, BoundaryType.LOWER),
    "type": lambda store: store.queue_type("T"),
    "address": lambda store: store.queue("T", 0).resolve_tags_code(ADDRESS),
    "iterate": lambda store: list(store.queue("T", 0).iterate(0)),
    "size": lambda store: store.total_size_bytes(),
    "check": lambda store: store.check_files(),
    "describe": lambda store: store.describe(),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", [*WRITES, *READS])
def test_a_closed_store_refuses_everything(tmp_path: Path, name: str, *, read_only: bool) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 3))
    store = disk.open(read_only=read_only)
    store.close()
    before = tree_digest(tmp_path)
    with pytest.raises(StoreClosedError):
        (WRITES | READS)[name](store)
    assert tree_digest(tmp_path) == before


@pytest.mark.parametrize("name", WRITES)
def test_a_read_only_store_refuses_every_write_and_its_flush_and_close_do_nothing(
    tmp_path: Path, name: str
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 3))
    (tmp_path / "lock").touch()
    store = disk.open(read_only=True)
    calls = CallOrder(tmp_path)
    with calls.watching():
        with pytest.raises(ReadOnlyStoreError):
            WRITES[name](store)
        assert read_all(store) == rows(1, 3)
        store.flush()
        store.close()
    assert calls.made == []


@pytest.mark.parametrize("name", [*WRITES, "truncate", "flush"])
def test_a_store_whose_write_failed_refuses_every_other_and_its_close_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    disk = Disk(tmp_path)
    (tmp_path / "lock").touch()
    store = disk.open()
    put(store, 0, rows(1, 3))
    with monkeypatch.context() as patched:
        Faults(patched).fail("write", EIO, f"{0:020d}")
        with pytest.raises(StoreIOError):
            put(store, 3, rows(4, 1))
    calls = CallOrder(tmp_path)
    with calls.watching():
        with pytest.raises(StoreFailedError):
            (WRITES | READS)[name](store)
        assert read_all(store) == rows(1, 3)
        store.close()
    assert calls.made == []
    assert not ends_path(StorePaths(tmp_path)).exists()


def test_a_name_that_leads_elsewhere_is_no_topic_whose_end_could_be_restored(
    tmp_path: Path,
) -> None:
    store = Disk(tmp_path / "root").open()
    with pytest.raises(IllegalMessageError):
        store.restore_end("../../T", 0, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    store.close()


@pytest.mark.parametrize(("first", "last"), [("load", 0), ("recover", 1)])
def test_only_a_store_that_found_its_ends_writes_them_down(
    tmp_path: Path, first: str, last: int
) -> None:
    disk = Disk(tmp_path)
    (tmp_path / "lock").touch()
    disk.write(0, rows(1, 3))
    context = disk.open(read_only=True).context
    writing = FileConsumeQueueStore(replace(context, read_only=False))
    untouched = FileConsumeQueueStore(writing.context)
    untouched.close()
    assert not ends_path(StorePaths(tmp_path)).exists()
    writing.load()
    if first == "recover":
        writing.recover()
    writing.close()
    assert ends_path(StorePaths(tmp_path)).exists() == bool(last)


@pytest.mark.parametrize("kind", ["batchconsumequeue", "consumequeue_ext"])
def test_ends_are_not_written_down_beside_batch_queues_or_extension_files(
    tmp_path: Path, kind: str
) -> None:
    disk = Disk(tmp_path)
    (tmp_path / "lock").touch()
    disk.fill("T", "consumequeue", kind)
    disk.open().close()
    assert not ends_path(StorePaths(tmp_path)).exists()


@pytest.mark.parametrize("batch", [False, True])
def test_a_file_that_went_before_the_ends_were_found_is_an_error_that_names_the_queue(
    tmp_path: Path, *, batch: bool
) -> None:
    disk = Disk(tmp_path)
    disk.fill("B", "batchconsumequeue")
    disk.write(0, rows(1, 10))
    disk.write(200, rows(11, 3))
    loaded = FileConsumeQueueStore(disk.open(read_only=True).context).load()
    folder = disk.folder("B", 0, "batchconsumequeue") if batch else disk.folder()
    max(folder.iterdir()).unlink()
    kind = "a batch queue" if batch else "a queue"
    with pytest.raises(StoreIOError, match=f"cannot recover {kind}: No such file") as caught:
        loaded.recover()
    assert caught.value.path == folder
    loaded.close()


def test_a_file_that_somebody_removed_is_an_error_of_its_reader_that_names_the_queue(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 10))
    disk.write(200, rows(11, 3))
    store = disk.open()
    disk.file(0).unlink()
    store._cache.forget(str(disk.file(0)))
    with pytest.raises(StoreIOError, match="cannot read a queue: No such file") as caught:
        store.queue("T", 0).read_units(3, 4)
    assert caught.value.path == disk.folder()
    assert list(store.queue("T", 0).read_units(10, 4).rows()) == rows(11, 3)
    store.close()


@pytest.mark.parametrize(
    ("call", "action"),
    [("mkdir", "create a queue folder"), ("truncate", "set the size of a queue file")],
)
def test_what_the_disk_refuses_of_a_new_queue_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, action: str
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    Faults(monkeypatch).fail(call, EACCES, "/consumequeue/T")
    with pytest.raises(StoreIOError, match=f"cannot {action}: Permission denied") as caught:
        put(store, 0, rows(1, 1))
    wanted = disk.folder() if call == "mkdir" else disk.file(0)
    assert caught.value.path == wanted
    store.close()


def test_a_gap_names_folder_offsets_and_record_and_is_one_while_the_last_record_is_in_the_log(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 3))
    disk.log.min_phy = 3 * SIZE  # the queue's last record is the log's first
    with pytest.raises(QueueGapError) as caught:
        put(store, 5, rows(6, 2))
    error = caught.value
    assert (error.path, error.phy_offset) == (disk.folder(), 6 * SIZE)
    assert (error.expected, error.got) == ("queue offset 3", "queue offset 5")
    assert read_all(store) == rows(3, 1)
    disk.log.min_phy += 1
    put(store, 5, rows(6, 2))
    assert read_all(store) == rows(6, 2)
    store.close()


@pytest.mark.parametrize(
    ("name", "action"),
    [("truncate", "truncate the queues"), ("clean", "delete expired queue files")],
)
def test_a_file_that_went_below_the_writer_is_an_error_that_says_what_it_did(
    tmp_path: Path, name: str, action: str
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(0, 25))
    disk.file(0).unlink()
    store._cache.forget(str(disk.file(0)))
    with pytest.raises(StoreIOError, match=f"cannot {action}: No such file") as caught:
        (WRITES | READS)[name](store)
    assert caught.value.path == tmp_path / "consumequeue"
    with pytest.raises(StoreFailedError):
        put(store, 25, rows(30, 1))
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_store_has_no_file_open(tmp_path: Path, *, read_only: bool) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 3))
    store = disk.open(read_only=read_only)
    assert read_all(store) == rows(1, 3)
    assert open_below(tmp_path) == [str(disk.file(0))]
    store.close()
    assert open_below(tmp_path) == []
    with pytest.raises(StoreClosedError):
        store._cache.get(str(disk.file(0)))
