"""LoopPuts: puts that tasks of event loops await.

A standard-library future per put costs a lock and a wake-up of the loop each. Here the thread that
has synced for many puts notifies their loop once, and the loop completes them in one turn.
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
"""Limit of a loop's puts that wait for disk or followers; others wait before the append."""

_LOOPS = ("BaseEventLoop",)
"""Classes of asyncio. On another type of loop each put is a future: in tests, uvloop 0.23 sometimes
lost a call from a thread, for an unknown reason, and a lost call here delays many puts."""


class LoopPuts:
    """Puts for the tasks of any number of loops, each in its own thread."""

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
    """The puts of one loop. Other threads than the loop's call only ``complete_soon``."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        super().__init__(loop)
        self.thread = get_ident()
        self.in_flight: set[_waits.AwaitedPut] = set()
        self._turns: deque[asyncio.Future[None]] = deque()  # of puts that wait to be admitted
        self._scheduled: list[None] = []  # not empty: the loop will run a step of ``soon``

    def soon(self, step: Callable[[], object]) -> None:
        """Run ``step`` once all tasks that can run have run: so one sync serves them all.

        It is scheduled twice, because a signal handler may raise an exception at its start, after
        which the loop continues.
        """
        if not self._scheduled:
            for each in (self._scheduled.clear, step, step):
                self.loop.call_soon(each)
            self._scheduled.append(None)

    async def room(self) -> None:
        """Wait until fewer than ``MAX_IN_FLIGHT`` puts are in flight."""
        while len(self.in_flight) >= MAX_IN_FLIGHT:
            turn = self.loop.create_future()
            self._turns.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._admit()  # the next one is admitted instead
                raise

    def _admit(self) -> None:
        """Admit the put that has waited longest, while not too many are in flight."""
        while self._turns and len(self.in_flight) < MAX_IN_FLIGHT:
            turn = self._turns[0]  # stays there until it is admitted
            is_new = not turn.done()
            if is_new:
                turn.set_result(None)
            self._turns.popleft()
            if is_new:
                return

    def complete(self, item: _waits.AwaitedPut) -> None:
        """Complete a put that has its result, and admit one that waits."""
        self.in_flight.discard(item)
        self._admit()
        if item.future is not None and not item.future.done():
            item.future.set_result(None)
