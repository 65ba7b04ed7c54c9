"""Arrivals: a stream whose reader may take what comes in the call of the loop that brings it.

A task that awaits each piece costs several turns of the loop for each: more than a record does.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Arrivals(asyncio.StreamReader):
    """A stream reader that, within ``taken_by``, gives bytes away in the call that brings them."""

    _taker: Callable[[bytes], bool] | None = None

    @contextmanager
    def taken_by(self, taker: Callable[[bytes], bool]) -> Iterator[None]:
        """Ask ``taker`` for each piece that comes within the block: whether it has taken it.

        It does not raise. A task that awaits bytes within the block gets the first piece that it
        does not take, and all behind that.
        """
        self._taker = taker
        try:
            yield
        finally:
            self._taker = None

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        """Have ``data`` taken, or keep it for the reader."""
        if self._taker is not None:
            if self._taker(data):
                return
            self._taker = None  # what comes next lies behind it
        super().feed_data(data)


async def connect(
    host: str, port: int, limit: int, **how: object
) -> tuple[Arrivals, asyncio.StreamWriter]:
    """Return a new connection, as ``asyncio.open_connection`` does.

    Raises:
        OSError: nothing listens there.
    """
    loop = asyncio.get_running_loop()
    reader = Arrivals(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, host, port, **how)  # type: ignore[call-overload]
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
