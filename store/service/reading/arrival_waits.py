"""ArrivalWaits: threads and tasks that wait until a queue has an offset.

Source: RocketMQ ``PullRequestHoldService``.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.service.reading.arguments import check_offsets
from cqstore.store.service.runtime.loop_turn import callers_asyncio
from cqstore.store.service.runtime.running_state import RunningState

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cqstore.store.errors import StoreError
    from cqstore.store.service.dispatching.arrival_service import (
        ArrivalService,
        ArrivalWait,
        Offsets,
    )
    from cqstore.store.service.reading.loop_waits import LoopWait, LoopWaits

W = TypeVar("W", bound="ArrivalWait")


class ArrivalWaits:
    """The waits of one store, for any thread and any asyncio task.

    While nothing arrives a wait costs only memory: it starts no thread and does not poll. It ends
    within a thread switch after the units become visible.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        arrivals: "ArrivalService",
        state: RunningState,
        ready: Callable[[], object],
        loop_waits: "LoopWaits | None",
    ) -> None:
        """Wait for ``arrivals`` in ``queues``; ``ready`` dispatches waiting units.

        Without ``loop_waits`` the store is read-only.
        """
        self._queues = queues
        self._arrivals = arrivals
        self._state = state
        self._ready = ready
        self._loop_waits = loop_waits

    def wait_for_any(self, offsets: "Offsets", timeout: float | None) -> bool:
        """Wait in this thread, see ``MessageStore.wait_for_any``."""
        self._check(offsets)
        if self._has_any(offsets):
            return True
        with self._registered(ThreadWait(offsets)) as wait:
            return self._has_any(offsets) or wait.wait(timeout) or self._has_any(offsets)

    def thread_wait(self, offsets: "Offsets") -> "AbstractContextManager[ThreadWait]":
        """Return a wait of the calling thread, see ``MessageStore.thread_wait``."""
        self._check(offsets)
        return self._registered(ThreadWait(offsets))

    async def wait_for_any_async(self, offsets: "Offsets", timeout: float | None) -> bool:
        """Wait in this task, see ``MessageStore.wait_for_any_async``.

        Raises:
            StoreError: as for ``MessageStore.wait_for_any_async``.
        """
        self._check(offsets)
        if self._has_any(offsets):
            return True
        with self.loop_wait(offsets) as wait:
            if self._has_any(offsets):
                return True
            try:
                async with callers_asyncio().timeout(timeout):
                    await wait.future
            except TimeoutError:
                return self._has_any(offsets)
            if wait.error is not None:
                raise wait.error
            return True

    @contextmanager
    def loop_wait(self, offsets: "Offsets") -> "Iterator[LoopWait]":
        """Return a wait of the running loop, see ``MessageStore.loop_wait``."""
        self._check(offsets)
        if self._loop_waits is None:
            self._state.check_writable()
        assert self._loop_waits is not None
        with self._registered(self._loop_waits.new(offsets)) as wait:
            yield wait

    @contextmanager
    def _registered(self, wait: W) -> Iterator[W]:
        """Register ``wait`` with the arrivals for the duration of the block."""
        arrivals = self._arrivals
        try:
            try:
                arrivals.add_wait(wait)
                yield wait
            finally:
                arrivals.remove_wait(wait)
        finally:  # a signal handler may have interrupted the registration
            arrivals.remove_wait(wait)

    def _check(self, offsets: "Offsets") -> None:
        check_offsets(offsets)
        self._state.check_open()
        self._state.locks.check()

    def _has_any(self, offsets: "Offsets") -> bool:
        self._ready()
        queues = self._queues
        return any(queues.queue(*key).max_offset() > offset for key, offset in offsets.items())


class ThreadWait:
    """An ``ArrivalWait`` of a thread: ``wait`` blocks it until any thread calls ``wake``."""

    __slots__ = ("_woken", "error", "offsets")

    def __init__(self, offsets: "Offsets") -> None:
        self.offsets = offsets
        self.error: StoreError | None = None
        self._woken = Wakeup()

    def wake(self) -> None:
        """Wake the thread."""
        self._woken.set()

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds; return whether it was woken.

        Raises:
            StoreError: no unit will arrive.
        """
        woken = self._woken.wait(threading.TIMEOUT_MAX if timeout is None else timeout)
        if self.error is not None:
            raise self.error
        return woken
