"""StoreFuture: a future of the standard library's that an interrupted caller cannot leave locked.

``threading.Condition`` takes its lock in a line of Python, and an exception behind that line (a
signal's handler raises it) leaves the lock taken for ever: the thread that is to complete the
future would wait for it, and ``close`` for that thread.
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
"""Where handlers of signals run. In a child that another thread forked it is one that is gone."""
_LOG = StoreLogger("concurrent.futures")


Soon = Callable[[Callable[[], object]], object]
"""Runs a step once the caller has made all of its present calls: by itself, at once or later."""


def at_once(step: Callable[[], object]) -> None:
    """Do the step: a ``Soon`` of callers that make one call at a time."""
    step()


class Promised(Protocol[T_contra]):
    """Receives once how something ended: a future, or an object in its place. By any thread."""

    def set_result(self, result: T_contra, /) -> object:
        """Take the result that was waited for."""

    def set_exception(self, exception: BaseException, /) -> object:
        """Take the exception instead of a result."""


class Condition(RLock):
    """As ``threading.Condition`` over a lock of its own, as far as futures use it.

    An exception between any two instructions leaves neither the lock taken nor a call lost that
    came before it.
    """

    __slots__ = ("_gates",)
    _gates: deque[threading.Lock]

    def __init__(self) -> None:
        self._gates = deque()  # of threads that wait, each taken until it is called

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock until a call comes, at most so many seconds; was there one?

        The caller has the lock, once.
        """
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        held = (1, threading.get_ident())
        try:  # The first call of each block comes to its end: no handler runs before it.
            held = self._release_save()
            if timeout is None:
                return gate.acquire()
            return gate.acquire(timeout=min(max(timeout, 0), threading.TIMEOUT_MAX))
        finally:
            self._acquire_restore(held)
            if gate in self._gates:
                self._gates.remove(gate)

    def notify_all(self) -> None:
        """Call all that wait; the caller has the lock."""
        while self._gates:
            gate = self._gates[0]
            if gate.locked():  # else a call interrupted behind the next line released it
                gate.release()
            self._gates.popleft()


class StoreFuture(Future[T]):
    """What a put promises. Any thread may wait for it, and be interrupted there.

    Also in ``concurrent.futures.wait`` and ``as_completed``: these take its lock, and that of an
    ``Event`` of theirs, in lines of Python. What the main thread has left taken there holds up no
    thread that completes it: a thread for which no other waits then does that.
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
            super().set_result(result)  # whatever is left taken, it is by this thread
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
        """As ``Future`` does, but not under the lock, nor with a wait for a handler of logs."""
        for callback in () if self._completing else self._done_callbacks:  # type: ignore[attr-defined]
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - whatever a program's callback raises
                _LOG.exception("exception calling callback for %r", self)


class _Waiters(list[Any]):
    """Those in ``concurrent.futures.wait``: before they wait, each gets an event of ours."""

    __slots__ = ("lock",)
    lock: Condition

    def append(self, waiter: Any) -> None:
        """Add one; the locks of all its futures are held."""
        if not isinstance(waiter.event, _Event):
            waiter.event = _Event()
        waiter.event.locks.append(self.lock)
        super().append(waiter)


class _Event(Latch):
    """As ``threading.Event`` for one thread that waits, for futures with ``locks``."""

    __slots__ = ("locks",)

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[Condition] = []

    def wait(self, seconds: float | None = None) -> bool:
        """Wait, without what an interrupted call of this thread has left taken."""
        for lock in self.locks:
            if lock._is_owned():  # noqa: SLF001 - the one way to ask
                lock._release_save()  # noqa: SLF001 - however often it was taken
        return super().wait(seconds)

    def clear(self) -> None:
        """Be as if it had not happened; no ``set`` comes meanwhile."""
        self._is_set = False
        self._asleep.acquire(blocking=False)
