"""Wakeup: one thread waits for it, any thread and any signal's handler may call it.

``threading.Event`` is no use where a caller may be interrupted: its lock is taken in Python, and an
exception behind that line leaves it taken for ever. Here each operation is one call into C.
"""

import threading

_SECONDS = 1.0
"""So often a thread that waits without a deadline asks again: no one wait is without an end."""


class Wakeup:
    """A binary semaphore: calls before a wait count as one.

    Whole after an exception between any two instructions. ``set``: any thread, never waits.
    ``wait``: one thread at a time; it takes the call.
    """

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        """Let the one that waits go on, or the next that comes."""
        try:
            self._asleep.release()
        except RuntimeError:  # it has been called already
            return

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a call, at most so many seconds, and take it; return whether there was one."""
        if seconds is not None:
            return self._asleep.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        while not self._asleep.acquire(timeout=_SECONDS):
            pass
        return True
