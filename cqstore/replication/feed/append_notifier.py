"""AppendNotifier: wakes waiters when the log grows, at no cost to puts that do not wait.

A put that waits for no follower notifies no thread; one task polls the end of the log while any
connection waits. A put that waits for followers triggers the check at once: its thread sends the
new bytes over connections with a ``Lane``, and the event loop sends them over the others.

Source: RocketMQ ``WaitNotifyObject``, where each connection polls every 100 ms.
"""

import asyncio
import threading
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress

from cqstore.replication.feed.lane import Lane

LOOK_SECONDS = 0.01
_main = threading.main_thread()
"""The thread in which signal handlers run: an exception from a handler would truncate a frame."""


class AppendNotifier:
    """Wakes the connections of one log's followers when the log has grown.

    Use it within one event loop; only ``check_soon`` may be called from any thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._without_lane = 0  # number of waiting connections without a lane
        self._lanes: tuple[Lane, ...] = ()
        self._begun = asyncio.Event()
        self._is_check_scheduled = False

    async def run(self) -> None:
        """Check for growth every ``LOOK_SECONDS`` while a connection waits, until cancelled."""
        while True:
            await self._begun.wait()
            await asyncio.sleep(LOOK_SECONDS)
            self._check()

    async def wait(self, is_due: Callable[[], bool], seconds: float, lane: Lane | None) -> None:
        """Wait until ``is_due`` is true, at most ``seconds``. A ``lane`` must have been added."""
        grown: asyncio.Future[None] = self._loop.create_future()
        try:
            self._without_lane += lane is None
            self._waiting[grown] = is_due
            self._begun.set()
            if is_due():  # it became due after the caller's check
                grown.set_result(None)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await grown
        finally:
            self._waiting.pop(grown, None)
            self._without_lane -= lane is None

    def add(self, lane: Lane) -> None:
        """Make ``check_soon`` send over ``lane``, in the thread that calls it."""
        self._lanes = (*self._lanes, lane)

    def remove(self, lane: Lane) -> None:
        """Stop ``check_soon`` from sending over ``lane``."""
        self._lanes = tuple(each for each in self._lanes if each is not lane)

    def check_soon(self) -> None:
        """Check for growth now. Any thread; also allowed after the event loop has ended."""
        if get_ident() == _main.ident:
            self._schedule_check()
            return
        is_for_loop = self._without_lane > 0
        for lane in self._lanes:
            is_for_loop |= not lane.send()
        if is_for_loop:
            self._schedule_check()

    def _schedule_check(self) -> None:
        if self._is_check_scheduled:
            return  # the scheduled check has not run yet
        self._is_check_scheduled = True
        with suppress(RuntimeError):  # the loop is closed: no follower is fed
            self._loop.call_soon_threadsafe(self._check)

    def _check(self) -> None:
        """Wake the connections whose bytes are now in the log."""
        self._is_check_scheduled = False  # first, so that later callers schedule another one
        for grown, is_due in list(self._waiting.items()):
            if is_due():
                self._waiting.pop(grown, None)
                if not grown.done():
                    grown.set_result(None)
        if not self._waiting:
            self._begun.clear()
