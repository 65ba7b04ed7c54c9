"""AppendNotifier: wakes waiters for the log's growth, at no cost to puts that do not wait.

Such a put notifies no thread, so one task polls the log's end while any connection waits for it. A
put that waits for followers has it poll at once: connections with a ``Lane`` are sent what is new
by the thread of that put, the others by the loop.

Source: RocketMQ ``WaitNotifyObject``, where each connection looks every 100 ms.
"""

import asyncio
import threading
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress

from cqstore.replication.feed.lane import Lane

LOOK_SECONDS = 0.01
_main = threading.main_thread()
"""Where handlers of signals run: what they raise would cut a frame short."""


class AppendNotifier:
    """Wakes the connections of one log's followers when the log has grown.

    Within one loop; ``check_soon`` alone is for any thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._without_lane = 0  # of the waiting connections
        self._lanes: tuple[Lane, ...] = ()
        self._begun = asyncio.Event()
        self._is_check_scheduled = False

    async def run(self) -> None:
        """Look for growth every ``LOOK_SECONDS`` while a connection waits, until cancelled."""
        while True:
            await self._begun.wait()
            await asyncio.sleep(LOOK_SECONDS)
            self._check()

    async def wait(self, is_due: Callable[[], bool], seconds: float, lane: Lane | None) -> None:
        """Return when it ``is_due``, or too late. A caller with a ``lane`` has added it."""
        grown: asyncio.Future[None] = self._loop.create_future()
        try:
            self._without_lane += lane is None
            self._waiting[grown] = is_due
            self._begun.set()
            if is_due():  # it came since the caller looked
                grown.set_result(None)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await grown
        finally:
            self._waiting.pop(grown, None)
            self._without_lane -= lane is None

    def add(self, lane: Lane) -> None:
        """Have ``check_soon`` send over ``lane``, in whichever thread calls it."""
        self._lanes = (*self._lanes, lane)

    def remove(self, lane: Lane) -> None:
        """Have ``check_soon`` send over ``lane`` no more."""
        self._lanes = tuple(each for each in self._lanes if each is not lane)

    def check_soon(self) -> None:
        """Look now; from any thread, also when the loop is over."""
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
            return  # it has not looked yet
        self._is_check_scheduled = True
        with suppress(RuntimeError):  # the loop is closed: no follower is fed
            self._loop.call_soon_threadsafe(self._check)

    def _check(self) -> None:
        """Wake those who wait for bytes that the log has by now."""
        self._is_check_scheduled = False  # before the check: later callers ask again
        for grown, is_due in list(self._waiting.items()):
            if is_due():
                self._waiting.pop(grown, None)
                if not grown.done():
                    grown.set_result(None)
        if not self._waiting:
            self._begun.clear()
