"""A small slave that speaks RocketMQ's replication wire by hand.

It knows nothing of ``replication``. It says whatever a test has it say, whole or in parts, and
takes only what a test has it take.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

HEAD = struct.Struct(">qi")
_SECONDS = 30


class WireSlave:
    """One connection to a master at a port of this machine, from ``address``."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.peer = socket.create_connection(
            ("127.0.0.1", port), timeout=_SECONDS, source_address=(address, 0)
        )
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.peer.sendall(data)

    def report(self, *phy_offsets: int) -> None:
        """Report, all at once."""
        self.say(b"".join(struct.pack(">q", each) for each in phy_offsets))

    def frame(self) -> tuple[int, bytes]:
        """Return the next frame; without a body it is a heartbeat."""
        phy_offset, size = HEAD.unpack(self._take(HEAD.size))
        return phy_offset, self._take(size)

    def take(self, end: int) -> list[tuple[int, bytes]]:
        """Return the frames with bodies up to the one that ends at ``end``."""
        frames: list[tuple[int, bytes]] = []
        while not frames or frames[-1][0] + len(frames[-1][1]) < end:
            phy_offset, body = self.frame()
            if body:
                frames.append((phy_offset, body))
        return frames

    def is_closed(self) -> bool:
        """Wait until the master has closed; what it sent before is thrown away."""
        try:
            while self.peer.recv(1 << 16):
                pass
        except ConnectionResetError:
            return True
        return True

    def cut(self) -> None:
        """Drop the connection; the master may have done so."""
        with suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self.peer.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the master has closed")
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


@contextmanager
def acknowledging(port: int, address: str = "127.0.0.1", begin: int = 0) -> Iterator[WireSlave]:
    """A slave that takes what comes in a thread, and reports for each frame, until it is closed.

    Leave the block, or ``cut`` it, and it is gone.
    """
    slave = WireSlave(port, address)

    def follow() -> None:
        slave.report(begin)
        try:
            while True:
                phy_offset, body = slave.frame()
                slave.report(phy_offset + len(body))
        except OSError:
            return

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield slave
    finally:
        slave.cut()  # wakes the thread
        thread.join()
        slave.peer.close()
