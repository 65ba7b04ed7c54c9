"""A small master that speaks RocketMQ's wire under a controller, from bytes it is given.

It frames by hand and knows nothing of ``replication``. As RocketMQ does, it names the next epoch
already with the last frame of one, reads a handshake only as a whole, and sends heartbeats for
bytes that it does not have.
"""

import asyncio
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

HELLO = struct.Struct(">ihhq")
REPORT = struct.Struct(">iq")
ANSWER = struct.Struct(">iiqi")
ENTRY = struct.Struct(">iq")
HEAD = struct.Struct(">iiqiqq")
Epochs = Sequence[tuple[int, int]]


def answer(epochs: Epochs, end: int) -> bytes:
    """Return the master's handshake."""
    body = b"".join(ENTRY.pack(*entry) for entry in epochs)
    return ANSWER.pack(1, len(body), end, epochs[-1][0] if epochs else -1) + body


def frame(phy_offset: int, epoch: tuple[int, int], body: bytes = b"", confirm: int = 0) -> bytes:
    """Return one frame; without a body a heartbeat."""
    return HEAD.pack(2, len(body), phy_offset, *epoch, confirm) + body


class EpochMaster:
    """Serves ``log``, whose epochs are ``epochs``, on a port of this machine, within one loop."""

    def __init__(
        self,
        log: bytes,
        epochs: Epochs,
        *,
        begin: int = 0,
        file_size: int = 4096,
        batch: int = 300,
        heartbeat: float = 0.02,
        cuts: Iterable[int] = (),
        instead: bytes | None = None,
        behind: bytes | None = None,
    ) -> None:
        """``cuts``: bytes after which the first connections are dropped; ``instead``: sent in place
        of all that it would say; ``behind``: in place of all frames."""
        self.log, self.epochs, self.begin = log, list(epochs), begin
        self.file_size, self.batch, self.heartbeat = file_size, batch, heartbeat
        self.instead, self.behind = instead, behind
        self.hellos: list[tuple[int, ...]] = []
        self.reports: list[int] = []
        self._cuts = iter(cuts)
        self._grown = asyncio.Event()

    loop: asyncio.AbstractEventLoop

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def append(self, data: bytes, epoch: int | None = None) -> None:
        """Let the log grow, in a new epoch if that is given."""
        if epoch is not None:
            self.epochs.append((epoch, self.end))
        self.log += data
        self._grown.set()

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        out = _Cut(writer, next(self._cuts, None))
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            hello = await reader.read(1 << 16)  # what comes at once: it must be all of it
            self.hellos.append(HELLO.unpack(hello))
            await out.send(answer(self.epochs, self.end) if self.instead is None else self.instead)
            asked = await self._report(reader)
            listening = asyncio.create_task(self._listen(reader))
            self._tasks.add(listening)
            try:
                await self._send(out, asked)
                await listening
            finally:
                listening.cancel()
        writer.transport.abort()

    async def _report(self, reader: asyncio.StreamReader) -> int:
        state, phy_offset = REPORT.unpack(await reader.readexactly(REPORT.size))
        assert state == 2
        self.reports.append(phy_offset)
        return int(phy_offset)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._report(reader)

    async def _send(self, out: "_Cut", asked: int) -> None:
        if self.instead is not None or self.behind is not None:
            await out.send(self.behind or b"")
            return
        last = self.end - self.end % self.file_size
        at = asked or (last if self.hellos[-1][1] else self.begin)
        while True:
            current = max((e for e in self.epochs if e[1] <= at), default=self.epochs[0])
            behind = min((e for e in self.epochs if e[1] > at), default=None)
            size = min(self.batch, self.end - at, self.file_size - at % self.file_size)
            if self.begin <= at < self.end:
                if behind is not None and at + size >= behind[1]:
                    size, current = behind[1] - at, behind
                start = at - self.begin
                await out.send(frame(at, current, self.log[start : start + size], self.end))
                at += size
                continue
            self._grown.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.heartbeat):
                    await self._grown.wait()
                    continue
            await out.send(frame(at, current, b"", self.end))


class _Cut:
    """A connection that is dropped after so many bytes."""

    def __init__(self, writer: asyncio.StreamWriter, left: int | None) -> None:
        self._writer, self._left = writer, left

    async def send(self, data: bytes) -> None:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        self._writer.write(data)
        await self._writer.drain()
        if self._left == 0:
            self._writer.close()
            await self._writer.wait_closed()
            raise ConnectionAbortedError
