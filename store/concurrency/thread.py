"""StoreThread: a thread whose starter, and whose waiters, may be interrupted.

``threading.Thread.start`` waits for an ``Event``. An exception there (raised by a signal handler)
could leave the event's lock held: the thread would wait for it forever before its first line.
``Thread.join`` considers a thread ended if an exception occurs while it waits: a caller that joins
again, or checks whether it is alive, would continue while the thread runs.
"""

import os
import threading
from collections.abc import Callable

from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import NestedCallError

_START_SECONDS = 1.0
_running: set[int] = set()
"""The threads that are in ``StoreThread.run``."""


def is_store_thread() -> bool:
    """Return whether the calling thread is a thread of a store. Takes no lock."""
    return threading.get_ident() in _running


class StoreThread(threading.Thread):
    """Runs ``work``; the process does not wait for it at exit."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self._started = Latch()
        self._over = Latch()
        self._pid = os.getpid()  # a child of that process does not have the thread

    def run(self) -> None:
        """Run ``work``; then wake the threads that wait for the end."""
        ident = threading.get_ident()
        try:
            _running.add(ident)
            super().run()
        finally:
            _running.discard(ident)
            self._over.set()

    def is_alive(self) -> bool:
        """Return whether it is running: started, in this process, and not ended."""
        return self._started.is_set() and not self._over.is_set() and self._pid == os.getpid()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, as ``Thread.join``; returns at once if its start failed.

        Raises:
            NestedCallError: the thread itself calls.
        """
        self.refuse_itself()
        if not self._started.wait(_START_SECONDS):
            return
        if self._pid == os.getpid() and not self._over.wait(timeout):
            return
        super().join(timeout)  # it has nothing left to do

    def refuse_itself(self) -> None:
        """Refuse a call by the thread itself, which would wait for its own end.

        Raises:
            NestedCallError: the thread itself is the caller.
        """
        if threading.current_thread() is self:
            raise NestedCallError(
                f"this call would deadlock: it came from the store's own thread {self.name} (from a"
                " future's callback, a finalizer or a callback of the garbage collector)"
            )
