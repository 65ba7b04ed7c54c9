"""What a sync of queue files takes: told by its system calls, with and without ``syncfs``."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_file.file_sync import UnsyncedFiles, remove_folders
from cqstore.store.errors import StoreIOError
from tests.kit.call_order import CallOrder
from tests.kit.faults import EACCES, EIO, Faults
from tests.kit.file_queues import FILE_SIZE, Disk, put, rows
from tests.kit.shim import Shim


def noted(root: Path, count: int) -> tuple[UnsyncedFiles, DescriptorCache, list[str]]:
    """Return ``count`` files of 100 changed bytes each, and their folder."""
    unsynced, cache = UnsyncedFiles(), DescriptorCache(200, read_only=False)
    paths = [str(root / f"{number:03d}") for number in range(count)]
    for path in paths:
        Path(path).touch()
        unsynced.note_file(path, 100)
    unsynced.note_folder(str(root))
    return unsynced, cache, paths


def with_syncfs(monkeypatch: pytest.MonkeyPatch, syncfs: Callable[[int], int] | None) -> None:
    monkeypatch.setattr("cqstore.cq_file.file_sync.find_syncfs", lambda: syncfs)


@pytest.mark.parametrize("count", [1, 63, 64, 70])
def test_without_syncfs_each_file_is_synced_and_then_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    with_syncfs(monkeypatch, None)
    unsynced, cache, paths = noted(tmp_path, count)
    calls = CallOrder(tmp_path)
    with calls.watching():
        unsynced.sync(cache)
    assert calls.made == [*(("sync", Path(path).name) for path in paths), ("sync", ".")]
    assert not unsynced.files
    assert not unsynced.folders
    cache.close()


@pytest.mark.parametrize(("count", "calls"), [(63, 0), (64, 1), (70, 1)])
def test_many_files_are_synced_at_once_by_the_first_that_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, calls: int
) -> None:
    synced: list[str] = []

    def syncfs(fd: int) -> int:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        return 0

    with_syncfs(monkeypatch, syncfs)
    unsynced, cache, paths = noted(tmp_path, count)
    for path in paths[:2]:
        Path(path).unlink()
    unsynced.sync(cache)
    assert synced == ["002"] * calls
    assert not unsynced.files
    cache.close()


def test_what_the_file_system_could_not_write_stays_noted_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def syncfs(_: int) -> int:
        ctypes.set_errno(EIO)
        return -1

    with_syncfs(monkeypatch, syncfs)
    unsynced, cache, paths = noted(tmp_path, 64)
    with pytest.raises(StoreIOError, match="cannot flush the queues' file system: ") as caught:
        unsynced.sync(cache)
    assert caught.value.path == Path(paths[0])
    assert unsynced.files == {*paths}
    assert unsynced.folders == {str(tmp_path)}
    cache.close()


@pytest.mark.parametrize(("part", "what"), [("/001", "file"), ("", "folder")])
def test_a_sync_that_failed_is_made_again_with_all_that_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, what: str
) -> None:
    root = tmp_path / "queue"
    root.mkdir()
    unsynced, cache, paths = noted(root, 3)
    with monkeypatch.context() as patched:
        real = os.fdatasync if part else os.fsync

        def refused(fd: int) -> None:
            if str(Path(f"/proc/self/fd/{fd}").readlink()) == f"{root}{part}":
                raise OSError(EIO, os.strerror(EIO))
            real(fd)

        patched.setattr(os, "fdatasync" if part else "fsync", refused)
        with pytest.raises(StoreIOError, match=f"cannot flush a queue {what}: ") as caught:
            unsynced.sync(cache)
        assert caught.value.path == Path(f"{root}{part}")
    assert unsynced.files == {*paths}
    assert unsynced.folders == {str(root)}
    unsynced.note_file(paths[1], 50)
    calls = CallOrder(root)
    with calls.watching():
        unsynced.sync(cache, 150)
    assert calls.made == [("sync", "001")], "together 150 bytes, and no folder in part"
    assert unsynced.files == {paths[0], paths[2]}
    calls.made.clear()
    with calls.watching():
        unsynced.sync(cache)
        unsynced.sync(cache)
    assert sorted(calls.made) == [("sync", "."), ("sync", "000"), ("sync", "002")]
    cache.close()


def test_folders_and_files_that_went_are_nothing_to_sync(tmp_path: Path) -> None:
    unsynced, cache, paths = noted(tmp_path, 2)
    unsynced.note_folder(str(tmp_path / "gone"))
    Path(paths[0]).unlink()
    calls = CallOrder(tmp_path)
    with calls.watching():
        unsynced.sync(cache)
    assert calls.made == [("sync", "001"), ("sync", ".")]
    cache.close()


def test_many_topics_are_removed_side_by_side_and_their_folder_is_synced_once(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    topics = [f"t{number:03d}" for number in range(40)]
    for number, topic in enumerate(topics):
        put(store, 0, rows(number, 1), topic)
    calls = CallOrder(tmp_path)
    with calls.watching():
        store.delete_topics(topics)
    assert not list((tmp_path / "consumequeue").iterdir())
    assert calls.places("sync", "") == [len(calls.made) - 1]
    assert calls.made[-1] == ("sync", "consumequeue")
    store.close()


def test_the_folder_above_one_that_is_gone_already_is_synced_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "there").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").touch()
    calls = CallOrder(tmp_path)
    with calls.watching():
        remove_folders([tmp_path / name for name in ("a/there", "a/gone", "b/gone", "c/gone")])
        remove_folders([tmp_path / "b" / "file"])
    assert calls.places("sync", "c") == []
    assert {call for call in calls.made if call[0] == "sync"} == {("sync", "a"), ("sync", "b")}
    assert (tmp_path / "b" / "file").exists()
    (tmp_path / "a" / "kept").mkdir()
    (tmp_path / "a" / "kept" / "file").touch()
    Faults(monkeypatch).fail("unlink", EACCES, "file")
    with pytest.raises(StoreIOError, match="cannot remove a queue folder: ") as caught:
        remove_folders([tmp_path / "a" / "kept"])
    assert caught.value.path == tmp_path / "a" / "kept"


def test_a_sync_in_the_middle_of_a_write_leaves_the_file_noted(tmp_path: Path) -> None:
    """It was crossed off by a sync that came between the note and the bytes."""
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 1))
    synced = []

    def sync_before(kind: str, path: str) -> None:
        if kind == "pwrite":
            store.flush()
            synced.append(path)

    with Shim() as shim:
        shim.watch(tmp_path)
        shim.notify(sync_before, "")  # in any thread
        put(store, 1, rows(2, 1))  # into the open file
        assert store._unsynced.files == {str(disk.file())}
        put(store, 2, rows(3, 12))  # and on into the next
        assert store._unsynced.files == {str(disk.file(FILE_SIZE))}, (
            "the first was synced behind it"
        )
    assert synced == [str(disk.file())] * 2 + [str(disk.file(FILE_SIZE))]
    store.close()
