"""A small master that speaks RocketMQ's replication wire as RocketMQ does, from bytes it is given.

It frames by hand and knows nothing of ``replication``. Made to be unkind: it cuts connections
where it is told to, stays silent, and sends whatever a test puts in place of frames.
"""

import asyncio
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, Self, TypeVar

HEAD = struct.Struct(">qi")


def frame(phy_offset: int, body: bytes = b"") -> bytes:
    """Return one frame; without a body a heartbeat."""
    return HEAD.pack(phy_offset, len(body)) + body


class WireMaster:
    """Serves ``log``, which begins at ``begin``, on a port of this machine, within one loop."""

    def __init__(
        self,
        log: bytes,
        *,
        begin: int = 0,
        file_size: int = 4096,
        batch: int = 300,
        heartbeat: float = 0.02,
        cuts: Iterable[int] = (),
        instead: bytes | None = None,
        hasty: int = 0,
        pace: tuple[int, float] | None = None,
    ) -> None:
        """``cuts``: bytes after which the first connections are dropped; ``instead``: sent once on
        each connection in place of all frames; ``hasty``: heartbeats before the first bytes;
        ``pace``: so many bytes at once, and seconds after each."""
        self.log, self.begin, self.file_size = log, begin, file_size
        self.batch, self.heartbeat, self.hasty = batch, heartbeat, hasty
        self.instead, self.pace = instead, pace
        self.requests: list[int] = []
        """The first report of each connection."""
        self.reports: list[int] = []
        """All of them, the last of those that came together."""
        self.changed = asyncio.Event()
        """Set when a report came; whoever waits clears it."""
        self._cuts = iter(cuts)
        self._grown = asyncio.Event()

    loop: asyncio.AbstractEventLoop
    """Where it serves, once ``serving``."""

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def append(self, data: bytes) -> None:
        """Let the log grow."""
        self.log += data
        self._grown.set()

    def expire(self, log: bytes, begin: int) -> None:
        """Have ``log`` alone, which begins at ``begin``."""
        self.log, self.begin = log, begin

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reported(self, phy_offset: int) -> None:
        """Wait until a slave has reported that."""
        while phy_offset not in self.reports:
            self.changed.clear()
            await self.changed.wait()

    # ---- one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        listening = asyncio.create_task(self._listen(reader, asked))
        self._tasks.add(listening)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                with suppress(_CutError):
                    await self._send(_Cut(writer, next(self._cuts, None), self.pace), await asked)
                await listening  # a slave that goes away
        finally:
            listening.cancel()
            writer.transport.abort()

    async def _listen(self, reader: asyncio.StreamReader, asked: "asyncio.Future[int]") -> None:
        buffer, done = b"", 0
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                buffer += data
                whole = len(buffer) - len(buffer) % 8
                if whole == done:
                    continue
                done = whole
                value = int.from_bytes(buffer[whole - 8 : whole], "big", signed=True)
                self.reports.append(value)
                self.changed.set()
                if not asked.done():
                    self.requests.append(value)
                    asked.set_result(value)
        if not asked.done():
            asked.cancel()

    async def _send(self, out: "_Cut", asked: int) -> None:
        last_file = self.end - self.end % self.file_size
        at = asked or max(last_file, self.begin)
        if self.instead is not None:
            await out.send(self.instead)
            return
        for _ in range(self.hasty):
            await out.send(frame(at))
        while True:
            size = min(self.batch, self.end - at, self.file_size - at % self.file_size)
            if self.begin <= at < self.end:
                start = at - self.begin
                await out.send(frame(at, self.log[start : start + size]))
                at += size
                continue
            self._grown.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.heartbeat):
                    await self._grown.wait()
                    continue
            await out.send(frame(at))


class Served(Protocol):
    """What serves within a loop."""

    loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


S = TypeVar("S", bound=Served)


@contextmanager
def serving(master: S) -> Iterator[S]:
    """Serve from a thread, for followers in other processes."""
    ready, ended = threading.Event(), asyncio.Event()

    async def story() -> None:
        async with master:
            master.loop = asyncio.get_running_loop()
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(story()))
    thread.start()
    try:
        assert ready.wait(30)
        yield master
    finally:
        master.loop.call_soon_threadsafe(ended.set)
        thread.join()


class _CutError(Exception):
    """All was sent that is to be sent on this connection."""


class _Cut:
    """A connection that is dropped after so many bytes."""

    def __init__(
        self, writer: asyncio.StreamWriter, left: int | None, pace: tuple[int, float] | None
    ) -> None:
        self._writer = writer
        self._left = left
        self._pace = pace

    async def send(self, data: bytes) -> None:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        most, seconds = self._pace or (max(len(data), 1), 0)
        for at in range(0, len(data), most):
            self._writer.write(data[at : at + most])
            await self._writer.drain()
            await asyncio.sleep(seconds)
        if self._left == 0:
            # Closed at once, it would be reset by a report that nobody has read, and what was
            # written might not arrive.
            self._writer.write_eof()
            raise _CutError
