"""Fills a small disk under one part of a store. Run by ``test_full_disk``, on a mount of its own.

``python -m tests.faults.full_disk MOUNT ROOT PART BACKEND ENGINE``: PART is the folder of the store
that lies on the small disk, ``.`` for all of it. Prints how the disk showed that it was full.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from cqstore.store.errors import DiskFullError, RetryableDiskFullError, StoreError, StoreFailedError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import FlushDiskType, RocksDBEngine
from tests.kit.acknowledged import TOPIC, Acknowledged
from tests.kit.quiet_config import quiet_config

FULL = (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, PutMessageStatus.SERVICE_NOT_AVAILABLE)
LEFT = 150_000
"""Bytes that the ballast leaves free."""
MAX_PUTS = 20_000


def open_store(root: Path, backend: str, engine: str) -> MessageStore:
    config = quiet_config(
        mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=40_000,
        max_hash_slot_num=100, max_index_num=4_000, flush_disk_type=FlushDiskType.SYNC_FLUSH,
        rocksdb_memory_bytes=8 << 20, rocksdb_engine=RocksDBEngine(engine),


    )  # fmt: skip
    return MessageStore.open(root, config, backend=backend)


def fill(store: MessageStore, acknowledged: Acknowledged) -> str:
    """Put and flush until the disk is full; return how it showed."""
    try:
        while acknowledged.requested < MAX_PUTS:
            result = acknowledged.put(store, 60)
            if result.status in FULL:
                assert "No space left on device" in result.reason
                return "status"
            assert result.ok, result
            if acknowledged.requested % 20 == 0:
                with suppress(RetryableDiskFullError):
                    store.flush()
    except DiskFullError as exc:
        if exc.path is not None:
            return "error"
        raise
    raise AssertionError("the disk never became full")


def refuse_until_reopened(store: MessageStore, acknowledged: Acknowledged) -> None:
    try:
        acknowledged.put(store)
    except StoreFailedError:
        return
    raise AssertionError("a store whose write failed took another one")


def main(mount: Path, root: Path, part: str, backend: str, engine: str) -> str:
    root.mkdir(exist_ok=True)
    if part != ".":
        (mount / part).mkdir()
        (root / part).symlink_to(mount / part)
    acknowledged = Acknowledged()
    store = open_store(root, backend, engine)
    for _ in range(50):
        assert acknowledged.put(store, 60).ok
    store.flush()
    ballast = mount / "ballast"
    free = os.statvfs(mount)
    ballast.write_bytes(bytes(max(free.f_bavail * free.f_frsize - LEFT, 0)))
    how = fill(store, acknowledged)
    if how == "status":
        for _ in range(3):
            assert acknowledged.put(store).status in FULL
        assert store.get_message(TOPIC, 0, 0).messages()[0].body
        ballast.unlink()
        assert acknowledged.put(store).ok
        acknowledged.check(store)
    else:
        refuse_until_reopened(store, acknowledged)
        assert store.get_message(TOPIC, 0, 0).messages()[0].body
        store.close()
        for _ in range(2):  # with the disk still full
            try:
                store = open_store(root, backend, engine)
                acknowledged.check(store)
                store.close()
            except StoreError as exc:
                sys.stderr.write(f"reopening: {exc}\n")
        ballast.unlink()
        store = open_store(root, backend, engine)
    for _ in range(2):
        acknowledged.check(store)
        for _ in range(100):
            assert acknowledged.put(store, 60).ok
        assert [finding for finding in store.check() if finding.damage] == []
        store.close()
        store = open_store(root, backend, engine)
    acknowledged.check(store)
    store.close()
    return how


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
