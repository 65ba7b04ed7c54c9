"""The disk refuses a call: the error says so, the store takes no more, and loses nothing."""

from pathlib import Path

import pytest

from cqstore.store.errors import DiskFullError, StoreFailedError, StoreIOError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType
from tests.kit.acknowledged import TOPIC, Acknowledged
from tests.kit.faults import EIO, ENOSPC, Faults
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=16_384, mapped_file_size_consume_queue=400, max_hash_slot_num=10,
    max_index_num=30, flush_disk_type=FlushDiskType.SYNC_FLUSH, rocksdb_memory_bytes=16 << 20,


    queue_files_max=16,
)  # fmt: skip
"""What is refused is refused to the caller: no thread flushes before it."""
ANY = {
    "log": ["fsync /commitlog", "open /commitlog/", "fallocate /commitlog/"],
    "index": ["write /index/", "fsync /index/", "open /index/", "rename /index/",
              "truncate /index/"],
    "checkpoint": ["open checkpoint.new", "write checkpoint.new", "fsync checkpoint.new",
                   "rename checkpoint.new"],
    "journal": ["open /deleted-topics", "write /deleted-topics", "fsync /deleted-topics"],
}  # fmt: skip
FILE = {
    "queue": ["write /consumequeue/", "open /consumequeue/", "fsync /consumequeue/",
              "truncate /consumequeue/", "mkdir /consumequeue/", "unlink /consumequeue/"],
}  # fmt: skip
FULL = ("write checkpoint", "write /deleted-topics")
"""Calls whose refusal by a full disk fails the store as well; of log, queues and index it does not:
see ``test_after_refusals`` and ``test_room_again``."""
CASES = [
    (backend, refusal, code)
    for backend in backend_names()
    for part, refusals in (ANY | FILE).items()
    if backend == "file" or part in {"log", "index"}
    for refusal in refusals
    for code in (EIO, ENOSPC)
    if code == EIO or refusal.startswith(FULL)
]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def open_store(root: Path, backend: str) -> MessageStore:
    return MessageStore.open(root, CONFIG, backend=backend)


def work(store: MessageStore, acknowledged: Acknowledged) -> None:
    """Put until log, queues and index have rolled, read, flush, delete: everything that writes."""
    for number in range(70):
        acknowledged.put(store, 700)
        if number % 10 == 9:
            store.max_offset(TOPIC, 0)
    assert store.put_message(Message("new", b"x")).ok
    store.flush()
    store.delete_expired_files(16_384)
    store.delete_topic("old")


@pytest.mark.parametrize(("backend", "refusal", "code"), CASES)
def test_a_refused_write_ends_all_writing_and_loses_nothing(
    tmp_path: Path, faults: Faults, backend: str, refusal: str, code: int
) -> None:
    acknowledged = Acknowledged()
    store = open_store(tmp_path, backend)
    Acknowledged().put(store)  # a topic of its own would do as well: this one is not looked at
    acknowledged.requested = 1
    for _ in range(19):
        acknowledged.put(store)
    store.flush()
    faults.fail(refusal.split(maxsplit=1)[0], code, refusal.split()[1])
    with pytest.raises(DiskFullError if code == ENOSPC else StoreIOError) as caught:
        work(store, acknowledged)
    first = caught.value
    assert first.path is not None
    assert faults.refused
    for write in (lambda: acknowledged.put(store), store.flush, lambda: store.delete_topic("u")):
        with pytest.raises(StoreFailedError) as refused:
            write()
        assert refused.value.__cause__ is first
        assert first.reason in str(refused.value)
    assert store.get_message(TOPIC, 0, store.min_offset(TOPIC, 0)).messages()[0].body
    newest = max(
        acknowledged.bodies.values()
    )  # of its keys, too, those that were drained are found
    assert store.message_by_offset(newest[0]).body == newest[1]
    store.query_message(TOPIC, "k19")
    store.close()
    faults.heal()
    for _ in range(2):
        with open_store(tmp_path, backend) as store:
            acknowledged.check(store)
            assert [finding for finding in store.check() if finding.damage] == []
            assert acknowledged.put(store).ok
