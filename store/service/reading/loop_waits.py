"""LoopWaits: waits for arrivals by tasks of event loops.

Any number of waits of a loop that end together cost the loop one call from another thread.
"""

import threading
from typing import TYPE_CHECKING

from cqstore.store.service.runtime.loop_turn import LoopTurn, callers_asyncio

if TYPE_CHECKING:
    from cqstore.store.errors import StoreError
    from cqstore.store.service.dispatching.arrival_service import Offsets


class LoopWait:
    """The wait of a task for ``future``; an ``ArrivalWait``. Created in the thread of its loop."""

    __slots__ = ("_turn", "error", "future", "offsets")

    def __init__(self, offsets: "Offsets", turn: "_LoopTurn") -> None:
        self.offsets = offsets
        self.error: StoreError | None = None
        self.future = turn.loop.create_future()
        self._turn = turn

    def wake(self) -> None:
        """Wake the task. Any thread; never waits."""
        self._turn.complete_soon(self)


class LoopWaits:
    """Creates the waits of any number of loops, each in its own thread."""

    def __init__(self) -> None:
        self._here = threading.local()

    def new(self, offsets: "Offsets") -> LoopWait:
        """Return a wait of the running loop."""
        loop = callers_asyncio().get_running_loop()
        turn: _LoopTurn | None = getattr(self._here, "turn", None)
        if turn is None or turn.loop is not loop:
            self._here.turn = turn = _LoopTurn(loop)
        return LoopWait(offsets, turn)


class _LoopTurn(LoopTurn[LoopWait]):
    """The completed waits of one loop."""

    def complete(self, item: LoopWait) -> None:
        """Wake the waiting task, in its loop."""
        if not item.future.done():
            item.future.set_result(None)
