"""A small master that speaks RocketMQ's replication wire as RocketMQ does, from bytes it is given.

It frames by hand and knows nothing of ``replication``. Made to be unkind: it cuts connections
where it is told to, stays silent, and sends whatever a test puts in place of frames.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.kit.wire_server import Cut, LogServer

HEAD = struct.Struct(">qi")


def frame(phy_offset: int, body: bytes = b"") -> bytes:
    """Return one frame; without a body a heartbeat."""
    return HEAD.pack(phy_offset, len(body)) + body


@dataclass(eq=False, kw_only=True)
class WireMaster(LogServer):
    """Notes the last of the reports that come together; ``instead`` stands for all frames."""

    hasty: int = 0
    """Heartbeats before the first bytes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.requests: list[int] = []
        """The first report of each connection."""
        self.changed = asyncio.Event()
        """Set when a report came; the waiting caller clears it."""

    async def reported(self, phy_offset: int) -> None:
        """Wait until a slave has reported that."""
        while phy_offset not in self.reports:
            self.changed.clear()
            await self.changed.wait()

    async def _read_reports(self, reader: asyncio.StreamReader) -> AsyncIterator[int]:
        buffer, done = b"", 0
        while data := await reader.read(1 << 16):
            buffer += data
            whole = len(buffer) - len(buffer) % 8
            if whole != done:
                done = whole
                yield int.from_bytes(buffer[whole - 8 : whole], "big", signed=True)

    def _take(self, report: int, *, is_first: bool) -> None:
        super()._take(report, is_first=is_first)
        self.changed.set()
        if is_first:
            self.requests.append(report)

    async def _send(self, out: Cut, requested: int) -> None:
        if self.instead is not None:
            await out.send(self.instead)
            return
        at = requested or self.last_file
        for _ in range(self.hasty):
            await out.send(frame(at))
        while True:
            body = self._part(at)
            if body or await self._is_quiet():
                await out.send(frame(at, body))
                at += len(body)
