"""LoopPuts: puts that tasks of event loops await.

A future a put, as of the standard library, costs a lock and a wake-up of the loop for each. Here
the thread that has synced for many tells their loop once, and it completes them in one turn.
"""

import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from cqstore.store.record.message import Message
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.runtime.loop_turn import LoopTurn, callers_asyncio
from cqstore.store.service.writing import _waits
from cqstore.store.service.writing.putter import Puts, put_for_future

if TYPE_CHECKING:
    import asyncio

MAX_IN_FLIGHT = 4096
"""Puts of one loop that wait for disk or followers; the next one waits before it appends."""

_LOOPS = ("BaseEventLoop",)
"""Classes of asyncio. On a loop of another kind each put is a future: what was tried of uvloop 0.23
lost a call from a thread now and then, for a reason that was not found, and a lost call here holds
up many."""


class LoopPuts:
    """Puts for the tasks of any number of loops, each in a thread of its own."""

    def __init__(self) -> None:
        self._here = threading.local()

    async def put(self, puts: Puts, message: Message) -> PutMessageResult:
        """Put one message, see ``MessageStore.put``."""
        running = callers_asyncio()
        loop: asyncio.AbstractEventLoop = running.get_running_loop()
        of: _InLoop | None = getattr(self._here, "of", None)
        if of is None or of.loop is not loop:
            if not isinstance(loop, tuple(getattr(running, name) for name in _LOOPS)):
                done = put_for_future(puts, message)
                return done.result() if done.done() else await running.wrap_future(done, loop=loop)
            self._here.of = of = _InLoop(loop)
        if len(of.in_flight) >= MAX_IN_FLIGHT:
            await of.room()
        put = _waits.AwaitedPut(of)
        puts.put_later(message, put, of.soon)
        if put.is_notified:
            return put.answer()
        of.in_flight.add(put)  # a put interrupted before is not counted, which is harmless
        put.future = loop.create_future()
        await put.future
        return put.answer()


class _InLoop(LoopTurn[_waits.AwaitedPut]):
    """The puts of one loop. Only ``complete_soon`` is called by other threads than the loop's."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        super().__init__(loop)
        self.thread = get_ident()
        self.in_flight: set[_waits.AwaitedPut] = set()
        self._turns: deque[asyncio.Future[None]] = deque()  # of those that wait for room
        self._scheduled: list[None] = []  # not empty: the loop will come to a step of ``soon``

    def soon(self, step: Callable[[], object]) -> None:
        """Do ``step`` once all tasks have run that can: so one sync serves them all.

        And once more, for a signal's handler may raise where it begins, and the loop goes on.
        """
        if not self._scheduled:
            for each in (self._scheduled.clear, step, step):
                self.loop.call_soon(each)
            self._scheduled.append(None)

    async def room(self) -> None:
        """Wait until fewer than ``MAX_IN_FLIGHT`` are in flight."""
        while len(self.in_flight) >= MAX_IN_FLIGHT:
            turn = self.loop.create_future()
            self._turns.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._admit()  # the next one has it
                raise

    def _admit(self) -> None:
        """Have the put that waits longest go on, while not too many are in flight."""
        while self._turns and len(self.in_flight) < MAX_IN_FLIGHT:
            turn = self._turns[0]  # stays there until it is admitted
            is_new = not turn.done()
            if is_new:
                turn.set_result(None)
            self._turns.popleft()
            if is_new:
                return

    def complete(self, item: _waits.AwaitedPut) -> None:
        """Complete a put that knows its answer, and admit one that waits for room."""
        self.in_flight.discard(item)
        self._admit()
        if item.future is not None and not item.future.done():
            item.future.set_result(None)
