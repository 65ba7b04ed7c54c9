"""Damage that the queues report while the log is replayed is the queues', not the log's."""

import shutil
from pathlib import Path

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20, max_hash_slot_num=10, max_index_num=5000,
    rocksdb_memory_bytes=16 << 20,
)  # fmt: skip


@pytest.mark.parametrize("kind", [FileConsumeQueueStore, RocksDBConsumeQueueStore])
@pytest.mark.parametrize("batches", [1, 3])
def test_it_does_not_end_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[ConsumeQueueStore],
    batches: int,
) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend=kind.name) as store:
        for _ in range(60):
            assert store.put_message(Message("t", b"x" * 100)).ok
    monkeypatch.setattr("cqstore.store.service.dispatching.replay.REPLAY_UNITS", 60 // batches)
    monkeypatch.setattr("cqstore.store.service.dispatching.replay.MAX_REPLAY_UNITS", 60 // batches)
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    log = tree_digest(root / "commitlog")

    put_batch = kind.put_batch
    faults = [CorruptionError("a queue is damaged")]

    def damaged_once(queues: ConsumeQueueStore, batch: UnitBatch) -> list[QueueRestart]:
        if faults:
            raise faults.pop()
        return put_batch(queues, batch)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "put_batch", damaged_once)
        with pytest.raises(CorruptionError, match="a queue is damaged"):
            MessageStore.open(root, CONFIG, backend=kind.name)
    assert tree_digest(root / "commitlog") == log, "nothing was cut"
    with MessageStore.open(root, CONFIG, backend=kind.name) as store:
        assert store.max_offset("t", 0) == 60
