"""Arrivals: units that have become visible, for listeners, each in its own thread.

Source: RocketMQ ``MessageArrivingListener``, ``NotifyMessageArrivingListener``.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.errors import StoreIOError
from cqstore.store.progress import noop
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.service.runtime.watched_thread import EXIT_SECONDS, Worker

_LOG = StoreLogger(__name__)
MAX_WAITING_UNITS = 1 << 18
"""Limit of units that wait for one listener, 40 bytes each; others are dropped and counted."""


class Arrival(NamedTuple):
    """A unit that has become visible, in the queue of the message or in a light queue."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    store_timestamp: int
    """ms since the epoch."""


class ArrivalBatch:
    """Units that became visible together, in log order. Any thread may use it.

    Iteration yields an ``Arrival`` per unit; ``queues`` and ``len`` are cheap.
    """

    __slots__ = ("_units", "dropped")

    def __init__(self, units: UnitBatch, dropped: int = 0) -> None:
        """``units``: a batch to which no units are added any more."""
        self._units = units
        self.dropped = dropped
        """Units dropped since the listener's last call, because it was too slow. A batch may have
        only such units: then the queues must be read."""

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[Arrival]:
        for (topic, queue_id), *unit in self._units.entries():
            yield Arrival(topic, queue_id, *unit)

    @property
    def queues(self) -> Sequence[QueueKey]:
        """Return the queues that have new units, without duplicates."""
        return self._units.queues


ArrivalListener = Callable[[ArrivalBatch], object]
"""Called in its own thread, after units have become visible.

No lock of the store is held. Its exceptions are logged and counted, and further calls follow. If it
is too slow, units are dropped, and the next call has their number. It may read from the store; it
must not close it."""


class ListenerThread:
    """Calls one listener, batch by batch; its exceptions are counted and logged, and do no harm.

    ``offer`` is called by one thread at a time, all other methods by any thread.
    """

    def __init__(self, listener: ArrivalListener) -> None:
        self._listener = listener
        self._batches: deque[UnitBatch] = deque()
        self._offered = self._taken = 0  # units; each is changed by one thread only
        self.dropped = 0
        """Units that were dropped because too many waited."""
        self._reported = 0  # part of `dropped`
        self.failures = 0
        """Calls that raised an exception."""
        self._wake = Wakeup()
        self._stopped = self._ended = False
        self.worker = Worker(
            "cqstore-listener", self._run, noop, "the listener is no longer called"
        )

    def start(self) -> None:
        """Start the thread that calls the listener.

        Raises:
            StoreIOError: the system has no more threads.
        """
        try:
            self.worker.start()
        except (RuntimeError, MemoryError) as exc:
            raise StoreIOError(f"cannot start a thread for a listener: {exc}") from exc

    def offer(self, units: UnitBatch) -> None:
        """Add units for the listener, or drop them if too many wait; never waits."""
        waiting = self._offered - self._taken
        if waiting and waiting + len(units) > MAX_WAITING_UNITS:
            self.dropped += len(units)
        else:
            self._offered += len(units)
            self._batches.append(units)
        self._wake.set()

    def stop(self) -> None:
        """End the thread after it has passed all waiting units, or when that takes too long."""
        self._stopped = True
        self._wake.set()
        self.worker.end(EXIT_SECONDS)
        if not self._ended:
            self._batches.clear()
            _LOG.warning("an arrival listener does not return: its thread is abandoned")

    def _run(self) -> None:
        """Call the listener with each waiting batch, until the end."""
        try:
            stopped = False
            while not stopped:
                self._wake.wait()
                stopped = self._stopped
                while self._batches or self._reported != self.dropped:
                    self._call_next()
        finally:
            self._ended = True

    def _call_next(self) -> None:
        """Call the listener with the next batch, and the number of dropped units."""
        units = self._batches.popleft() if self._batches else UnitBatch()
        dropped = self.dropped - self._reported
        try:
            self._listener(ArrivalBatch(units, dropped))
        except BaseException:  # noqa: BLE001 - whatever a program's listener raises
            self.failures += 1
            if not self.failures & (self.failures - 1):  # each time it has doubled
                _LOG.exception("an arrival listener has failed %d times", self.failures)
        self._reported += dropped
        self._taken += len(units)


class ArrivalSubscription:
    """Subscription of a listener, until ``close`` or the close of the store. Any thread."""

    def __init__(self, thread: ListenerThread, end: Callable[[ListenerThread], object]) -> None:
        self._thread = thread
        self._end = end

    @property
    def failures(self) -> int:
        """Return the number of listener calls that raised an exception."""
        return self._thread.failures

    @property
    def dropped(self) -> int:
        """Return the number of units that were dropped because the listener was too slow."""
        return self._thread.dropped

    def close(self) -> None:
        """Deliver the waiting units, then stop calling the listener. A second call does nothing.

        Raises:
            NestedCallError: called by the listener itself; nothing was done.
        """
        self._end(self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
