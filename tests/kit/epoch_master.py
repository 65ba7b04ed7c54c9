"""A small master that speaks RocketMQ's wire under a controller, from bytes it is given.

It frames by hand and knows nothing of ``replication``. As RocketMQ does, it names the next epoch
already with the last frame of one, reads a handshake only as a whole, and sends heartbeats for
bytes that it does not have.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import KW_ONLY, dataclass

from tests.kit.wire_server import Cut, LogServer

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


@dataclass(eq=False)
class EpochMaster(LogServer):
    """``log`` has ``epochs``; ``instead`` stands for all that it would say."""

    epochs: Epochs
    _: KW_ONLY
    behind: bytes | None = None
    """Sent in place of all frames."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hellos: list[tuple[int, ...]] = []

    def append(self, data: bytes, epoch: int | None = None) -> None:
        """Let the log grow, in a new epoch if that is given."""
        if epoch is not None:
            self.epochs = [*self.epochs, (epoch, self.end)]
        super().append(data)

    async def _greet(self, reader: asyncio.StreamReader, out: Cut) -> None:
        hello = await reader.read(1 << 16)  # what comes at once: it must be all of it
        if not hello:
            raise ConnectionResetError("the slave went away")
        self.hellos.append(HELLO.unpack(hello))
        await out.send(answer(self.epochs, self.end) if self.instead is None else self.instead)

    async def _read_reports(self, reader: asyncio.StreamReader) -> AsyncIterator[int]:
        while True:
            state, phy_offset = REPORT.unpack(await reader.readexactly(REPORT.size))
            assert state == 2
            yield phy_offset

    async def _send(self, out: Cut, requested: int) -> None:
        if self.instead is not None or self.behind is not None:
            await out.send(self.behind or b"")
            return
        at = requested or (self.last_file if self.hellos[-1][1] else self.begin)
        while True:
            current = max((e for e in self.epochs if e[1] <= at), default=self.epochs[0])
            behind = min((e for e in self.epochs if e[1] > at), default=None)
            body = self._part(at)
            if body and behind is not None and at + len(body) >= behind[1]:
                body, current = body[: behind[1] - at], behind
            if body or await self._is_quiet():
                await out.send(frame(at, current, body, self.end))
                at += len(body)
