"""LoopTurn: completions by other threads for the tasks of one event loop.

A call from another thread wakes the loop, and costs it a lock. So completions that happen together
cost one call, and the loop handles all of them in one turn.
"""

import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def callers_asyncio() -> Any:
    """Return the module asyncio, which the caller's event loop has imported.

    A store imports it neither when it is opened, because it is large, nor in a put or a wait.

    Raises:
        RuntimeError: no loop is running.
    """
    found = sys.modules.get("asyncio")
    if found is None:
        raise RuntimeError("no running event loop")
    return found


class LoopTurn(Generic[T]):
    """Completions of one loop. Other threads call only ``complete_soon``."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self.loop = loop
        self._done: deque[T] = deque()
        self._called: list[None] = []  # not empty: the loop will call ``_complete_all``

    def complete(self, item: T) -> None:
        """Complete ``item`` in the loop; called again if the first call was interrupted."""
        raise NotImplementedError

    def complete_soon(self, item: T) -> None:
        """Make the loop complete ``item``; one call for several close in time. Never waits.

        A signal handler may raise an exception in ``_complete_all`` at any instruction. So it is
        called once more, and the step that admits the next caller is not Python code of this
        project.
        """
        self._done.append(item)
        if self._called:
            return
        self._called.append(None)
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            for step in (self._called.clear, self._complete_all, self._complete_all):
                self.loop.call_soon_threadsafe(step)

    def _complete_all(self) -> None:
        while self._done:
            self.complete(self._done[0])  # stays there until all are done
            self._done.popleft()
