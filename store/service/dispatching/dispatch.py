"""Dispatcher: from what was appended to the queues and the index.

Units wait in memory (``Pending``) until a batch is full, a reader asks, or the flush thread comes
round, so nothing is read back from the log. A full batch is dispatched by the writer, or beside it
where that takes long (``ReputService``).

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
"""Queues whose next offset is kept beside the queues; others are read from them again.

Each takes 130 to 210 bytes, so all of them 140 to 220 MB. Where there are more, the newest are read
again, see ``QueueOffsets.forget_beyond``.
"""
SLICE_PER_QUEUE = 8
"""Units a queue that a batch waits for before it goes to the queues: one write for several."""
_MAX_SLICE = 1 << 16
R = TypeVar("R")
_FAR_TOO_MANY = 4
"""Times ``batch_limit`` from which the writer waits for a batch that another thread dispatches."""


class Dispatcher(_waiting.InFlight):
    """Feeds the queues and the index of one store. Any thread.

    Locks are taken in this order: ``owner``, then that of ``pending``. From taking a batch to
    its being in queues and index either all of it happens or the store fails. But where a disk has
    no room for units or keys, or a dispatcher fails, the batch stays ``handed`` and the dispatch is
    *stalled*: every later one begins with that batch again, whose units and keys are put once
    however often they come.
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
        """``dispatch_slice``: units that make a batch, where there are few queues.

        ``before_store`` is called before units become visible: under ``SYNC_FLUSH`` it makes the
        log durable. Then ``dispatchers`` are called with the records.
        """
        self.dispatchers = dispatchers
        self.pending = pending
        """What is to be dispatched; other threads may call what any thread may."""
        self._queues = queues
        self._index = index
        self.owner = CheckedLock("the dispatch of a batch")
        """One batch at a time goes into the queues, in log order: ``owner.entry(), drain_lock``."""
        self.drain_lock = threading.Lock()
        """Under ``owner``, for the writer, which asks whether a thread dispatches."""
        self.locks = state.locks
        self.locks.add(self.owner)
        self._state = state
        self._dispatching = CriticalSection(state, "the dispatch of a batch")
        self._slice = dispatch_slice
        self.batch_limit = dispatch_slice
        """Units that make a batch."""
        self.full_at = dispatch_slice
        """Waiting units at which the writer should ``drain_unless_busy``: ``batch_limit``, or the
        most that may wait, while the thread of ``reput`` has been woken for the batch, or 1, while
        arrivals are waited for and their thread has not been woken."""
        self.reput = ReputService(self.drain, state.fail)
        self.arrivals = ArrivalService(queues, self._arm, self.drain, state)
        self.handed = NOTHING
        """The batch that is being dispatched, or is to be once there is room for it."""
        self.last_dispatched: Appended | None = None
        """The last record of the log that queues and index have."""
        self._before_store = before_store

    def note_last(self, phy_offset: int, size: int, store_timestamp: int) -> None:
        """Take over the last record that recovery met."""
        self.last_dispatched = Appended(phy_offset, size, store_timestamp)

    @property
    def has_undispatched(self) -> bool:
        """Return whether a record of the log may not be in its queue yet.

        True also while another thread dispatches a batch: a reader has to wait for that one too.
        """
        return bool(self.pending.units.end_phy_offset) or self.handed is not NOTHING

    @property
    def is_full(self) -> bool:
        """Return whether the writer should ``drain_unless_busy``."""
        return len(self.pending.units) >= self.full_at

    @property
    def is_stalled(self) -> bool:
        """Return whether a batch waits, for room or a dispatcher. What queues have is whole."""
        return bool(self._state.stalled)

    def oldest_waiting(self) -> int:
        """Return the store time, ms, of the first unit that may not be in its queue yet.

        0 if none waits. The answer may be of a moment ago.
        """
        return oldest_timestamp(self.handed.units) or oldest_timestamp(self.pending.units)

    def drain(self) -> None:
        """Dispatch everything that waits; when it returns readers see it.

        Raises:
            NestedCallError: the thread is inside of what it would wait for; nothing was done.
            RetryableDiskFullError: there is no room; it is stalled until a later call finds some.
            DispatcherError: a dispatcher failed; likewise, until one does not.
            StoreError: the backend failed, or an earlier batch did; the store must be opened again.
        """
        self.locks.check_dispatch()  # so no ``entry`` is needed further on
        with self.owner, self.drain_lock:
            self._drain()

    def drain_unless_busy(self) -> None:
        """Dispatch what waits, unless another thread does and not far too much waits already.

        For the writer, whose next put should not wait for a batch of the flush thread. Nor does a
        put that was made inside a dispatch of its own thread: its units go with the next batch.
        What stalls it is no fault of its put, which is in the log: the next one is refused.

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
        """Dispatch everything that waits; the caller holds both locks.

        While he does, no put and no batch comes in.

        Raises:
            StoreError: as for ``drain``.
        """
        self._resume()
        self._begin_batch()
        self._dispatch()

    def when_caught_up(self, step: Callable[[], R]) -> R:
        """Take ``step`` while no thread puts or dispatches, with all that was put in the queues.

        No dispatcher is called under the append lock: where a put comes in before it is taken,
        they are called again first.

        Raises:
            StoreError: as for ``drain``, or what ``step`` raises.
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
        """Return whether all is dispatched, or no dispatcher is called with what is not."""
        return self.dispatchers is None or not self.has_undispatched

    def fail_if_interrupted(self) -> None:
        """Fail the store if a dispatch was interrupted, and no later caller has noticed."""
        with self.owner.entry(), self.drain_lock:
            self._dispatching.fail_if_interrupted()

    def store(self, units: UnitBatch, keys: IndexBatch) -> list[QueueRestart]:
        """Bring units and keys into queues and index; no other thread may meanwhile.

        Dispatchers come first: what queues have is dispatched no more by a recovery.
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
        """Have the next put wake the thread of arrivals; return whether something waits already."""
        self.full_at = 1
        return self.has_undispatched

    def _drain(self) -> None:
        """Dispatch all that waits; the caller holds ``owner`` and ``drain_lock``."""
        pending = self.pending
        self._resume()
        with pending.owner, pending.lock:
            self._begin_batch()
        self._dispatch()
        if len(pending.offsets) > ASSIGNED_QUEUES:
            # Under the lock, so that the queues' own ends are those assigned last.
            with pending.owner, pending.lock:
                if self._may_catch_up():  # else with the next batch
                    self.catch_up()
                    pending.offsets.forget_beyond(ASSIGNED_QUEUES)

    def _resume(self) -> None:
        """Dispatch the batch of a stalled dispatch: none may come before it."""
        if self.handed is not NOTHING:
            self._dispatching.begin()
            self._dispatch()

    def _begin_batch(self) -> None:
        """Take what waits; the caller holds the lock of ``pending``."""
        waiting = self.pending.snapshot()
        self._dispatching.begin()
        self.handed = waiting  # before nothing waits any more, see has_undispatched
        self.pending.reset()

    def _dispatch(self) -> None:
        """Bring what was taken into the queues and the index."""
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
                self.arrivals.add(units)  # within the section: no waiter is passed over
        except STALLING as exc:
            is_room = isinstance(exc, DiskFullError)
            until = "there is free space" if is_room else "the dispatcher accepts the record"
            self._state.set_stalled(f"{exc}; it continues automatically once {until}")
            self._dispatching.end()  # as if it had not begun: ``_resume`` begins it anew
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
