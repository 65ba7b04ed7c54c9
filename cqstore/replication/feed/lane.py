"""Lane: sends to a connection without TLS from the threads of puts, without the event loop.

An iteration of the event loop costs more than a put. So while a follower has all of the log, the
thread of a put that waits for it sends new bytes itself, with one call that never blocks, and a
thread receives the follower's reports. The event loop does everything else: the first report,
followers that lag far or accept bytes slower than they are sent, and heartbeats.
"""

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cqstore.replication.feed.followers import Link
from cqstore.replication.feed.frames import frames
from cqstore.replication.feed.served_log import ServedLog
from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.errors import StoreError

MAX_BYTES = 64 << 10
"""Maximum bytes that the thread of a waiting put sends; the event loop sends more than that."""
_SECONDS = 1.0


class Lane:
    """Sends on one connection from any thread, while the event loop leaves the connection alone.

    The event loop owns the connection except from ``open`` to ``reclaim``. Only the holder of
    ``_turn`` may send, and the loop holds it at first, so bytes from the loop and from threads
    never mix.
    """

    def __init__(self, log: ServedLog, link: Link, peer: socket.socket, batch: int) -> None:
        """``peer`` is non-blocking; ``batch`` is the maximum bytes of the log per frame."""
        self._log, self._link, self._batch = log, link, batch
        self._peer = peer
        self._turn = threading.Lock()
        self._turn.acquire()
        self._rest = b""
        self._fault: BaseException | None = None
        self.needs_loop = False
        """Only the event loop can do what is left; threads send nothing until it has done so."""
        self.wrote_at = -math.inf  # nothing was sent yet, whatever the clock shows
        """``time.monotonic()`` of the last send by a thread."""
        self.sent_bytes = 0
        """Bytes sent by threads."""

    # ---- called by the threads of puts

    def send(self) -> bool:
        """Send the bytes of the log not sent yet; return whether nothing is left for the loop.

        If another thread is sending, that thread checks again after its send.
        """
        size_at, link, turn = self._log.size_at, self._link, self._turn
        while size_at(link.sent) and turn.acquire(blocking=False):
            try:
                if self.needs_loop:
                    return True  # the loop has been notified, or is about to check
                if not self._send(link.sent):
                    return False
            finally:
                turn.release()
        return True

    def _send(self, at: int) -> bool:
        """Send the bytes from ``at`` on; return whether nothing is left for the loop."""
        try:
            if not (body := self._log.read_near(at, MAX_BYTES)):
                return not self._log.size_at(at)
            data = b"".join(frames(at, body, self._batch))
            self._link.sent = at + len(body)  # first: it may be acknowledged during the call
            sent = self._sent(data)
        except (OSError, StoreError) as exc:
            # The put only waits; the thread that serves the connection closes it.
            self._fault, self.needs_loop = exc, True
            return False
        except BaseException as exc:
            self._fault, self.needs_loop = exc, True
            raise
        self.sent_bytes += sent
        self.wrote_at = time.monotonic()
        if sent < len(data):
            self._rest, self.needs_loop = data[sent:], True
        return not self.needs_loop

    def _sent(self, data: bytes) -> int:
        """Return how many bytes the kernel accepted; does not block."""
        try:
            return self._peer.send(data)
        except BlockingIOError:  # the kernel's buffer is full
            return 0

    # ---- called by the event loop

    def open(self) -> None:
        """Allow threads to send; the caller sends nothing until it calls ``reclaim``."""
        self._turn.release()

    def reclaim(self) -> bytes:
        """Stop threads from sending; return the part of a frame that the kernel did not accept.

        Raises:
            OSError, StoreError: a thread failed to send.
        """
        while not self._turn.acquire(timeout=_SECONDS):
            pass  # a thread is in a call that does not block
        rest, self._rest = self._rest, b""
        if self._fault is not None:
            raise self._fault
        self.needs_loop = False
        return rest


class ReceiverThread:
    """Receives from one connection in a thread: an event loop iteration per report costs more."""

    def __init__(self, peer: socket.socket, take: Callable[[socket.socket], object]) -> None:
        """``take`` receives from ``peer`` until it raises, soon after ``peer`` is shut down."""
        self._loop = asyncio.get_running_loop()
        self._peer, self._take = peer, take
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def receive(self) -> None:
        """Receive until the connection ends.

        Raises:
            BaseException: any exception that ``take`` raises.
        """
        with self._peer.dup() as peer:  # a copy with its own timeout
            thread = StoreThread("cqstore-hear", partial(self._run, peer))
            try:
                thread.start()
                await self._ended
            finally:
                with suppress(OSError):  # already disconnected
                    peer.shutdown(socket.SHUT_RD)
                thread.join()

    def _run(self, peer: socket.socket) -> None:
        try:
            self._take(peer)
        except BaseException as exc:  # noqa: BLE001 - the serving thread raises it
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._report, exc)

    def _report(self, exc: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(exc)
