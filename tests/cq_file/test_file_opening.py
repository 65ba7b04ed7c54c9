"""Opening file queues: what a clean stop knew is believed queue by queue, the rest is looked at."""

import os
import shutil
from pathlib import Path

import pytest

from cqstore.cq_file._queue_folders import topic_ends
from cqstore.cq_file._short_queue import short_queue
from cqstore.cq_file.known_ends import ends_path
from cqstore.store.errors import CorruptionError, StoreConfigError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.replica_config import rocketmq_key
from tests.kit.faults import EACCES, Faults
from tests.kit.file_queues import BATCH, SIZE, UNIT, Disk, open_below, put, read_all, rows
from tests.kit.tree import tree_digest

WRONG = "a queue file has the wrong size or an invalid name"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Return a store stopped cleanly: three queues, whose last record is the log's."""
    disk = Disk(tmp_path)
    (tmp_path / "lock").touch()
    store = disk.open()
    put(store, 0, rows(0, 13), "a")
    put(store, 2, rows(13, 3), "a", 1)
    put(store, 0, rows(16, 10), "b")
    store.close()
    disk.log.max_phy = 26 * SIZE
    assert ends_path(StorePaths(tmp_path)).exists()
    return disk


ALL = {("a", 0): (0, 13), ("a", 1): (2, 5), ("b", 0): (0, 10)}


@pytest.fixture(autouse=True)
def _short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect the files of short queues in ``_READ``: they are closed at once."""
    _READ.clear()

    def read(path: str, *sizes: int) -> object:
        found = short_queue(path, *sizes)
        _READ.extend([path] if found is not None else [])
        return found

    def find(parent: str, topics: list[str], *span: int) -> object:
        lists = topic_ends(parent, topics, *span)
        _READ.extend(
            f"{parent}/{topic}/{queue_id}/{end[0]}"
            for topic, queues in zip(topics, lists, strict=True)
            for queue_id, end in queues or ()
            if end is not None
        )
        return lists

    monkeypatch.setattr("cqstore.cq_file.recovery.short_queue", read)
    monkeypatch.setattr("cqstore.cq_file.listing.topic_ends", find)


_READ: list[str] = []


def read_below(disk: Disk) -> set[str]:
    """Return the queues of which a file is open, or was read as that of a short queue."""
    folder = disk.root / "consumequeue"
    paths = [*open_below(folder), *_READ]
    return {str(Path(path).parent.relative_to(folder)) for path in paths}


def looked_at(disk: Disk, *, read_only: bool = True) -> set[str]:
    """Open the store; return the queues of which it opened a file."""
    _READ.clear()
    store = disk.open(read_only=read_only)
    spans = {tuple(span.queue): (span.min_offset, span.max_offset) for span in store.spans()}
    assert {key: spans.get(key) for key in ALL} == ALL
    opened = read_below(disk)
    store.close()
    return opened


def test_after_a_clean_stop_no_file_is_opened_and_read_only_none_is_changed(disk: Disk) -> None:
    before = tree_digest(disk.root)
    assert looked_at(disk) == set()
    assert tree_digest(disk.root) == before
    disk.settings.clear()
    assert looked_at(disk) == set(), "what was written down tells the size of the files"
    assert looked_at(disk, read_only=False) == set()


def test_a_queue_that_was_changed_is_looked_at_and_no_other(disk: Disk) -> None:
    disk.log.max_phy += 2 * SIZE
    with disk.file(200, "a").open("r+b") as file:
        file.seek(3 * 20)
        file.write(UNIT.pack(26 * SIZE, SIZE, 7))
    store = disk.open(read_only=True)
    assert read_all(store, "a") == rows(0, 13) + rows(26, 1)
    assert {Path(path).parent.name for path in open_below(disk.root)} == {"0"}
    assert not [path for path in open_below(disk.root) if "/b/" in path]
    assert store.damaged_queues() == []
    store.close()


def test_a_file_of_another_size_is_a_change_even_if_it_has_kept_its_time(disk: Disk) -> None:
    path = disk.file(0, "a")
    times = path.stat()
    os.truncate(path, 180)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    store = disk.open(read_only=True)
    (damage,) = store.damaged_queues()
    assert damage[:3] == (("a", 0), WRONG, str(path))
    store.close()


def test_the_end_of_a_short_queue_in_a_file_of_another_size_is_not_kept(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    *_, path = [disk.write(0, rows(10 * each, 4), "a", each) for each in range(3)]
    disk.log.max_phy = 24 * SIZE
    os.truncate(path, 180)
    store = disk.open(read_only=True)
    assert [store.queue("a", queue_id).ends() for queue_id in range(3)] == [(0, 4), (0, 4), (0, 0)]
    (damage,) = store.damaged_queues()
    assert damage[:3] == (("a", 2), WRONG, str(path))
    store.close()


@pytest.mark.parametrize(("cut", "queues"), [(0, set()), (1, {"a/0", "a/1", "b/0"})])
def test_what_leads_behind_the_logs_end_is_looked_at(
    disk: Disk, cut: int, queues: set[str]
) -> None:
    disk.log.max_phy -= cut
    store = disk.open(read_only=True)
    assert store.queue("b", 0).max_offset() == 10
    assert read_below(disk) == queues
    store.close()


def test_topics_that_came_by_are_looked_at_and_no_others(disk: Disk) -> None:
    shutil.copytree(disk.root / "consumequeue" / "a", disk.root / "consumequeue" / "c")
    with disk.file(200, "c").open("ab") as file:
        file.write(b"x")
    assert looked_at(disk) == {"c/0", "c/1"}
    store = disk.open(read_only=True)
    (damage,) = store.damaged_queues()
    assert damage[:3] == (("c", 0), WRONG, str(disk.file(200, "c")))
    assert list(store.queues()) == [*ALL, ("c", 0), ("c", 1)]
    assert store.queue("c", 1).ends() == (2, 5)
    store.close()


@pytest.mark.parametrize("kind", ["batchconsumequeue", "consumequeue_ext"])
def test_where_other_kinds_came_by_everything_is_looked_at(disk: Disk, kind: str) -> None:
    disk.fill("b", kind)
    assert looked_at(disk) >= {"a/0", "a/1", "b/0"}


def spoil(disk: Disk, name: str) -> None:
    if name == "first file":
        disk.file(0, "a").unlink()
    elif name == "wrong size":
        os.truncate(disk.file(200, "a"), 240)
    elif name == "fewer":
        disk.write(200, rows(10, 2), "a")
    elif name == "blank":
        disk.write(0, [(0, 0x7FFFFFFF, 0), *rows(1, 9)], "a")
    else:
        disk.write(0, [*rows(0, 4), (0, 0, 0), *rows(5, 5)], "a")


MISSING = "queue files that existed at the last clean stop are missing"
FEWER = "units that existed at the last clean stop are missing"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("first file", MISSING), ("wrong size", WRONG), ("fewer", FEWER), ("blank", FEWER),
     ("hole", FEWER)],
)  # fmt: skip
def test_what_a_queue_has_lost_since_is_damage_and_its_ends_stay(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    monkeypatch.setattr("cqstore.cq_file.damage._BLOCK_UNITS", 2)
    spoil(disk, name)
    for read_only in (True, False):
        store = disk.open(read_only=read_only)
        (damage,) = store.damaged_queues()
        path = disk.file(200, "a") if name == "wrong size" else disk.folder("a")
        assert damage == (("a", 0), problem, str(path), 13, None)
        assert store.queue("a", 0).ends() == (0, 13)
        assert store.dispatch_from_phy_offset() == 26 * SIZE
        if not read_only:
            put(store, 13, rows(30, 1), "a")
            put(store, 10, rows(30, 1), "b")
            assert [store.queue(topic, 0).max_offset() for topic in "ab"] == [13, 11]
            store.damage_is_settled()
            assert [each.queue for each in store.damaged_queues()] == [("a", 0)]
            put(store, 13, rows(31, 1), "a")
            assert store.queue("a", 0).max_offset() == 14
        store.close()


def test_without_any_folder_nothing_is_believed(disk: Disk) -> None:
    shutil.rmtree(disk.root / "consumequeue")
    store = disk.open()
    assert list(store.queues()) == []
    assert store.dispatch_from_phy_offset() == 0
    assert not ends_path(StorePaths(disk.root)).exists()
    store.close()


def test_the_folder_of_the_queues_is_made_and_noted_to_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path / "store")
    store = disk.open(read_only=True)
    store.close()
    assert not disk.root.exists()
    with monkeypatch.context() as patched:
        Faults(patched).fail("mkdir", EACCES, "consumequeue")
        disk.root.mkdir()
        with pytest.raises(
            StoreIOError, match="cannot create the folder of the queues: "
        ) as caught:
            disk.open()
    assert caught.value.path == disk.root / "consumequeue"
    store = disk.open()
    assert store._unsynced.folders == {str(disk.root)}
    store.close()


def test_last_files_that_were_never_sized_go_when_a_store_is_opened_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    disk.fill("B", "batchconsumequeue")
    disk.write(0, rows(1, 10))
    empty = [disk.file(200), disk.folder("B", 0, "batchconsumequeue") / f"{138:020d}"]
    for path in empty:
        path.touch()
    disk.open(read_only=True).close()
    assert all(path.exists() for path in empty)
    with monkeypatch.context() as patched:
        Faults(patched).fail("unlink", EACCES, str(empty[0]))
        with pytest.raises(StoreIOError, match="cannot remove an empty queue file: ") as caught:
            disk.open()
    assert caught.value.path == empty[0]
    disk.open().close()
    assert not any(path.exists() for path in empty)


@pytest.mark.parametrize(
    ("setting", "value", "fits"),
    [
        ("mapper_file_size_batch_consume_queue", 138, True),
        ("mapper_file_size_batch_consume_queue", 93, True),  # rounded up to three units
        ("mapper_file_size_batch_consume_queue", 92, False),
        ("mapper_file_size_batch_consume_queue", 139, False),
        ("mapped_file_size_consume_queue_ext", 64, True),
        ("mapped_file_size_consume_queue_ext", 65, False),
        ("mapped_file_size_consume_queue", 200, True),
        ("mapped_file_size_consume_queue", 181, True),
        ("mapped_file_size_consume_queue", 180, False),
    ],
)
def test_each_kind_has_files_of_its_own_size_which_a_setting_has_to_fit(
    tmp_path: Path, setting: str, value: int, *, fits: bool
) -> None:
    disk = Disk(tmp_path, settings={})
    disk.fill("T")
    disk.open(read_only=True).close()
    disk.settings[setting] = value
    if fits:
        store = disk.open()
        assert store.queue("T", 0).max_offset() == 1
        assert [unit.batch_num for unit in store._table.batch["T"][0].iterate(0)] == [2]
        store.close()
        return
    key, found = rocketmq_key(setting), {"b": 138, "e": 64, "c": 200}[kind_of(setting)]
    with pytest.raises(StoreConfigError, match=f"{key}=.*queue files here have {found} ") as caught:
        disk.open()
    assert str(caught.value).count(f"set it to {found}") == 1
    assert caught.value.path is not None
    assert caught.value.path.exists()


def kind_of(setting: str) -> str:
    return "b" if "batch" in setting else "e" if "ext" in setting else "c"


def test_batch_files_that_hold_no_whole_units_are_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.fill("B", "batchconsumequeue")
    path = disk.folder("B", 0, "batchconsumequeue") / f"{0:020d}"
    os.truncate(path, 2 * BATCH.size + 20)
    with pytest.raises(CorruptionError, match="queue files do not hold whole units") as caught:
        disk.open()
    assert caught.value.path == path
    assert (caught.value.expected, caught.value.got) == ("a multiple of 46 bytes", 112)
