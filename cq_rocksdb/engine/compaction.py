"""CompactionRun: a compaction in a separate thread that can be watched, awaited and cancelled."""

from collections.abc import Sequence

from cqstore.cq_rocksdb.engine.database_stats import PROPERTIES
from cqstore.cq_rocksdb.engine.errors import RocksDBError, RocksDBStatus
from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import ConsumeQueueError, StoreError

_LOG = StoreLogger(__name__)


class CompactionRun:
    """Compaction of families, one after the other. Any thread may query, wait or cancel."""

    def __init__(self, engine: RocksEngine, families: Sequence[Family]) -> None:
        """Start the thread; the caller need not call anything else."""
        self._engine = engine
        self._families = families
        self._dropped_before = engine.dropped_units
        self._cancelled = Latch()
        self.fault: StoreError | None = None
        """The error that ended the compaction, if any."""
        self._thread = StoreThread("cqstore-compaction", self._run)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether the compaction is running."""
        return self._thread.is_alive()

    @property
    def is_cancelled(self) -> bool:
        """Return whether the compaction was cancelled."""
        return self._cancelled.is_set()

    @property
    def dropped_units(self) -> int:
        """Return how many expired units this and concurrent automatic compactions have dropped."""
        return self._engine.dropped_units - self._dropped_before

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the end; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def cancel(self) -> bool:
        """Cancel the compaction.

        False: the engine cannot cancel; the compaction ends after the current family.
        """
        if not self.is_running:
            return True
        self._cancelled.set()
        return self._engine.cancel_compaction()

    def _run(self) -> None:
        """Compact one family after the other, until it is cancelled."""
        try:
            for family in self._families:
                if self._cancelled.is_set():
                    return
                self._engine.compact(family)
                self._check_background()
        except BaseException as exc:  # noqa: BLE001 - whatever it was, a caller may wait for it
            unknown = ConsumeQueueError(f"the compaction failed: {exc!r}")
            self.fault = exc if isinstance(exc, StoreError) else unknown
            _LOG.warning("the compaction failed: %s", exc)

    def _check_background(self) -> None:
        """Raise an error if RocksDB's background threads have failed, which its API hides.

        Includes errors before this run: after most of them, RocksDB does nothing until a reopen.
        """
        errors = self._engine.property_value(Family.DEFAULT, PROPERTIES["background_errors"])
        if int(errors or 0):
            raise RocksDBError(
                f"RocksDB has reported {errors} background errors since it was opened (see its"
                " log): the compaction may have had no effect",
                status=RocksDBStatus.OTHER,
            )
