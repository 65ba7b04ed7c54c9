"""What small servers of these tests share: a port, connections, and a log that is sent and cut.

They frame by hand and know nothing of ``replication``.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, TypeVar


class WireServer(ABC):
    """Serves on a port of this machine, within one loop; what it has open ends with its block."""

    loop: asyncio.AbstractEventLoop
    """Where it serves."""

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception) and not isinstance(found, OSError):
                raise found  # what it heard was not what it takes

    def _join(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Let ``work`` go on beside the rest, until the server ends at the latest."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        return task

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; it is dropped behind that."""


S = TypeVar("S", bound=WireServer)


@contextmanager
def serving(server: S) -> Iterator[S]:
    """Serve from a thread, for followers in other processes."""
    ready, ended = threading.Event(), asyncio.Event()

    async def story() -> None:
        async with server:
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(story()))
    thread.start()
    try:
        assert ready.wait(30)
        yield server
    finally:
        server.loop.call_soon_threadsafe(ended.set)
        thread.join()


class CutError(Exception):
    """All was sent that is to be sent on this connection."""


class Cut:
    """A connection that ends after so many bytes, if ``left`` is a number."""

    def __init__(
        self, writer: asyncio.StreamWriter, left: int | None, pace: tuple[int, float] | None
    ) -> None:
        self._writer, self._left, self._pace = writer, left, pace

    async def send(self, data: bytes) -> None:
        """Send what may be sent; raise if that was the last of it."""
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        most, seconds = self._pace or (max(len(data), 1), 0)
        for at in range(0, len(data), most):
            self._writer.write(data[at : at + most])
            await self._writer.drain()
            await asyncio.sleep(seconds)  # a pace is what is tried, mostly in a loop's own time
        if self._left == 0:
            # Closed at once, it would be reset by a report that is not read, and what was
            # written might not arrive.
            with suppress(OSError):  # the slave may have gone before
                self._writer.write_eof()
            raise CutError

    def drop(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()


@dataclass(eq=False)
class LogServer(WireServer):
    """Sends ``log`` to each client that reports; a connection lasts until the slave goes away."""

    log: bytes
    _: KW_ONLY
    begin: int = 0
    """Where the log begins."""
    file_size: int = 4096
    batch: int = 300
    """Bytes of the log in one frame at most."""
    heartbeat: float = 0.02
    """Seconds."""
    cuts: Iterable[int] = ()
    """Bytes after which the first connections are cut."""
    instead: bytes | None = None
    """Sent once on each connection in place of what a master would say."""
    pace: tuple[int, float] | None = None
    """So many bytes at once, and seconds after each."""

    def __post_init__(self) -> None:
        self.reports: list[int] = []
        """Of all connections, as they came."""
        self._cuts = iter(self.cuts)
        self._grown = asyncio.Event()

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    @property
    def last_file(self) -> int:
        """Where it begins."""
        return max(self.end - self.end % self.file_size, self.begin)

    def append(self, data: bytes) -> None:
        """Let the log grow."""
        self.log += data
        self._grown.set()

    def expire(self, log: bytes, begin: int) -> None:
        """Have ``log`` alone, which begins at ``begin``."""
        self.log, self.begin = log, begin

    # ---- one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greet, then send from the first report on, and take what comes."""
        out = Cut(writer, next(self._cuts, None), self.pace)
        with suppress(CutError):
            await self._greet(reader, out)
        sending: asyncio.Task[None] | None = None
        try:
            async for report in self._read_reports(reader):
                self._take(report, is_first=sending is None)
                sending = sending or self._join(self._send_all(out, report))
        finally:
            if sending is not None:
                sending.cancel()

    async def _send_all(self, out: Cut, requested: int) -> None:
        try:
            await self._send(out, requested)
        except CutError:
            return  # the slave sees the end, and goes away
        except BaseException:
            out.drop()
            raise

    async def _greet(self, reader: asyncio.StreamReader, out: Cut) -> None:
        """Say what is to be said before the first report."""

    @abstractmethod
    def _read_reports(self, reader: asyncio.StreamReader) -> AsyncIterator[int]:
        """Yield the offsets that a slave reports, until it goes away."""

    def _take(self, report: int, *, is_first: bool) -> None:
        """Note one; the first of a connection says where it is to begin."""
        self.reports.append(report)

    @abstractmethod
    async def _send(self, out: Cut, requested: int) -> None:
        """Send the log from ``requested`` on."""

    def _part(self, at: int) -> bytes:
        """Return the bytes of the log for one frame: within a file, none where it has none."""
        if not self.begin <= at < self.end:
            return b""
        size = min(self.batch, self.file_size - at % self.file_size)
        return self.log[at - self.begin :][:size]

    async def _is_quiet(self) -> bool:
        """Wait until the log grows; say whether it did not, and a heartbeat is due."""
        self._grown.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.heartbeat):
                await self._grown.wait()
                return False
        return True
