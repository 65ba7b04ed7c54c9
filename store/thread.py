"""StoreThread: a thread that a caller may be interrupted in starting.

``threading.Thread.start`` waits for an ``Event``. An exception there (a signal's handler raises it)
could leave the event's lock taken: the thread would wait for it before its first line, for ever.
"""

import threading
from collections.abc import Callable

from store.errors import NestedCallError
from store.wakeup import Latch

_START_SECONDS = 1.0


class StoreThread(threading.Thread):
    """Runs ``work``; the process does not wait for it when it ends."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self._started = Latch()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, as ``Thread.join``; not for one whose start came to nothing.

        Raises:
            NestedCallError: the thread itself calls.
        """
        self.refuse_itself()
        if self._started.wait(_START_SECONDS):
            super().join(timeout)

    def refuse_itself(self) -> None:
        """Refuse the thread itself, which would wait for its own end.

        Raises:
            NestedCallError: it is the caller.
        """
        if threading.current_thread() is self:
            raise NestedCallError(
                f"the call came from the thread {self.name} of the store (from a future's callback,"
                " a finalizer or a callback of the garbage collector): it would wait for itself"
            )
