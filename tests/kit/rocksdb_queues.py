"""RocksDB queues on their own: opened over nothing but a root, and verbs that make batches."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.paths import StorePaths
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.engines import engine_in_use
from tests.kit.file_queues import NoLog
from tests.kit.no_log import NoCheckpoint

RECORD_BYTES = 100
"""Every record of these tests; unit *n* of the log lies at ``n * RECORD_BYTES``."""


@dataclass
class RocksDBQueues:
    """Opens queues below ``root`` as often as a test likes."""

    root: Path
    log: NoLog = field(default_factory=NoLog)

    def open(
        self, *, read_only: bool = False, last_exit_ok: bool = True, **settings: Any
    ) -> RocksDBConsumeQueueStore:
        fixed = {"rocksdb_memory_bytes": 16 << 20, "rocksdb_engine": engine_in_use()}
        config = StoreConfig.from_mapping({**fixed, **settings})
        context = QueueStoreContext(
            StorePaths(self.root), config, self.log, NoCheckpoint(), last_exit_ok, read_only
        )
        store = RocksDBConsumeQueueStore(context).load()
        store.recover()
        return store


def put(
    store: RocksDBConsumeQueueStore,
    topic: str,
    queue_id: int,
    offsets: range,
    phy: int,
    *,
    end: int | None = None,
) -> list[QueueRestart]:
    """Put units for ``offsets``, their records one behind the other from ``phy`` on."""
    batch = UnitBatch()
    for place, offset in enumerate(offsets):
        add(batch, topic, queue_id, offset, phy + place * RECORD_BYTES)
    batch.end_phy_offset = phy + len(offsets) * RECORD_BYTES if end is None else end
    return store.put_batch(batch)


def add(batch: UnitBatch, topic: str, queue_id: int, offset: int, phy: int) -> None:
    """Add one unit whose tags code and timestamp follow from its place in the log."""
    batch.add((topic, queue_id), offset, phy, RECORD_BYTES, -phy, phy + 7)
    batch.end_phy_offset = max(batch.end_phy_offset, phy + RECORD_BYTES)


def phys(store: RocksDBConsumeQueueStore, topic: str, queue_id: int) -> list[int]:
    """Return the log positions of all units from the minimum on, up to the first hole."""
    queue = store.queue(topic, queue_id)
    return [unit.phy_offset for unit in queue.iterate(queue.min_offset())]


def engine_of(store: RocksDBConsumeQueueStore) -> RocksEngine:
    """Return the engine below an open store, to damage or look at what it holds."""
    engine = store._engine
    assert engine is not None
    return engine


def lose(store: RocksDBConsumeQueueStore, topic: str, queue_id: int, offsets: range) -> None:
    """Take units out of the database behind the store's back."""
    prefix = queue_prefix(topic, queue_id)
    bounds = unit_key(prefix, offsets.start), unit_key(prefix, offsets.stop)
    engine_of(store).write(EngineBatch(delete_ranges=[(Family.DEFAULT, *bounds)]))


def expire(
    store: RocksDBConsumeQueueStore, min_phy_offset: int, expired: dict[tuple[str, int], int] | None
) -> int:
    """Clean, and wait for the compaction that goes with it."""
    named = {QueueKey(*key): end for key, end in expired.items()} if expired is not None else None
    cleaned = store.clean_expired(min_phy_offset, named)
    if store.compaction is not None:
        assert store.compaction.wait(30)
        assert store.compaction.fault is None
    return cleaned


def crash(store: RocksDBConsumeQueueStore, root: Path) -> RocksDBQueues:
    """Return queues below ``root`` that are on disk what ``store`` is now, and close ``store``."""
    crash_image(store.folder, root / "consumequeue")
    store.close()
    return RocksDBQueues(root)
