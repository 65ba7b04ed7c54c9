"""LoopWaits: waits for arrivals by tasks of event loops.

Whatever many waits of a loop are over at once cost the loop one call from another thread.
"""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.errors import StoreError
    from store.service.dispatching.arrival_service import Offsets


class LoopWait:
    """A task waits for ``future``; an ``ArrivalWait``. Made in the thread of its loop."""

    __slots__ = ("_turn", "error", "future", "offsets")

    def __init__(self, offsets: "Offsets", turn: "_LoopTurn") -> None:
        self.offsets = offsets
        self.error: StoreError | None = None
        self.future = turn.loop.create_future()
        self._turn = turn

    def wake(self) -> None:
        """Let the task go on. Any thread; never waits."""
        self._turn.complete_soon(self)


class LoopWaits:
    """Makes the waits of any number of loops, each in a thread of its own."""

    def __init__(self) -> None:
        self._here = threading.local()

    def new(self, offsets: "Offsets") -> LoopWait:
        """Return a wait of the running loop."""
        loop = asyncio.get_running_loop()
        turn: _LoopTurn | None = getattr(self._here, "turn", None)
        if turn is None or turn.loop is not loop:
            self._here.turn = turn = _LoopTurn(loop)
        return LoopWait(offsets, turn)


class _LoopTurn:
    """The waits of one loop that are over. Only ``complete_soon`` is called by other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._over: deque[LoopWait] = deque()
        self._called: list[None] = []  # not empty: the loop will come to ``_complete``

    def complete_soon(self, wait: LoopWait) -> None:
        """Have the loop complete ``wait``; one call for all that come soon.

        A handler of a signal may raise in ``_complete`` at any instruction: so that is called once
        more, and what lets the next one call is no code of ours.
        """
        self._over.append(wait)
        if self._called:
            return
        self._called.append(None)
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            for step in (self._called.clear, self._complete, self._complete):
                self.loop.call_soon_threadsafe(step)

    def _complete(self) -> None:
        while self._over:
            wait = self._over[0]  # stays there until all is done
            if not wait.future.done():
                wait.future.set_result(None)
            self._over.popleft()
