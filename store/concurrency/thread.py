"""StoreThread: a thread that a caller may be interrupted in starting, and in waiting for.

``threading.Thread.start`` waits for an ``Event``. An exception there (a signal's handler raises it)
could leave the event's lock taken: the thread would wait for it before its first line, for ever.
``Thread.join`` takes a thread for ended where an exception comes while it waits: a caller that
joined again, or asked whether it is alive, would continue beside it.
"""

import os
import threading
from collections.abc import Callable

from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import NestedCallError

_START_SECONDS = 1.0
_running: set[int] = set()
"""The threads that are inside of ``StoreThread.run``."""


def is_store_thread() -> bool:
    """Return whether the calling thread is one of a store. Takes no lock."""
    return threading.get_ident() in _running


class StoreThread(threading.Thread):
    """Runs ``work``; the process does not wait for it when it ends."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self._started = Latch()
        self._over = Latch()
        self._pid = os.getpid()  # a child of that process has no such thread

    def run(self) -> None:
        """Run ``work``; then those go on that wait for the thread's end."""
        ident = threading.get_ident()
        try:
            _running.add(ident)
            super().run()
        finally:
            _running.discard(ident)
            self._over.set()

    def is_alive(self) -> bool:
        """Return whether it is at work: it has begun, in this process, and not come to its end."""
        return self._started.is_set() and not self._over.is_set() and self._pid == os.getpid()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, as ``Thread.join``; not for one whose start came to nothing.

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
        """Refuse the thread itself, which would wait for its own end.

        Raises:
            NestedCallError: it is the caller.
        """
        if threading.current_thread() is self:
            raise NestedCallError(
                f"this call would deadlock: it came from the store's own thread {self.name} (from a"
                " future's callback, a finalizer or a callback of the garbage collector)"
            )
