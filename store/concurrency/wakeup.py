"""Wakeup and Latch, for waiting threads; any thread and any signal handler may set them.

``threading.Event`` cannot be used if a caller may be interrupted: its lock is acquired in Python,
and an exception after that line leaves it held forever. Here each operation is one call into C.
"""

import threading
import time

_SECONDS = 1.0
"""Interval at which a waiting thread checks again: no single wait is unlimited."""


class Wakeup:
    """A binary semaphore: several calls of ``set`` before a wait count as one.

    Consistent after an exception between any two instructions. ``set``: any thread, never waits.
    ``wait``: one thread at a time; it consumes the call.
    """

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        """Wake the waiting thread, or the next one that waits."""
        if not self._asleep.locked():  # it was set already
            return
        try:
            self._asleep.release()
        except RuntimeError:  # another thread released it meanwhile
            return

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for ``set``, at most ``seconds``, and consume it; return whether it was called."""
        if seconds is not None:
            return self._asleep.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        while not self._asleep.acquire(timeout=_SECONDS):
            pass
        return True


class Latch:
    """A one-time event; ``is_set`` and ``wait`` are those of ``threading.Event``. Any thread.

    Consistent after an exception between any two instructions: if the notifier is interrupted,
    waiting threads check again after at most a second.
    """

    __slots__ = ("_asleep", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._asleep = threading.Lock()  # free after ``set``, except for moments
        self._asleep.acquire()

    def is_set(self) -> bool:
        """Return whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Wake all waiting threads, and later ones."""
        self._is_set = True
        self._wake_next()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it happens, at most ``seconds``; return whether it has."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._is_set:
            left = _SECONDS if deadline is None else min(deadline - time.monotonic(), _SECONDS)
            if left <= 0:
                break
            if self._asleep.acquire(timeout=left):
                self._wake_next()
        return self._is_set

    def _wake_next(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # another thread released it
            return

    def _at_fork_reinit(self) -> None:
        """Reset in a child; ``threading`` calls it on the event that a thread was started with."""
        self._asleep = threading.Lock()
        if not self._is_set:
            self._asleep.acquire()
