"""ArrivalService: dispatches soon while callers wait for units, and wakes those callers.

Units wait in memory until a batch is full or a reader needs them (``Dispatcher``). So while a wait
or listener is registered, the first put after a dispatch wakes this thread, which dispatches the
waiting units. A put compares the number of waiting units with one limit in any case, and that limit
is 1 then: without waits and listeners there is no cost.

Source: RocketMQ ``PullRequestHoldService``, ``ReputMessageService``.
"""

import atexit
import os
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.errors import STALLING, StoreError, StoreIOError
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.service.dispatching.arrivals import (
    ArrivalListener,
    ArrivalSubscription,
    ListenerThread,
)
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.runtime.watched_thread import EXIT_SECONDS, Worker

_LOG = StoreLogger(__name__)
Offsets = Mapping[QueueKey, int]
"""Queue → the offset to wait for."""
_MAX_NOTED = 1 << 10
"""Limit of batches whose queues are recorded; if the thread falls behind, it checks all queues."""
_EVERY_OFFSET = 1 << 63


class ArrivalWait(Protocol):
    """A wait until a queue of ``offsets`` has reached its offset there."""

    offsets: Offsets
    error: StoreError | None
    """Why no unit will arrive, set before ``wake``."""

    def wake(self) -> object:
        """End the wait. Called once, by any thread; never blocks."""


class ArrivalService:
    """The waits and listeners of one store. Any thread; the lock is held for moments."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        arm: Callable[[], bool],
        drain: Callable[[], object],
        state: RunningState,
    ) -> None:
        """``arm`` makes the next put wake the thread, and returns whether units wait already."""
        self._queues = queues
        self._arm = arm
        self._drain = drain
        self._state = state
        self._lock = CheckedLock("a wait for arrivals")  # guards _waits, _listeners, the start
        state.locks.add_outer(self._lock)
        self._waits: dict[QueueKey, dict[int, dict[ArrivalWait, None]]] = {}
        self._listeners: tuple[ListenerThread, ...] = ()
        self._past = [0, 0]  # failures and dropped units of closed listeners
        self.is_active = False
        """Whether there are waits, listeners or dispatchers."""
        self._is_kept_active = False
        self._arrived: deque[Mapping[tuple[str, int], int]] = deque()
        self._is_late = False
        self._wake = Wakeup()
        self._stopped = self._halted = False
        self._ident = 0
        self._pid = os.getpid()
        self.worker: Worker | None = None
        """``None``: there was never a wait or listener."""
        state.on_failed = self._wake.set

    # ---- called by the dispatcher

    def add(self, units: UnitBatch) -> None:
        """Add units that have just become visible; under the lock of the dispatch."""
        if not len(units):
            return
        for listener in self._listeners:
            listener.offer(units)
        if self._waits and len(self._arrived) < _MAX_NOTED:
            self._arrived.append(units.index_of)
        elif self._waits:
            self._is_late = True
        if get_ident() != self._ident:
            self._wake.set()

    def wake(self) -> None:
        """Make the thread dispatch the waiting units. Any thread; never waits."""
        self._wake.set()

    # ---- waits and listeners

    def add_wait(self, wait: ArrivalWait) -> None:
        """Register ``wait``: it is woken when a queue has its offset; see ``remove_wait``.

        Raises:
            ReadOnlyStoreError: the store is read-only: nothing arrives.
            StoreClosedError, StoreFailedError: the store is closed or has failed.
            StoreIOError: no thread could be started.
        """
        with self._lock.entry():
            self._begin()
            for queue, offset in wait.offsets.items():
                self._waits.setdefault(queue, {}).setdefault(offset, {})[wait] = None
            self._refresh()

    def keep_active(self) -> None:
        """Dispatch soon from now on, even without waits and listeners: for dispatchers.

        Raises:
            StoreError: as for ``add_wait``.
        """
        with self._lock.entry():
            self._begin()
            self._is_kept_active = True
            self._refresh()

    def remove_wait(self, wait: ArrivalWait) -> None:
        """Remove ``wait``, which is not woken any more; an unregistered one is ignored."""
        if self._pid != os.getpid():  # in a forked child the lock may be held forever
            return
        with self._lock.entry():
            self._discard(wait)

    def add_listener(self, listener: ArrivalListener) -> ArrivalSubscription:
        """Call ``listener`` with units that become visible from now on.

        Raises:
            StoreError: as for ``add_wait``.
        """
        thread = ListenerThread(listener)
        with self._lock.entry():
            self._begin()
            self._listeners += (thread,)  # first: an interrupted start may leave it running
            try:
                thread.start()
            except BaseException:
                self._listeners = self._listeners[:-1]
                raise
            self._refresh()
        return ArrivalSubscription(thread, self._remove_listener)

    @property
    def failures(self) -> int:
        """Return the number of listener calls that raised an exception."""
        return self._past[0] + sum(each.failures for each in self._listeners)

    @property
    def dropped(self) -> int:
        """Return the number of units that were dropped because a listener was too slow."""
        return self._past[1] + sum(each.dropped for each in self._listeners)

    def refuse_own_threads(self) -> None:
        """Refuse a call that waits for the end of the threads from one of these threads.

        Raises:
            NestedCallError: the caller is such a thread.
        """
        for worker in (self.worker, *(each.worker for each in self._listeners)):
            if worker is not None:
                worker.refuse_itself()

    def _remove_listener(self, thread: ListenerThread) -> None:
        """Stop calling a listener, and end its thread."""
        if self._pid != os.getpid():
            return
        thread.worker.refuse_itself()
        with self._lock.entry():
            if thread not in self._listeners:
                return
            self._listeners = tuple(each for each in self._listeners if each is not thread)
            self._refresh()
        thread.stop()
        self._past = [self._past[0] + thread.failures, self._past[1] + thread.dropped]

    def _begin(self) -> None:
        """Start the thread that wakes waits, if there is none; under the lock."""
        self._state.check_writable()
        if self._stopped:
            raise self._state.end_error()
        if self.worker is not None:
            return
        worker = Worker(
            "cqstore-arrivals", self._run, self._give_up, "waits for arrivals fail from now on"
        )
        try:
            worker.start()
        except (RuntimeError, MemoryError) as exc:
            raise StoreIOError(f"cannot start a thread for arrivals: {exc}") from exc
        self.worker = worker
        atexit.register(self._leave)

    def _refresh(self) -> None:
        """Set ``is_active``, and make the thread arm the puts; under the lock."""
        was_active = self.is_active
        self.is_active = bool(self._waits or self._listeners or self._is_kept_active)
        if (self.is_active and not was_active) or self._state.failure is not None:
            self._wake.set()  # a failure after the check has woken it too early

    def _discard(self, wait: ArrivalWait) -> None:
        """Remove a wait; the caller holds the lock."""
        for queue, offset in wait.offsets.items():
            by_offset = self._waits.get(queue)
            if by_offset is None:
                continue
            waits = by_offset.get(offset, {})
            waits.pop(wait, None)
            if not waits:
                by_offset.pop(offset, None)  # missing if an ``add_wait`` was interrupted
            if not by_offset:
                del self._waits[queue]
        self._refresh()

    # ---- the thread

    def stop(self) -> None:
        """Pass earlier units to listeners, wake all waits with an error, end the threads."""
        self._stopped = True
        self._wake.set()
        if self.worker is not None:
            self.worker.end()
            atexit.unregister(self._leave)
        for listener in self._listeners:
            listener.stop()

    def halt(self) -> None:
        """End the threads as ``stop`` does, without a dispatch: the store was dropped."""
        self._halted = True
        self.stop()

    def _leave(self) -> None:
        """End the thread before the interpreter ends: otherwise it would keep its locks."""
        if self._pid == os.getpid() and self.worker is not None:
            self._stopped = True
            self._wake.set()
            self.worker.end(EXIT_SECONDS)

    def _run(self) -> None:
        """Each time a put wakes the thread, dispatch the waiting units and wake the due waits."""
        self._ident = get_ident()
        stopped = False
        while not stopped:
            self._wake.wait()
            stopped = self._stopped
            while not self._ends_here and self.is_active and self._arm():
                if not self._dispatch() or self._stopped:
                    break
                self._serve()
            self._serve()
            if self._state.failure is not None:
                self._end_waits()
        self._end_waits()

    @property
    def _ends_here(self) -> bool:
        """Return whether no further dispatch is allowed."""
        return self._halted or self._state.failure is not None

    def _dispatch(self) -> bool:
        """Dispatch the waiting units; return whether that was possible."""
        try:
            self._drain()
        except STALLING:  # the continued dispatch wakes this thread
            return False
        except StoreError as exc:
            _LOG.warning("cannot dispatch arrivals: %s", exc)
            return False
        return True

    def _serve(self) -> None:
        """Wake the waits whose queues have reached their offsets."""
        while self._arrived or self._is_late:
            if self._is_late:
                self._is_late = False
                self._arrived.clear()
                with self._lock.entry():
                    queues = [*self._waits]
            else:
                arrived = self._arrived.popleft()
                with self._lock.entry():
                    queues = [*(self._waits.keys() & arrived.keys())]
            for queue in queues:
                self._wake_queue(queue)

    def _wake_queue(self, queue: QueueKey) -> None:
        """End the waits for offsets that the queue has reached."""
        error = None
        try:
            end = self._queues.queue(*queue).max_offset()
        except StoreError as exc:
            end, error = _EVERY_OFFSET, exc
        with self._lock.entry():
            by_offset = self._waits.get(queue, {})
            due = [wait for at in by_offset if at < end for wait in by_offset[at]]
            for wait in due:
                self._discard(wait)
        for wait in due:
            wait.error = error
            wait.wake()

    def _end_waits(self) -> None:
        """End all waits with the error that explains why no unit will arrive."""
        with self._lock.entry():
            waits = {
                wait
                for by_offset in self._waits.values()
                for each in by_offset.values()
                for wait in each
            }
            self._waits.clear()
            self.is_active = bool(self._listeners or self._is_kept_active)
        for wait in waits:
            wait.error = self._state.end_error()
            wait.wake()

    def _give_up(self, exc: BaseException) -> None:
        """Wake all waits after the thread has failed; the store itself continues."""
        self._stopped = True
        _LOG.error("waits for arrivals have ended: %s", exc)
        self._end_waits()
