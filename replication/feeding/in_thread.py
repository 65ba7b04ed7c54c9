"""Feeding from a thread of its own, for a program that puts by calls and has no loop."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from replication.feeding.feeder import Feeder


@contextmanager
def feeding(feeder: Feeder) -> Iterator[Feeder]:
    """Have ``feeder`` feed until the block ends.

    Raises:
        StoreIOError: there cannot be listened.
    """
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def feed() -> None:
        async with feeder:
            ended = asyncio.Event()
            ready.set_result((asyncio.get_running_loop(), ended))
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(feed())
        except BaseException as exc:
            if ready.done():
                raise
            ready.set_exception(exc)

    thread = threading.Thread(target=run, name="cqstore-feed", daemon=True)
    thread.start()
    loop, ended = ready.result()
    try:
        yield feeder
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
