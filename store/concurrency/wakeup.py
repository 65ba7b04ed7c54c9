"""Wakeup and Latch: what threads wait for; any thread and any signal's handler may call them.

``threading.Event`` is no use where a caller may be interrupted: its lock is taken in Python, and an
exception behind that line leaves it taken for ever. Here each operation is one call into C.
"""

import threading
import time

_SECONDS = 1.0
"""So often a thread that waits asks again: no one wait is without an end."""


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
        """Wake the one that waits, or the next that comes."""
        if not self._asleep.locked():  # it has been called already
            return
        try:
            self._asleep.release()
        except RuntimeError:  # by another thread since
            return

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a call, at most so many seconds, and take it; return whether there was one."""
        if seconds is not None:
            return self._asleep.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        while not self._asleep.acquire(timeout=_SECONDS):
            pass
        return True


class Latch:
    """What happens once: ``is_set`` and ``wait`` as of ``threading.Event``. Any thread.

    Whole after an exception between any two instructions: a thread that was to be called by the one
    that was interrupted finds out within a second.
    """

    __slots__ = ("_asleep", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._asleep = threading.Lock()  # stays free once it is set, but for moments
        self._asleep.acquire()

    def is_set(self) -> bool:
        """Return whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Wake all that wait, and all that come."""
        self._is_set = True
        self._wake_next()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it happens, at most so many seconds; return whether it has."""
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
        except RuntimeError:  # another thread has done it
            return

    def _at_fork_reinit(self) -> None:
        """Start over in a child; ``threading`` asks it of what a thread has been started by."""
        self._asleep = threading.Lock()
        if not self._is_set:
            self._asleep.acquire()
