"""StoreWaits: what waits for messages that are still to come.

Source: RocketMQ ``PullRequestHoldService``, ``MessageArrivingListener``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.queue.units import QueueKey
from store.service.dispatching.arrivals import ArrivalListener, ArrivalSubscription
from store.service.reading.arguments import check_queue
from store.service.reading.arrival_waits import ThreadWait
from store.service.store_reads import StoreReads

if TYPE_CHECKING:
    from store.service.dispatching.arrival_service import ArrivalService, Offsets
    from store.service.reading.loop_waits import LoopWait, LoopWaits


class StoreWaits(StoreReads):
    """Waits; any thread, and any task of asyncio.

    While nothing comes a wait costs memory alone: no thread of the store's own, and no polling. It
    is over within a thread's switch of the moment in which the units are visible. While anything
    waits or listens, a put that finds no other before it wakes a thread, which dispatches it.
    """

    _loop_waits: "LoopWaits | None"

    def wait_for(
        self, topic: str, queue_id: int, offset: int, timeout: float | None = None
    ) -> bool:
        """Wait until the queue has a unit at ``offset`` or behind; return whether it has.

        At most ``timeout`` seconds, without one for ever. A queue that is not there yet is waited
        for. An offset whose unit has expired is not. In the main thread an exception of a signal's
        handler ends the wait.

        Raises:
            ReadOnlyStoreError: nothing arrives in a store that was opened to read.
            StoreClosedError, StoreFailedError: it was closed, or a write failed, by now too.
            NestedCallError: the thread is inside another call of the store.
        """
        return self.wait_for_any({QueueKey(topic, queue_id): offset}, timeout)

    def wait_for_any(self, offsets: Mapping[QueueKey, int], timeout: float | None = None) -> bool:
        """Wait until one of several queues has its offset, see ``wait_for``."""
        self._check_waits(offsets)
        if self._has_any(offsets):
            return True
        wait = ThreadWait(offsets)
        arrivals = self._arrivals
        try:
            try:
                arrivals.add_wait(wait)
                return self._has_any(offsets) or wait.wait(timeout) or self._has_any(offsets)
            finally:
                arrivals.remove_wait(wait)
        finally:  # a signal's handler may have raised in the middle of that
            arrivals.remove_wait(wait)

    async def wait_for_async(
        self, topic: str, queue_id: int, offset: int, timeout: float | None = None
    ) -> bool:
        """Wait as ``wait_for`` does, in a task of asyncio. Cancelled it leaves nothing."""
        return await self.wait_for_any_async({QueueKey(topic, queue_id): offset}, timeout)

    async def wait_for_any_async(
        self, offsets: Mapping[QueueKey, int], timeout: float | None = None
    ) -> bool:
        """Wait until one of several queues has its offset, see ``wait_for_async``."""
        from asyncio import timeout as at_most  # noqa: PLC0415 - asyncio is large

        self._check_waits(offsets)
        if self._has_any(offsets):
            return True
        with self.loop_wait(offsets) as wait:
            if self._has_any(offsets):
                return True
            try:
                async with at_most(timeout):
                    await wait.future
            except TimeoutError:
                return self._has_any(offsets)
            if wait.error is not None:
                raise wait.error
            return True

    @contextmanager
    def loop_wait(self, offsets: Mapping[QueueKey, int]) -> "Iterator[LoopWait]":
        """Give a wait of the running loop: a task may await its ``future``, then see ``error``.

        What is there already does not complete it: look behind the begin of the block. Its ``wake``
        completes it too.

        Raises:
            StoreError: as for ``wait_for``.
        """
        self._check_waits(offsets)
        if self._loop_waits is None:
            from store.service.reading.loop_waits import LoopWaits  # noqa: PLC0415 - see above

            self._loop_waits = LoopWaits()
        wait = self._loop_waits.new(offsets)
        arrivals = self._arrivals
        try:
            try:
                arrivals.add_wait(wait)
                yield wait
            finally:
                arrivals.remove_wait(wait)
        finally:  # as in ``wait_for_any``
            arrivals.remove_wait(wait)

    def add_arrival_listener(self, listener: ArrivalListener) -> ArrivalSubscription:
        """Call ``listener`` with the units that become visible from now on, light queues' too.

        In a thread of its own and in log order, batch by batch: each of its units is visible, and
        no lock of the store is held. What the listener raises is logged and counted, and it goes
        on. Where it is too slow units are dropped, and the next call says how many. It may read
        from the store; it must not close it.

        Raises:
            StoreError: as for ``wait_for``.
        """
        self._state.check_open()
        return self._arrivals.add_listener(listener)

    @property
    def _arrivals(self) -> "ArrivalService":
        return self._dispatcher.arrivals

    def _check_waits(self, offsets: "Offsets") -> None:
        for (topic, queue_id), offset in offsets.items():
            check_queue(topic, queue_id, offset=offset)
        self._state.check_open()
        self._state.locks.check()

    def _has_any(self, offsets: "Offsets") -> bool:
        self._ready()
        queues = self.queues
        return any(queues.queue(*key).max_offset() > offset for key, offset in offsets.items())
