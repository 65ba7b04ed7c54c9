"""FlushService: when the log, the queues and the checkpoint reach the disk.

``SYNC_FLUSH``: the first writer that waits syncs for all who came meanwhile (leader and followers:
no hand-over to a thread). ``ASYNC_FLUSH``: a thread syncs the log every ``flush_interval``. In
both modes that thread hands waiting units to the queues and makes the file queues and the
checkpoint durable every ``flush_consume_queue_thorough_interval``.

Source: RocketMQ ``CommitLog.GroupCommitService``, ``FlushRealTimeService``,
``ConsumeQueueStore.FlushConsumeQueueService``.
"""

import logging
import threading
import time
from collections.abc import Callable

from store.errors import StoreError
from store.index.index_service import IndexService
from store.log.checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.queue.consume_queue_store import ConsumeQueueStore
from store.service.dispatch import Dispatcher
from store.service.meters import Histogram

_LOG = logging.getLogger(__name__)


class FlushService:
    """Flushes one store.

    ``thorough`` makes queues and checkpoint durable; ``idle`` hands waiting units on. ``failed``
    is told of the first failure: the store must then refuse writes.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        interval_ms: int,
        thorough_ms: int,
        idle: Callable[[], None],
        thorough: Callable[[], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self._log = log
        self._interval = interval_ms / 1000
        self._thorough_interval = thorough_ms / 1000
        self._idle = idle
        self._thorough = thorough
        self._failed = failed
        self._flush_lock = threading.Lock()  # the leader holds it
        self.seconds = Histogram()
        """Flushes of the log that had something to flush."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cqstore-flush", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def flush_log(self) -> int:
        """Make the log durable up to its present end; return that.

        Raises:
            StoreIOError: the disk refused.
        """
        with self._flush_lock:
            return self._flush()

    def wait_for(self, phy_offset: int, timeout_ms: int) -> bool:
        """Return once the log is durable up to ``phy_offset``; False if that took too long.

        The caller becomes the leader if nobody is syncing; a sync that is under way when it comes
        may have begun too early for it, so it looks again after each.

        Raises:
            StoreIOError: the disk refused.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while self._log.flushed_phy_offset() < phy_offset:
            if not self._flush_lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
                return False
            try:
                if self._log.flushed_phy_offset() < phy_offset:
                    self._flush()
            finally:
                self._flush_lock.release()
        return True

    def stop(self) -> None:
        """End the thread; the caller flushes what is left."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _flush(self) -> int:
        """Flush the log and time it; the caller holds the flush lock."""
        before, started = self._log.flushed_phy_offset(), time.perf_counter()
        end = self._log.flush()
        if end > before:
            self.seconds.observe(time.perf_counter() - started)
        return end

    def _run(self) -> None:
        last_thorough = time.monotonic()
        while not self._stop.wait(self._interval):
            try:
                self._idle()
                self.flush_log()
                if time.monotonic() - last_thorough >= self._thorough_interval:
                    self._thorough()
                    last_thorough = time.monotonic()
            except StoreError as exc:
                _LOG.exception("flush failed, the store takes no more writes")
                self._failed(exc)
                return


def flush_all(
    dispatcher: Dispatcher,
    flush: FlushService,
    queues: ConsumeQueueStore,
    index: IndexService | None,
    checkpoint: StoreCheckpoint,
) -> None:
    """Flush the log first, then what points into it, then the checkpoint that vouches for both."""
    dispatcher.drain()
    last = dispatcher.last_dispatched
    flush.flush_log()
    with dispatcher.still():
        queues.flush()
        if index is not None:
            index.flush()
    changes = {}
    if index is not None:
        changes["index_msg_timestamp"] = index.index_timestamp
    if last is not None:
        changes["physic_msg_timestamp"] = last.store_timestamp
        changes["confirm_phy_offset"] = last.phy_offset
        if queues.counts_in_checkpoint:
            changes["logics_msg_timestamp"] = last.store_timestamp
            changes["logics_phy_offset"] = last.phy_offset
    checkpoint.update(**changes)
    checkpoint.flush()
