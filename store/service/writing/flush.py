"""FlushService: writes the log, the queues and the checkpoint to disk.

``SYNC_FLUSH``: ``GroupCommit`` serves writers that wait, and this thread those with a future.
``ASYNC_FLUSH``: the thread syncs the log every ``flush_interval_commit_log``. In both modes it
dispatches waiting units to the queues, writes file queues ahead, and every
``flush_consume_queue_thorough_interval`` makes all queues and the checkpoint durable.

Source: RocketMQ ``CommitLog.FlushRealTimeService``, ``ConsumeQueueStore.FlushConsumeQueueService``.
"""

import time
from collections.abc import Callable
from contextlib import suppress

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.future import Promised, Soon, at_once
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.errors import STALLING, StoreClosedError, StoreError
from cqstore.store.files import PAGE_BYTES
from cqstore.store.index.index_service import IndexService
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.service.writing.group_commit import GroupCommit
from cqstore.store.settings.config import StoreConfig


class FlushService:
    """Flushes one store; ``failed`` gets the exception that ends the thread, and all writing."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        commit: GroupCommit,
        dispatcher: Dispatcher,
        whole: "FullFlush",
        failed: Callable[[BaseException], StoreError],
    ) -> None:
        self._config = config
        self._log = log
        self._commit = commit
        self._dispatcher = dispatcher
        self._whole = whole
        self._failed = failed
        self._waiting: list[tuple[int, Promised[bool], float]] = []
        """Per request: the phy offset to make durable, its future, and its deadline."""
        self._waiting_lock = CheckedLock("the queue of flush requests")  # guards _waiting
        dispatcher.locks.add(self._waiting_lock)
        self._wake = Wakeup()
        self._stopped = False
        self._failure: StoreError | None = None  # the exception that ended the thread
        self.worker = Worker("cqstore-flush", self._run, self._give_up)

    def start(self) -> None:
        """Start the thread."""
        self.worker.start()

    def when_durable(self, phy_offset: int, future: Promised[bool], soon: Soon = at_once) -> None:
        """Complete ``future`` once the log is durable up to ``phy_offset``: True if in time.

        It gets the exception of a failed sync. ``soon`` wakes the thread.
        """
        waiter = (phy_offset, future, time.monotonic() + self._commit.timeout)
        with self._waiting_lock.entry():
            stopped, failure = self._stopped, self._failure
            if not stopped:
                self._waiting.append(waiter)
        if not stopped:
            soon(self._wake.set)
            return
        future.set_exception(failure or StoreClosedError("the store is closed"))

    # ---- the thread

    def stop(self) -> None:
        """End the thread once no caller waits any more; the caller flushes the rest."""
        with self._waiting_lock.entry():
            self._stopped = True
            self._wake.set()
        self.worker.end()

    def _run(self) -> None:
        """Commit, flush and dispatch, each at its interval; serve puts that wait for the disk."""
        config = self._config
        rounds = _Rounds(time.monotonic())
        if config.is_transient:
            rounds.add(config.commit_interval_commit_log, self._commit_much)
            rounds.add(config.commit_commit_log_thorough_interval, self._log.commit)
        rounds.add(config.flush_interval_commit_log, self._flush_much)
        rounds.add(config.flush_commit_log_thorough_interval, self._commit.flush)
        rounds.add(config.flush_interval_commit_log, self._log.note_synced)
        rounds.add(config.flush_interval_commit_log, self._dispatcher.reput.start_if_wanted)
        rounds.add(config.flush_interval_consume_queue, self._write_ahead)
        rounds.add(config.flush_consume_queue_thorough_interval, self._flush_queues)
        while not self._stopped or self._waiting:
            self._wake.wait(rounds.seconds_left(time.monotonic()))
            if self._waiting:
                self._serve()
            if not self._stopped:
                rounds.run(time.monotonic())

    def _give_up(self, exc: BaseException) -> None:
        """Fail the store, and all callers that wait for this thread."""
        failure = self._failed(exc)
        with self._waiting_lock.entry():
            self._stopped, self._failure = True, failure
            waiting, self._waiting = self._waiting, []
        for _, future, _ in waiting:
            future.set_exception(failure)

    def _serve(self) -> None:
        """Sync once, for all callers with a future so far."""
        durable = self._commit.flush()
        now = time.monotonic()
        with self._waiting_lock.entry():
            served = [waiter for waiter in self._waiting if waiter[0] <= durable]
            self._waiting = [waiter for waiter in self._waiting if waiter[0] > durable]
        for _, future, deadline in served:
            future.set_result(now <= deadline)

    def _flush_much(self) -> None:
        with suppress(*STALLING):  # tried again in the next round
            self._dispatcher.drain()
        waiting = self._log.max_phy_offset() - self._log.flushed_phy_offset()
        if waiting >= self._config.flush_commit_log_least_pages * PAGE_BYTES:
            self._commit.flush()

    def _commit_much(self) -> None:
        self._log.commit(self._config.commit_commit_log_least_pages)

    def _flush_queues(self) -> None:
        with suppress(*STALLING):
            self._whole.without_index()

    def _write_ahead(self) -> None:
        self._whole.queues.flush(self._config.flush_consume_queue_least_pages)


class FullFlush:
    """Flushes the log first, then queues and index, then the checkpoint that confirms them.

    Writers continue meanwhile. One flush at a time, so that each has done all that it claims.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        commit: GroupCommit,
    ) -> None:
        """If the log is not written, the checkpoint's fields about it stay as they are."""
        self._confirms_log = not commit.log.files.read_only
        self._dispatcher = dispatcher
        self.queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._commit = commit
        self._lock = CheckedLock("a flush")
        dispatcher.locks.add_outer(self._lock)

    def __call__(self) -> None:
        """Make everything durable that was put before.

        Raises:
            RetryableDiskFullError: there is no space for units or keys; only the log is durable.
            StoreError: a sync failed, and the data to flush may be lost.
        """
        with self._lock.entry():
            self._flush()
            self._flush_index()
            self._checkpoint.flush()

    def without_index(self) -> None:
        """Flush without the index: after a crash only complete index files are used anyway."""
        with self._lock.entry():
            self._flush()
            self._checkpoint.flush()

    def _flush(self) -> None:
        """Dispatch all, make log, queues and index durable; advance the checkpoint.

        Raises:
            StoreError: the dispatch is stalled: then only the log is made durable; or a flush
                failed.
        """
        try:
            self._dispatcher.drain()
        except STALLING:  # the checkpoint is unchanged; the log has its space
            self._commit.flush()
            self._commit.log.note_synced()
            raise
        last = self._dispatcher.last_dispatched
        self._commit.flush()
        self._commit.log.note_synced()
        self.queues.flush()
        changes = {}
        if self._index is not None:
            changes["index_msg_timestamp"] = self._index.index_timestamp
        if last is not None and self._confirms_log:
            changes["physic_msg_timestamp"] = last.store_timestamp
            changes["confirm_phy_offset"] = last.phy_offset
        if last is not None and self.queues.counts_in_checkpoint:
            changes["logics_msg_timestamp"] = last.store_timestamp
            changes["logics_phy_offset"] = last.phy_offset
        self._checkpoint.update(**changes)

    def _flush_index(self) -> None:
        if self._index is None:
            return
        with self._dispatcher.owner.entry(), self._dispatcher.drain_lock:  # no batch is added
            file = self._index.drain()
            timestamp = self._index.index_timestamp
        if file is not None:
            file.sync()
        self._checkpoint.update(index_msg_timestamp=timestamp)


class _Rounds:
    """Calls to repeat, each in its own interval."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._things: list[tuple[float, Callable[[], object]]] = []
        self._due: list[float] = []

    def add(self, interval_ms: int, thing: Callable[[], object]) -> None:
        self._things.append((interval_ms / 1000, thing))
        self._due.append(self._now + interval_ms / 1000)

    def seconds_left(self, now: float) -> float:
        return max(min(self._due) - now, 0)

    def run(self, now: float) -> None:
        for at, (interval, thing) in enumerate(self._things):
            if self._due[at] <= now:
                thing()
                self._due[at] = max(self._due[at] + interval, now)
