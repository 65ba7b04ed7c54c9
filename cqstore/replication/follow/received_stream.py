"""Arrivals: a stream whose reader can process bytes in the event loop call that delivers them.

A task that awaits each piece needs several event loop iterations per piece, which cost more than
the processing of a record.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Arrivals(asyncio.StreamReader):
    """A stream reader that, within ``taken_by``, passes bytes on in the call that delivers them."""

    _taker: Callable[[bytes], bool] | None = None

    @contextmanager
    def taken_by(self, taker: Callable[[bytes], bool]) -> Iterator[None]:
        """Pass each piece that arrives within the block to ``taker``, which returns if it took it.

        ``taker`` must not raise. A task that awaits bytes within the block gets the first piece
        that was not taken, and everything after it.
        """
        self._taker = taker
        try:
            yield
        finally:
            self._taker = None

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        """Pass ``data`` to the taker, or keep it for the reader."""
        if self._taker is not None:
            if self._taker(data):
                return
            self._taker = None  # later bytes must be read after this piece
        super().feed_data(data)


async def connect(
    host: str, port: int, limit: int, **how: object
) -> tuple[Arrivals, asyncio.StreamWriter]:
    """Return a new connection, as ``asyncio.open_connection`` does.

    Raises:
        OSError: the connection cannot be made.
    """
    loop = asyncio.get_running_loop()
    reader = Arrivals(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, host, port, **how)  # type: ignore[call-overload]
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
