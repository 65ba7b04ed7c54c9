"""Growth: wakes those who wait for the log to grow, at no cost to puts that wait for nobody.

Such a put tells nobody, so one task looks at the log's end again and again while anybody waits for
it. A put that waits for followers has it look at once.

Source: RocketMQ ``WaitNotifyObject``, where each connection looks every 100 ms.
"""

import asyncio
from contextlib import suppress

from replication.feeding.served_log import ServedLog

LOOK_SECONDS = 0.01


class Growth:
    """For the followers of one log, within one loop; ``look_soon`` alone is for any thread."""

    def __init__(self, log: ServedLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._begun = asyncio.Event()
        self._is_asked = False

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._begun.wait()
            await asyncio.sleep(LOOK_SECONDS)
            self._look()

    async def wait(self, phy_offset: int, seconds: float) -> None:
        """Return when there is more of the log at ``phy_offset``, or it is too late."""
        grown: asyncio.Future[None] = self._loop.create_future()
        self._waiting[grown] = phy_offset
        self._begun.set()
        if self._log.size_at(phy_offset):  # it came since the caller looked
            grown.set_result(None)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await grown
        finally:
            self._waiting.pop(grown, None)

    def look_soon(self) -> None:
        """Look now; from any thread, also when the loop is over."""
        if self._is_asked:
            return  # it has not looked yet
        self._is_asked = True
        with suppress(RuntimeError):  # the loop is closed: nobody is fed
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._is_asked = False  # before the look: who comes behind it asks again
        for grown, phy_offset in list(self._waiting.items()):
            if self._log.size_at(phy_offset):
                del self._waiting[grown]
                if not grown.done():
                    grown.set_result(None)
        if not self._waiting:
            self._begun.clear()
