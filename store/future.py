"""StoreFuture: a future of the standard library's that an interrupted caller cannot leave locked.

``threading.Condition`` takes its lock in a line of Python, and an exception behind that line (a
signal's handler raises it) leaves the lock taken for ever: the thread that is to complete the
future would wait for it, and ``close`` for that thread.
"""

import threading
from collections import deque
from concurrent.futures import Future
from typing import TypeVar

from store.checked_lock import RLock
from store.logger import StoreLogger

T = TypeVar("T")
_LOG = StoreLogger("concurrent.futures")


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
        """Let the lock go until a call comes, at most so many seconds; was there one?

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
            if gate.locked():  # or a call that was cut short behind the next line has let it go
                gate.release()
            self._gates.popleft()


class StoreFuture(Future[T]):
    """What a put promises. Any thread may wait for it, and be interrupted there."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()  # type: ignore[assignment]

    def _invoke_callbacks(self) -> None:
        """As ``Future`` does; the thread that completes it waits for no handler's lock."""
        for callback in self._done_callbacks:  # type: ignore[attr-defined]
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - whatever a program's callback raises
                _LOG.exception("exception calling callback for %r", self)
