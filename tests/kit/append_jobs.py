"""RocksDB queues on the native engine, and batches for its compiled job."""

from itertools import compress
from pathlib import Path
from typing import Any

from cqstore.cq_rocksdb.engine.native_engine import NativeEngine
from cqstore.cq_rocksdb.engine.rocks_engine import Family, append_job
from cqstore.cq_rocksdb.keys import queue_prefix
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import using
from tests.kit.file_queues import NoLog
from tests.kit.rocksdb_queues import RECORD_BYTES, RocksDBQueues, add

KEYS = [("a", 0), ("a", 1), ("b" * 200, 7), ("主题", -1), ("%LMQ%x", 1 << 30), ("zz", 0), ("z", 3)]
PUT = b"the checkpoint", bytes(8)


def native(
    root: Path, engine: RocksDBEngine = RocksDBEngine.NATIVE, **settings: Any
) -> RocksDBConsumeQueueStore:
    with using(engine):
        return RocksDBQueues(root, NoLog(min_phy=2000)).open(**settings)


def three_queues(root: Path) -> RocksDBConsumeQueueStore:
    """Return an open store with three queues of two units each."""
    store = native(root)
    store.put_batch(batch_of(("T", 0, 0, 1, 2), ("T", 1, 0, 3, 2), ("U", 2, 0, 5, 2)))
    return store


def engine_of(store: RocksDBConsumeQueueStore) -> NativeEngine:
    engine = store.engine
    assert isinstance(engine, NativeEngine)
    return engine


def batch_of(
    *runs: tuple[str, int, int, int, int] | tuple[str, int, int, int, int, int],
) -> UnitBatch:
    """Return a batch of runs: queue, first offset, first record, count, step of the records."""
    batch = UnitBatch()
    for topic, queue_id, offset, record, count, *step in runs:
        for at in range(count):
            phy_offset = (record + at * (step[0] if step else 1)) * RECORD_BYTES
            add(batch, topic, queue_id, offset + at, phy_offset)
    return batch


def more() -> UnitBatch:
    """Three units more for each of the queues, by turns."""
    batch = UnitBatch()
    for at in range(3):
        for number, key in enumerate([("T", 0), ("T", 1), ("U", 2)]):
            add(batch, *key, 2 + at, (20 + 3 * at + number) * RECORD_BYTES)
    return batch


def content(store: RocksDBConsumeQueueStore) -> list[list[tuple[bytes, bytes]]]:
    """Return all that the database has."""
    return [store.engine.scan(family, b"", b"\xff" * 9, 100_000) for family in Family]


def known(store: RocksDBConsumeQueueStore) -> object:
    offsets = store._offsets
    rows = {key: offsets._cache.get(queue_prefix(*key)) for key in KEYS}
    return rows, offsets.checkpoint(), offsets._generation


def mixed() -> UnitBatch:
    """Units of the three queues, of which one starts over."""
    return batch_of(("T", 1, 2, 20, 1), ("T", 0, 0, 21, 2), ("U", 2, 2, 23, 1))


def left(store: RocksDBConsumeQueueStore, batch: UnitBatch) -> list[QueueKey]:
    """Return the queues that the job leaves to the plan."""
    job = append_job(batch)
    if not (job.is_fast and store._offsets.knows_ends(job)):
        return [*batch.queues]
    odd = job.irregular_queues()
    return [] if odd is None else [*compress(batch.queues, odd)]
