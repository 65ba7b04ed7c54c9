"""Runs a feeder in a separate thread, for programs without an event loop."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from cqstore.replication.feed.feeder import Feeder
from cqstore.store.concurrency.future import StoreFuture
from cqstore.store.concurrency.thread import StoreThread

_SECONDS = 1.0


@contextmanager
def feeding(feeder: Feeder) -> Iterator[Feeder]:
    """Run ``feeder`` in a separate thread until the block ends.

    Raises:
        StoreIOError: the feeder cannot listen on its address.
    """
    loop = _Loop(feeder)
    try:
        loop.thread.start()
        loop.ready.result()
        yield feeder
    finally:
        loop.is_over = True  # not in end(), which may be interrupted before its first line
        loop.end()


class _Loop:
    """The thread of a feeder's event loop; it may be ended before it has started."""

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self.is_over = False
        """Checked by the thread once a second, in case nothing wakes it."""
        self._wake: Callable[[], object] | None = None
        self.ready = StoreFuture[None]()
        """Completed when followers can connect, or when the feeder failed to start."""
        self.thread = StoreThread("cqstore-feed", self._run)

    def end(self) -> None:
        """Wake the thread if its loop runs, and wait for its end; ``is_over`` must be set."""
        if self._wake is not None:
            with suppress(RuntimeError):  # the loop is closed: its thread has failed
                self._wake()
        self.thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._feed())
        except BaseException as exc:
            if self.ready.done():
                raise
            self.ready.set_exception(exc)

    async def _feed(self) -> None:
        """Feed followers in this thread's event loop until the caller ends it."""
        async with self._feeder:
            ended = asyncio.Event()
            self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
            self.ready.set_result(None)
            while not self.is_over:  # the caller may be interrupted before it wakes the loop
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), _SECONDS)
