"""Connection: one client, from its first byte to its last.

A client that is slow, silent or sends what is no request costs this connection: nothing is read
from a client that does not read its responses, and every wait has an end.
"""

import asyncio
import os
from contextlib import suppress
from time import monotonic
from typing import Protocol, cast

from cqstore.remoting.command import Command
from cqstore.remoting.errors import WireError
from cqstore.remoting.frame import CommandReader, encode
from cqstore.replication.endpoint import endpoint
from cqstore.serve.limits import ServeLimits
from cqstore.serve.request import Request

_TURN = 64
"""Number of requests of a client that are answered before other clients get their turn."""
_NO_RESPONSE = -1
_READ_BYTES = 256 << 10


class ConnectionOwner(Protocol):
    """The server of a connection."""

    limits: ServeLimits

    def join(self, link: "Connection") -> str:
        """Register a connection; return why it is refused, else an empty text."""

    def leave(self, link: "Connection") -> None:
        """Forget a connection."""

    def handle(self, request: Request, link: "Connection") -> Command | None:
        """Return the response to a request; ``None``: it is sent later."""

    def answered(self, link: "Connection", response: Command) -> None:
        """Take a client's response to a request of the server."""

    def count(self, request: Request, response: int, size: int) -> None:
        """Count a request that was answered with ``size`` bytes."""

    def can_keep(self, link: "Connection", more: int) -> bool:
        """Count ``more`` bytes for a connection; return false if they exceed a limit."""

    def can_send(self, link: "Connection") -> None:
        """Send what had to wait until the client reads again."""

    def report(self, link: "Connection", sentence: str) -> None:
        """Report why a connection is closed."""


class Connection(asyncio.Protocol):
    """One connection; all methods are called in the server's event loop."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._reader = CommandReader(owner.limits.frame_limits)
        self._transport: asyncio.Transport | None = None
        self._kept = 0
        self._is_paused = self._is_turn_over = False
        self._active_at = self._begun_at = self._blocked_at = monotonic()
        self.address = self.peer = self._local = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or close the connection if the server refuses it."""
        self._transport = made = cast("asyncio.Transport", transport)
        peer, local = made.get_extra_info("peername"), made.get_extra_info("sockname")
        if not peer or not local:  # the client has gone already
            made.abort()
            return
        self.address, self.peer = peer[0], endpoint(peer[0], peer[1])
        self._local = endpoint(local[0], local[1])
        if refusal := self._owner.join(self):
            self._close(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client, after what it sent before it closed without reading a response.

        Such a client may have been content to send: the Go client's one-way messages are requests
        that ask for a response, which it does not wait for.
        """
        transport, self._transport = self._transport, None
        if transport is not None and isinstance(exc, OSError):
            self._reader.feed(_unread(transport))
            self._account()
            self._work_off()
        else:
            self._leave()

    def _work_off(self) -> None:
        """Handle what a client has sent that has gone; after some of it, others get their turn."""
        for _ in range(_TURN):
            if not self._answer_next():
                self._leave()
                return
        asyncio.get_running_loop().call_soon(self._work_off)

    def _leave(self) -> None:
        self._owner.can_keep(self, -self._kept)
        self._kept = 0
        self._owner.leave(self)

    @property
    def is_blocked(self) -> bool:
        """Return whether the client has not read earlier responses, or has gone."""
        return self._is_paused or self._transport is None

    # ---- receiving

    def data_received(self, data: bytes) -> None:
        """Answer the requests in ``data`` and before it."""
        if self._transport is None:
            return
        if self._reader.is_between:
            self._begun_at = monotonic()
        self._active_at = monotonic()
        self._reader.feed(data)
        self._work()

    def eof_received(self) -> bool:
        """Close the connection: no client of RocketMQ closes one direction only."""
        return False

    def pause_writing(self) -> None:
        """Read no more requests: the client does not read the responses."""
        self._is_paused = True
        self._blocked_at = monotonic()
        self._pause_reading()

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        self._is_paused = False
        self._active_at = self._begun_at = monotonic()
        self._owner.can_send(self)
        self._work()

    def _work(self) -> None:
        """Answer complete requests; after some of them, others get their turn."""
        self._is_turn_over = False
        for _ in range(_TURN):
            if self.is_blocked or not self._answer_next():
                break
        else:
            self._is_turn_over = True
            self._pause_reading()
            asyncio.get_running_loop().call_soon(self._work)
        self._account()
        if self._transport is not None and not (self._is_paused or self._is_turn_over):
            self._transport.resume_reading()

    def _answer_next(self) -> bool:
        """Answer one request; return whether there was one."""
        try:
            command = self._reader.next_command()
        except WireError as exc:
            self._close(str(exc))
            return False
        if command is None:
            return False
        self._begun_at = monotonic()
        if command.is_response:
            self._owner.answered(self, command)
        else:
            request = Request(command, self.peer, self._local)
            response = self._owner.handle(request, self)
            if response is not None:
                self.respond(request, response)
        return True

    # ---- sending

    def respond(self, request: Request, response: Command) -> None:
        """Send a response, unless the client has gone or wants none."""
        data = b"" if request.command.is_oneway else encode(response)
        code = _NO_RESPONSE if request.command.is_oneway else response.code
        self._owner.count(request, code, len(data))
        if data and self._transport is not None:
            self._active_at = monotonic()
            self._transport.write(data)
            self._account()

    def send(self, command: Command) -> None:
        """Send a request without a response, unless the client does not read."""
        if self._transport is not None and not self._is_paused:
            self._transport.write(encode(command))

    def check_times(self, now: float) -> None:
        """Close the connection if a time limit has passed."""
        limits = self._owner.limits
        if self._transport is None:
            return
        if self._is_paused:
            if now - self._blocked_at > limits.send_seconds:
                self._close(f"the client has read nothing for {limits.send_seconds:g} s")
        elif not self._reader.is_between and now - self._begun_at > limits.request_seconds:
            self._close(f"a request was not complete after {limits.request_seconds:g} s")
        elif now - self._active_at > limits.idle_seconds:
            self._close(f"nothing was received or sent for {limits.idle_seconds:g} s")

    def drop(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Close the connection after what is to be sent."""
        if self._transport is not None:
            self._transport.close()

    # ---- internal

    def _account(self) -> None:
        """Count the bytes that this connection keeps in memory."""
        transport, kept = self._transport, self._reader.kept_bytes
        if transport is not None:
            kept += transport.get_write_buffer_size()
        if kept == self._kept:
            return
        more, self._kept = kept - self._kept, kept
        if not self._owner.can_keep(self, more) and transport is not None:
            self._close("the connections keep too many bytes in memory")

    def _pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _close(self, why: str) -> None:
        self._owner.report(self, why)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()


def _unread(transport: asyncio.Transport) -> bytes:
    """Return what a socket has received that was not read yet; of TLS, nothing."""
    if transport.get_extra_info("ssl_object") is not None:
        return b""
    pieces, descriptor = [], transport.get_extra_info("socket").fileno()
    with suppress(OSError):  # there is no more
        while piece := os.read(descriptor, _READ_BYTES):
            pieces.append(piece)
    return b"".join(pieces)
