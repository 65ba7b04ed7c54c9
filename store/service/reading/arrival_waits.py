"""Waits for arrivals: of a thread, which sleeps in one call of the system."""

import threading
from typing import TYPE_CHECKING

from store.wakeup import Wakeup

if TYPE_CHECKING:
    from store.errors import StoreError
    from store.service.dispatching.arrival_service import Offsets


class ThreadWait:
    """The calling thread waits; an ``ArrivalWait``."""

    __slots__ = ("_woken", "error", "offsets")

    def __init__(self, offsets: "Offsets") -> None:
        self.offsets = offsets
        self.error: StoreError | None = None
        self._woken = Wakeup()

    def wake(self) -> None:
        """Wake the thread."""
        self._woken.set()

    def wait(self, timeout: float | None) -> bool:
        """Return whether it was woken, at most so many seconds later.

        Raises:
            StoreError: nothing will come.
        """
        woken = self._woken.wait(threading.TIMEOUT_MAX if timeout is None else timeout)
        if self.error is not None:
            raise self.error
        return woken
