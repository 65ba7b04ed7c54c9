"""Lane: the short way of a plain connection, beside the loop of its feeder.

A turn of a loop costs more than a put. So while the follower has all of the log, a thread whose put
waits for it sends what is new itself, by one call that never waits; and a thread hears what the
follower says. All else is the loop's: the first report, who lags far, who takes less than he
is sent, heartbeats.
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
"""Of the log that a thread sends which has a put to wait for; more is left to the loop."""
_SECONDS = 1.0


class Lane:
    """Sends on one connection from any thread, while the loop of the feeder leaves it alone.

    The loop has the connection but from ``open`` to ``reclaim``. The holder of ``_turn`` may send,
    and the loop holds it from the begin on: what the loop sends and what threads send never mix.
    """

    def __init__(self, log: ServedLog, link: Link, peer: socket.socket, batch: int) -> None:
        """``peer`` does not block, and ``batch`` bytes of the log make a frame at most."""
        self._log, self._link, self._batch = log, link, batch
        self._peer = peer
        self._turn = threading.Lock()
        self._turn.acquire()
        self._rest = b""
        self._fault: BaseException | None = None
        self.needs_loop = False
        """Something is left that only the loop can do; until it has, threads send nothing."""
        self.wrote_at = -math.inf  # nothing yet, whatever the clock says
        """When a thread last sent something, by ``time.monotonic``."""
        self.sent_bytes = 0
        """By threads."""

    # ---- the threads of puts

    def send(self) -> bool:
        """Send what the log has that was not sent; return whether nothing is left for the loop.

        A thread that is sending meanwhile checks again after its send.
        """
        size_at, link, turn = self._log.size_at, self._link, self._turn
        while size_at(link.sent) and turn.acquire(blocking=False):
            try:
                if self.needs_loop:
                    return True  # it has been asked, or is about to look
                if not self._send(link.sent):
                    return False
            finally:
                turn.release()
        return True

    def _send(self, at: int) -> bool:
        """Send what lies from ``at`` on; return whether nothing is left for the loop."""
        try:
            if not (body := self._log.read_near(at, MAX_BYTES)):
                return not self._log.size_at(at)
            data = b"".join(frames(at, body, self._batch))
            self._link.sent = at + len(body)  # first: it may be acknowledged within the next call
            sent = self._sent(data)
        except (OSError, StoreError) as exc:
            # The put only waits: the thread that serves the connection ends it.
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
        """Return how many bytes the kernel took, without a wait."""
        try:
            return self._peer.send(data)
        except BlockingIOError:  # it takes nothing now
            return 0

    # ---- the loop

    def open(self) -> None:
        """Allow threads to send; the caller sends nothing until it has called ``reclaim``."""
        self._turn.release()

    def reclaim(self) -> bytes:
        """Stop threads from sending; return what the kernel did not take of a frame.

        Raises:
            OSError, StoreError: a thread could not send.
        """
        while not self._turn.acquire(timeout=_SECONDS):
            pass  # a call that does not wait is under way
        rest, self._rest = self._rest, b""
        if self._fault is not None:
            raise self._fault
        self.needs_loop = False
        return rest


class ReceiverThread:
    """A thread that hears one connection: a turn of a loop for each report costs more."""

    def __init__(self, peer: socket.socket, take: Callable[[socket.socket], object]) -> None:
        """``take`` hears ``peer`` until it raises; shut down, ``peer`` has it raise soon."""
        self._loop = asyncio.get_running_loop()
        self._peer, self._take = peer, take
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def receive(self) -> None:
        """Hear until the connection ends.

        Raises:
            BaseException: what ``take`` raises.
        """
        with self._peer.dup() as peer:  # its time to wait is its own
            thread = StoreThread("cqstore-hear", partial(self._run, peer))
            try:
                thread.start()
                await self._ended
            finally:
                with suppress(OSError):  # it has gone already
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
