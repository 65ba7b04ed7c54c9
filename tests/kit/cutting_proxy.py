"""A proxy between a slave and a master that drops connections at any byte of either direction."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass


@dataclass
class CuttingProxy:
    """Passes bytes on; the first ``cuts`` connections are dropped after at most ``limit``."""

    target_port: int
    cuts: int
    limit: int
    seed: int = 1
    address: str = "127.0.0.1"
    """From where it connects to the target."""
    target: str = "127.0.0.1"
    port: int = 0
    connections: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["CuttingProxy"]:
        """Serve within this loop."""
        self._draw = random.Random(self.seed)
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        is_cut = self.connections <= self.cuts
        left = self._draw.randint(1, self.limit) if is_cut else None
        theirs: asyncio.StreamWriter | None = None
        with suppress(OSError, asyncio.CancelledError):
            back, theirs = await asyncio.open_connection(
                self.target, self.target_port, local_addr=(self.address, 0)
            )
            to_master = asyncio.create_task(_copy(reader, theirs, None))
            try:
                await _copy(back, writer, left)
            finally:
                to_master.cancel()
                await asyncio.gather(to_master, return_exceptions=True)
        for each in (writer, theirs):
            if each is not None:
                each.close()
                with suppress(OSError, asyncio.CancelledError):
                    await each.wait_closed()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
) -> None:
    """Pass on what comes, ``left`` bytes at most."""
    while left != 0 and (data := await reader.read(1 << 16)):
        part = data[:left]
        left = None if left is None else left - len(part)
        writer.write(part)
        await writer.drain()
