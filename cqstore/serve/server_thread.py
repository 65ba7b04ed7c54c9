"""ServerThread: an asynchronous server that runs in a loop and thread of its own."""

import asyncio
from concurrent.futures import Future
from threading import Thread
from typing import Self

from cqstore.serve.server import Server


class ServerThread:
    """Runs a server while its block runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._started = Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()
        self._thread = Thread(target=self._work, name="cqstore-broker", daemon=True)

    def __enter__(self) -> Self:
        """Start the server; it listens when this returns.

        Raises:
            StoreError: it cannot listen, or the tables of the store cannot be read.
        """
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the server; its clients are disconnected when this returns."""
        loop, ended = self._started.result()
        loop.call_soon_threadsafe(ended.set)
        self._thread.join()

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as exc:
            if self._started.done():
                raise
            self._started.set_exception(exc)

    async def _serve(self) -> None:
        ended = asyncio.Event()
        async with self._server:
            self._started.set_result((asyncio.get_running_loop(), ended))
            await ended.wait()
