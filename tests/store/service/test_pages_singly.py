"""``SYNC_FLUSH``: the kernel brings in the log's pages one by one; what a sync writes is small.

What the kernel does is read from ``/proc``: ``rr`` among the flags of a map is ``MADV_RANDOM``.
"""

import threading
from pathlib import Path

import pytest

from cqstore import FlushDiskType, Message, MessageStore, StoreConfig
from cqstore.store.service.opening.components import components_of

FILE = 1 << 20
SMAPS = Path("/proc/self/smaps")

pytestmark = pytest.mark.skipif(not SMAPS.exists(), reason="the system does not say")


def flags(path: Path) -> set[str]:
    """Return the flags of the one map of a file."""
    found: list[set[str]] = []
    is_its = False
    for line in SMAPS.read_text("utf-8").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            is_its = words[-1] == str(path)
        elif is_its and words[0] == "VmFlags:":
            found.append(set(words[1:]))
    (only,) = found
    return only


def config(flush: FlushDiskType) -> StoreConfig:
    return StoreConfig(mapped_file_size_commit_log=FILE, flush_disk_type=flush)


def log_file(root: Path, start: int = 0) -> Path:
    return root / "commitlog" / f"{start:020d}"


def test_pages_come_singly_to_the_file_that_is_synced_put_by_put(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config(FlushDiskType.SYNC_FLUSH)) as store:
        store.put_message(Message("t", b"x"))
        assert "rr" in flags(log_file(tmp_path))
        for _ in range(2):
            store.put_message(Message("t", bytes(FILE // 2)))
        assert "rr" in flags(log_file(tmp_path, FILE))
        assert "rr" not in flags(log_file(tmp_path)), "it is full: now it is read"


def test_they_do_so_when_the_store_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        with MessageStore.open(tmp_path, config(FlushDiskType.SYNC_FLUSH)) as store:
            store.put_message(Message("t", b"x"))
            assert "rr" in flags(log_file(tmp_path))


def test_a_map_that_is_made_again_has_them_too(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config(FlushDiskType.SYNC_FLUSH)) as store:
        store.put_message(Message("t", b"x"))
        current = components_of(store).log.current
        assert current is not None
        current.unmap()
        store.put_message(Message("t", b"x"))
        assert "rr" in flags(log_file(tmp_path))


def test_a_log_that_is_synced_now_and_then_is_read_ahead(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config(FlushDiskType.ASYNC_FLUSH)) as store:
        store.put_message(Message("t", b"x"))
        assert "rr" not in flags(log_file(tmp_path))


def test_no_thread_goes_ahead_of_a_log_that_is_synced_put_by_put(tmp_path: Path) -> None:
    for flush, ahead in ((FlushDiskType.SYNC_FLUSH, False), (FlushDiskType.ASYNC_FLUSH, True)):
        with MessageStore.open(tmp_path / flush, config(flush)):
            names = {thread.name for thread in threading.enumerate()}
            assert ("cqstore-pages" in names) is ahead
