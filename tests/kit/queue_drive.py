"""Verbs over one backend, so that a contract test is a few lines."""

from pathlib import Path

from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backend_replica import Roles
from cqstore.store.queue.backends import backend, backend_names
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch, UnitBlock
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.model import RECORD_SIZE, FastLog, batch_of
from tests.kit.no_log import NoCheckpoint

COMBINED = "combined, reading "
"""Before a backend's name: all of them as one, that one read."""
UNITS_PER_FILE = 10
CONFIG = StoreConfig(
    mapped_file_size_consume_queue=20 * UNITS_PER_FILE,
    rocksdb_memory_bytes=16 << 20,
)


class QueueDrive:
    """One queue store with a log that is only facts."""

    def __init__(
        self,
        name: str,
        root: Path,
        log: FastLog | None = None,
        engine: RocksDBEngine = RocksDBEngine.AUTO,
        hot_queues: int = 3,
    ) -> None:
        self.name = name
        self.root = root
        self.log = log or FastLog()
        self.config = CONFIG.model_copy(
            update={"rocksdb_engine": engine, "rocksdb_hot_queues": hot_queues}
        )
        self.last_exit_ok = True
        self.store = self._open()

    def _open(self, *, read_only: bool = False) -> ConsumeQueueStore:
        context = QueueStoreContext(
            StorePaths(self.root),
            self.config,
            self.log,
            NoCheckpoint(),
            last_exit_ok=self.last_exit_ok,
            read_only=read_only,
        )
        store = self._make(context).load()
        store.recover()
        return store

    def _make(self, context: QueueStoreContext) -> ConsumeQueueStore:
        if not self.name.startswith(COMBINED):
            return backend(self.name)(context)
        read = self.name.removeprefix(COMBINED)
        kinds = [backend(name) for name in backend_names()]
        lines = LaggingBackends(context.paths, read_only=context.read_only)
        return CombinedConsumeQueueStore(
            context, kinds, Roles(read, read), lines, lambda _topic, _at: False
        )

    def reopen(self, *, read_only: bool = False) -> None:
        self.store.close()
        self.store = self._open(read_only=read_only)

    def put(
        self, topic: str, queue_id: int, first: int, count: int = 1, stamp: int | None = None
    ) -> list[QueueRestart]:
        """Append records to the log and their units to a queue."""
        return self.store.put_batch(self.batch(topic, queue_id, first, count, stamp))

    def batch(
        self, topic: str, queue_id: int, first: int, count: int = 1, stamp: int | None = None
    ) -> UnitBatch:
        """Append records to the log; return the batch of their units."""
        rows = []
        for offset in range(first, first + count):
            now = stamp if stamp is not None else 1000 + 10 * len(self.log.stamps)
            phy_offset = self.log.append(now)
            rows.append(((topic, queue_id), offset, (phy_offset, RECORD_SIZE, offset * 7)))
        return batch_of(self.log, rows)

    def expire(self, records: int) -> None:
        """Move the log's minimum behind so many records."""
        self.log.low = records * RECORD_SIZE

    def offsets(self, topic: str, queue_id: int = 0) -> tuple[int, int]:
        queue = self.store.queue(topic, queue_id)
        ends = queue.ends()
        assert ends == (queue.min_offset(), queue.max_offset())
        return ends

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> UnitBlock:
        return self.store.queue(topic, queue_id).read_units(offset, count)

    def phys(self, topic: str, queue_id: int = 0, offset: int = 0, count: int = 1000) -> list[int]:
        return [row[0] for row in self.read(topic, queue_id, offset, count).rows()]
