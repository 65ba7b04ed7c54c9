"""StoreFuture: a future of the standard library that an interrupted caller cannot leave locked.

``threading.Condition`` acquires its lock in Python code, and an exception after that line (raised
by a signal handler) leaves the lock held forever: the thread that completes the future would wait
for it, and ``close`` for that thread.
"""

import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from cqstore.store.concurrency.checked_lock import RLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
V = TypeVar("V")
_SECONDS = 1.0
_main = threading.main_thread()
"""The thread of signal handlers. In a child forked by another thread it does not exist."""
_LOG = StoreLogger("concurrent.futures")


Soon = Callable[[Callable[[], object]], object]
"""Runs a step after the caller's present calls: directly, at once or later."""


def at_once(step: Callable[[], object]) -> None:
    """Run the step: a ``Soon`` for callers that make one call at a time."""
    step()


class Promised(Protocol[T_contra]):
    """Receives a result or an exception once: a future, or an object in its place. Any thread."""

    def set_result(self, result: T_contra, /) -> object:
        """Set the result."""

    def set_exception(self, exception: BaseException, /) -> object:
        """Set the exception instead of a result."""


class Condition(RLock):
    """Like ``threading.Condition`` with its own lock; has the methods that futures use.

    An exception between any two instructions neither leaves the lock held nor loses an earlier
    notification.
    """

    __slots__ = ("_gates",)
    _gates: deque[threading.Lock]

    def __init__(self) -> None:
        self._gates = deque()  # one per waiting thread, held until it is notified

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock until a notification or the timeout; return whether there was one.

        The caller holds the lock, once.
        """
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        held = (1, threading.get_ident())
        try:  # The first call of each block completes: no signal handler runs before it.
            held = self._release_save()
            if timeout is None:
                return gate.acquire()
            return gate.acquire(timeout=min(max(timeout, 0), threading.TIMEOUT_MAX))
        finally:
            self._acquire_restore(held)
            if gate in self._gates:
                self._gates.remove(gate)

    def notify_all(self) -> None:
        """Notify all waiting threads; the caller holds the lock."""
        while self._gates:
            gate = self._gates[0]
            if gate.locked():  # otherwise a call interrupted after the next line released it
                gate.release()
            self._gates.popleft()


class StoreFuture(Future[T]):
    """The future of a put. Any thread may wait for it, and be interrupted while waiting.

    Also in ``concurrent.futures.wait`` and ``as_completed``: these acquire its lock, and that of an
    ``Event`` of theirs, in Python code. If the main thread left one held there, the thread that
    completes the future is not blocked: a new thread, for which no other thread waits, completes
    it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._condition = lock = Condition()  # type: ignore[assignment]
        self._waiters = waiters = _Waiters()
        waiters.lock = lock
        self._completing = False  # under the lock, by another thread than the main one

    def set_result(self, result: T) -> None:
        """Complete the future with ``result``. Any thread."""
        if get_ident() == _main.ident:
            super().set_result(result)  # a lock that was left held is held by this thread
        else:
            self._complete(super().set_result, result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Complete the future with an exception. Any thread."""
        if get_ident() == _main.ident:
            super().set_exception(exception)
        else:
            self._complete(super().set_exception, exception)

    def _complete(self, step: Callable[[V], object], given: V) -> None:
        """Complete the future by ``step(given)`` in a thread that is not the main one."""
        condition = self._condition
        if condition.acquire(timeout=_SECONDS):
            try:
                self._completing = True
                step(given)
            finally:
                self._completing = False
                condition.release()
            self._invoke_callbacks()
        else:
            threading.Thread(target=step, args=(given,), name="cqstore-future", daemon=True).start()

    def _invoke_callbacks(self) -> None:
        """Like ``Future``, but not under the lock, and without waiting for a log handler."""
        for callback in () if self._completing else self._done_callbacks:  # type: ignore[attr-defined]
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - whatever a program's callback raises
                _LOG.exception("exception calling callback for %r", self)


class _Waiters(list[Any]):
    """The waiters of ``concurrent.futures.wait``; each gets an event of ours before it waits."""

    __slots__ = ("lock",)
    lock: Condition

    def append(self, waiter: Any) -> None:
        """Add a waiter; the locks of all its futures are held."""
        if not isinstance(waiter.event, _Event):
            waiter.event = _Event()
        waiter.event.locks.append(self.lock)
        super().append(waiter)


class _Event(Latch):
    """Like ``threading.Event`` for one waiting thread, for futures with ``locks``."""

    __slots__ = ("locks",)

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[Condition] = []

    def wait(self, seconds: float | None = None) -> bool:
        """Wait, after releasing locks that an interrupted call of this thread left held."""
        for lock in self.locks:
            if lock._is_owned():  # noqa: SLF001 - the one way to ask
                lock._release_save()  # noqa: SLF001 - however often it was taken
        return super().wait(seconds)

    def clear(self) -> None:
        """Reset the event; no ``set`` is called meanwhile."""
        self._is_set = False
        self._asleep.acquire(blocking=False)
