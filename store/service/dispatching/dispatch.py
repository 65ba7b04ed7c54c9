"""Dispatcher: dispatches appended records to the queues and the index.

Units wait in memory (``Pending``) until a batch is full, a reader needs them, or the flush thread
runs, so nothing is read back from the log. A full batch is dispatched by the writer, or
concurrently if that takes long (``ReputService``).

Source: RocketMQ ``DefaultMessageStore.ReputMessageService``,
``CommitLogDispatcherBuildConsumeQueue``.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import STALLING, DiskFullError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_service import IndexService
from cqstore.store.log.commit_log import Appended
from cqstore.store.progress import noop
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.dispatching import _waiting
from cqstore.store.service.dispatching.arrival_service import ArrivalService
from cqstore.store.service.dispatching.dispatcher_list import DispatcherList
from cqstore.store.service.dispatching.pending import NOTHING, Pending, oldest_timestamp
from cqstore.store.service.dispatching.reput import ReputService
from cqstore.store.service.runtime.running_state import CriticalSection, RunningState

ASSIGNED_QUEUES = 1 << 20
"""Limit of cached next offsets of queues; others are read from the queues again.

Each takes 130 to 210 bytes, so all of them 140 to 220 MB. If there are more, the newest are read
again, see ``QueueOffsets.forget_beyond``.
"""
SLICE_PER_QUEUE = 8
"""Units per queue for which a batch waits before its dispatch: one write for several."""
_MAX_SLICE = 1 << 16
R = TypeVar("R")
_FAR_TOO_MANY = 4
"""Multiple of ``batch_limit`` at which the writer waits for another thread's dispatch."""


class Dispatcher(_waiting.InFlight):
    """Dispatches to the queues and the index of one store. Any thread.

    Lock order: ``owner``, then the lock of ``pending``. Between taking a batch and having it in
    queues and index, either all steps are done or the store fails. But if a disk has no space for
    units or keys, or a dispatcher fails, the batch stays ``handed`` and the dispatch is *stalled*:
    every later dispatch begins with that batch again, whose units and keys are added only once.
    """

    def __init__(
        self,
        pending: Pending,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        dispatch_slice: int,
        state: RunningState,
        before_store: Callable[[], object] = noop,
        dispatchers: DispatcherList | None = None,
    ) -> None:
        """``dispatch_slice``: number of units of a batch if there are few queues.

        ``before_store`` is called before units become visible: under ``SYNC_FLUSH`` it makes the
        log durable. Then ``dispatchers`` are called with the records.
        """
        self.dispatchers = dispatchers
        self.pending = pending
        """The records to dispatch; other threads may call its thread-safe methods."""
        self._queues = queues
        self._index = index
        self.owner = CheckedLock("the dispatch of a batch")
        """One batch at a time is dispatched, in log order: ``owner.entry(), drain_lock``."""
        self.drain_lock = threading.Lock()
        """Under ``owner``; the writer checks it to see whether a thread dispatches."""
        self.locks = state.locks
        self.locks.add(self.owner)
        self._state = state
        self._dispatching = CriticalSection(state, "the dispatch of a batch")
        self._slice = dispatch_slice
        self.batch_limit = dispatch_slice
        """Number of units in a batch."""
        self.full_at = dispatch_slice
        """Waiting units at which the writer should call ``drain_unless_busy``: ``batch_limit``; or
        the maximum, after the thread of ``reput`` was woken for the batch; or 1, if there are waits
        for arrivals and their thread has not been woken."""
        self.reput = ReputService(self.drain, state.fail)
        self.arrivals = ArrivalService(queues, self._arm, self.drain, state)
        self.handed = NOTHING
        """The batch that is being dispatched, or waits for space."""
        self.last_dispatched: Appended | None = None
        """The last record of the log that is in queues and index."""
        self._before_store = before_store

    def note_last(self, phy_offset: int, size: int, store_timestamp: int) -> None:
        """Set the last record found by the recovery."""
        self.last_dispatched = Appended(phy_offset, size, store_timestamp)

    @property
    def has_undispatched(self) -> bool:
        """Return whether a record of the log may not be in its queue yet.

        Also true while another thread dispatches a batch: a reader must wait for that batch too.
        """
        return bool(self.pending.units.end_phy_offset) or self.handed is not NOTHING

    @property
    def is_full(self) -> bool:
        """Return whether the writer should call ``drain_unless_busy``."""
        return len(self.pending.units) >= self.full_at

    @property
    def is_stalled(self) -> bool:
        """Return whether a batch waits for space or a dispatcher. Queues are still consistent."""
        return bool(self._state.stalled)

    def oldest_waiting(self) -> int:
        """Return the store time, ms, of the first unit that may not be in its queue yet.

        0 if no unit waits. The result may be slightly outdated.
        """
        return oldest_timestamp(self.handed.units) or oldest_timestamp(self.pending.units)

    def drain(self) -> None:
        """Dispatch all waiting units; they are visible to readers when it returns.

        Raises:
            NestedCallError: the thread holds a lock that the dispatch needs; nothing was done.
            RetryableDiskFullError: there is no space; the dispatch is stalled until a later call
                finds space.
            DispatcherError: a dispatcher failed; the dispatch is stalled until a later call
                succeeds.
            StoreError: the backend failed, or an earlier batch did; the store must be opened again.
        """
        self.locks.check_dispatch()  # so no ``entry`` is needed below
        with self.owner, self.drain_lock:
            self._drain()

    def drain_unless_busy(self) -> None:
        """Dispatch waiting units, unless another thread does and their number is acceptable.

        For the writer, whose next put should not wait for a batch of the flush thread. A put inside
        a dispatch of its own thread does not dispatch: its units are added to the next batch. A
        stalled dispatch is not an error of this put, which is in the log: the next put is refused.

        Raises:
            StoreError: as for ``drain``.
        """
        far_too_many = _FAR_TOO_MANY * self.batch_limit
        waiting = len(self.pending.units)
        if self.arrivals.is_active and waiting < self.batch_limit:
            self.full_at = self.batch_limit  # first: the thread sets it back
            self.arrivals.wake()
            return
        if waiting < far_too_many:
            if self.reput.is_active:
                self.full_at = far_too_many  # first: the batch's end sets it back
                self.reput.wake()
                return
            if self.drain_lock.locked():
                return
        if self.locks.is_inside_dispatch:
            return
        with suppress(*STALLING):
            self.drain()

    def catch_up(self) -> None:
        """Dispatch all waiting units; the caller holds both locks.

        While it does, there are no puts and no other batches.

        Raises:
            StoreError: as for ``drain``.
        """
        self._resume()
        self._begin_batch()
        self._dispatch()

    def when_caught_up(self, step: Callable[[], R]) -> R:
        """Run ``step`` while no thread puts or dispatches, with all earlier puts in the queues.

        No dispatcher is called under the append lock: if a put happens before that lock is
        acquired, they are called again first.

        Raises:
            StoreError: as for ``drain``, or any error of ``step``.
        """
        pending = self.pending
        while True:
            if self.dispatchers is not None:
                self.drain()
            with self.owner.entry(), self.drain_lock, pending.owner.entry(), pending.lock:
                if self._may_catch_up():
                    self.catch_up()
                    return step()

    def _may_catch_up(self) -> bool:
        """Return whether all is dispatched, or there are no dispatchers to call."""
        return self.dispatchers is None or not self.has_undispatched

    def fail_if_interrupted(self) -> None:
        """Fail the store if a dispatch was interrupted and no later caller has noticed."""
        with self.owner.entry(), self.drain_lock:
            self._dispatching.fail_if_interrupted()

    def store(self, units: UnitBatch, keys: IndexBatch) -> list[QueueRestart]:
        """Add units and keys to queues and index; no other thread may do so meanwhile.

        Dispatchers are called first: a recovery does not dispatch records again that are in the
        queues.
        """
        restarts: list[QueueRestart] = []
        if units.end_phy_offset:
            if self.dispatchers is not None:
                self.dispatchers.dispatch_to(units.end_phy_offset)
            restarts = self._queues.put_batch(units)
        if self._index is not None:
            self._index.put_batch(keys)
        return restarts

    def _arm(self) -> bool:
        """Make the next put wake the thread of arrivals; return whether units wait already."""
        self.full_at = 1
        return self.has_undispatched

    def _drain(self) -> None:
        """Dispatch all waiting units; the caller holds ``owner`` and ``drain_lock``."""
        pending = self.pending
        self._resume()
        with pending.owner, pending.lock:
            self._begin_batch()
        self._dispatch()
        if len(pending.offsets) > ASSIGNED_QUEUES:
            # Under the lock, so that the queues' own ends are the offsets assigned last.
            with pending.owner, pending.lock:
                if self._may_catch_up():  # otherwise with the next batch
                    self.catch_up()
                    pending.offsets.forget_beyond(ASSIGNED_QUEUES)

    def _resume(self) -> None:
        """Dispatch the batch of a stalled dispatch: it must be the first."""
        if self.handed is not NOTHING:
            self._dispatching.begin()
            self._dispatch()

    def _begin_batch(self) -> None:
        """Take the waiting records; the caller holds the lock of ``pending``."""
        waiting = self.pending.snapshot()
        self._dispatching.begin()
        self.handed = waiting  # before `pending` is reset, see has_undispatched
        self.pending.reset()

    def _dispatch(self) -> None:
        """Add the batch that was taken to the queues and the index."""
        units, keys, last = self.handed
        cost, limit = self.reput.cost, self.batch_limit
        is_full = 2 * len(units) >= limit
        began = cost.clock() if is_full else 0.0
        try:
            if units.end_phy_offset:
                self._before_store()
                self.store(units, keys)
                self.last_dispatched = last
                wanted = SLICE_PER_QUEUE * len(units.queues)
                self.batch_limit = max(self._slice, min(wanted, _MAX_SLICE))
            self.full_at = 1 if self.arrivals.is_active else self.batch_limit
            if self.arrivals.is_active:
                self.arrivals.add(units)  # within the section: no waiter is missed
        except STALLING as exc:
            is_room = isinstance(exc, DiskFullError)
            until = "there is free space" if is_room else "the dispatcher accepts the record"
            self._state.set_stalled(f"{exc}; it continues automatically once {until}")
            self._dispatching.end()  # as if it had not begun: ``_resume`` starts again
            raise
        except BaseException as exc:
            self._state.fail(exc)
            raise
        self.handed = NOTHING
        self._dispatching.end()
        if is_full:
            cost.add(cost.clock() - began, len(units), limit)
        if self._state.stalled:
            self._state.set_stalled("")
