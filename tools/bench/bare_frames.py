"""Frames of a log that is not there, to a follower that acknowledges them: the floor of such puts.

Who sends one waits as a store's put does, by the same ``Followers``.
"""

import asyncio
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from cqstore.replication.feed.followers import Followers

HEAD = struct.Struct(">qi")
"""Of a frame: where its bytes belong, and how many they are."""
_PATIENCE_SECONDS = 30.0
_RECORD = bytes(250)
"""As long as that of a message of 128 bytes."""


class BareFrames:
    """Frames of several threads to one socket."""

    def __init__(self, peer: socket.socket) -> None:
        """``peer`` has said where it begins: at 0."""
        self._peer = peer
        self._sending = threading.Lock()
        self._followers = Followers()
        self._link = self._followers.join("bare", 0)
        self._followers.begin(self._link, 0, 0)

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Have a thread hear what is acknowledged, within the block; it ends the connection."""
        thread = threading.Thread(target=self._receive)
        thread.start()
        try:
            yield
        finally:
            self._peer.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _receive(self) -> None:
        self._followers.receive(self._link, self._peer.fileno(), _PATIENCE_SECONDS)

    def writer(self, _place: int) -> Callable[[], None]:
        """Return what sends one record, and waits until the follower has reported it."""

        def put() -> None:
            with self._sending:
                end = self.send(1)
            self.wait(end)

        return put

    def send(self, records: int) -> int:
        """Send so many frames of one record each, by one call; return the end of the last."""
        link, frames = self._link, bytearray()
        end = link.sent
        for _ in range(records):
            frames += HEAD.pack(end, len(_RECORD)) + _RECORD
            end += len(_RECORD)
        link.sent = end
        self._peer.sendall(frames)
        return end

    def wait(self, end: int) -> None:
        """Return once the follower has reported the log up to ``end``."""
        assert self._followers.wait(end, 1, time.monotonic() + _PATIENCE_SECONDS)


class BareTasks:
    """Frames that tasks of one loop await. One call sends the frames of one turn."""

    def __init__(self, frames: BareFrames) -> None:
        self._frames = frames
        self._new: list[asyncio.Future[None]] = []
        self._sent: deque[list[asyncio.Future[None]]] = deque()
        self._ends: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._wait, daemon=True).start()
        self._loop: asyncio.AbstractEventLoop

    def writer(self, _place: int) -> Callable[[], Awaitable[None]]:
        """Return what a task awaits again and again."""
        self._loop = asyncio.get_running_loop()

        def put() -> asyncio.Future[None]:
            if not self._new:
                self._loop.call_soon(self._send)
            future = self._loop.create_future()
            self._new.append(future)
            return future

        return put

    def _send(self) -> None:
        new, self._new = self._new, []
        self._sent.append(new)
        self._ends.put(self._frames.send(len(new)))

    def _wait(self) -> None:
        """In a thread of its own: a wait for each turn's frames, and one call of the loop."""
        while True:
            self._frames.wait(self._ends.get())
            self._loop.call_soon_threadsafe(self._complete)

    def _complete(self) -> None:
        for future in self._sent.popleft():
            future.set_result(None)
