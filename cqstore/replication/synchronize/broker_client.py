"""BrokerClient: sends one request at a time to one broker over the remoting protocol.

Source: RocketMQ ``NettyRemotingClient``, ``BrokerOuterAPI``.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from cqstore.remoting.command import Command
from cqstore.remoting.frame import CommandReader, FrameLimits, encode
from cqstore.replication.endpoint import TIMED_OUT
from cqstore.replication.errors import BrokerError

SUCCESS = 0
SYSTEM_ERROR = 1
"""Response code of a broker that failed to process the request."""
UNKNOWN_CODE = 3
"""Response code of a broker that does not support the request."""
NO_SUCH_TOPIC = 17
_READ_BYTES = 1 << 18
_NO_FIELDS: Mapping[str, str] = {}
RESPONSE_LIMITS = FrameLimits("a broker's response", ": is this the broker's listenPort?")
"""RocketMQ's own clients accept 16 MiB by default; a table of a broker may be larger."""


class BrokerClient:
    """A client with at most one connection, opened when needed; one task at a time.

    The connection is closed after an error or a cancellation, so that a late response is never
    taken for the response to the next request.
    """

    def __init__(
        self, host: str, port: int, *, connect_seconds: float = 5.0, answer_seconds: float = 30.0
    ) -> None:
        """``port`` is the broker's ``listenPort``; ``answer_seconds``: RocketMQ's own timeout."""
        self.host, self.port = host, port
        self._connect_seconds, self._answer_seconds = connect_seconds, answer_seconds
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._opaque = 0

    async def __aenter__(self) -> Self:
        """Return the client; nothing is connected yet."""
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _t: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._drop()

    async def request(self, code: int, fields: Mapping[str, str] = _NO_FIELDS) -> Command:
        """Return the broker's response, whether it is a success or not.

        Raises:
            OSError: the connection failed, or the response was not complete in time.
            WireError: the received bytes are not a response.
        """
        self._opaque += 1
        whole = False
        try:
            if self._stream is None:
                async with asyncio.timeout(self._connect_seconds):
                    self._stream = await asyncio.open_connection(self.host, self.port)
            async with asyncio.timeout(self._answer_seconds):
                answer = await self._answer(
                    *self._stream, encode(Command(code, self._opaque, fields=fields))
                )
            whole = True
        except TimeoutError:
            raise TimeoutError(TIMED_OUT) from None
        finally:
            if not whole:
                self._drop()
        return answer

    async def request_ok(
        self, what: str, code: int, fields: Mapping[str, str] = _NO_FIELDS
    ) -> Command:
        """Return the broker's response if it is a success.

        Raises:
            BrokerError: the broker rejects the request; ``what`` names it in the error.
            OSError, WireError: as for ``request``.
        """
        answer = await self.request(code, fields)
        if answer.code != SUCCESS:
            raise refusal(what, code, answer)
        return answer

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: bytes
    ) -> Command:
        """Send the bytes of a command; return the broker's response to it.

        Raises:
            ConnectionError: the connection ended before the response.
        """
        received = CommandReader(RESPONSE_LIMITS)
        writer.write(command)
        await writer.drain()
        while data := await reader.read(_READ_BYTES):
            received.feed(data)
            while (answer := received.next_command()) is not None:
                if answer.is_response and answer.opaque == self._opaque:
                    return answer
        raise ConnectionError("the broker closed the connection")

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream[1].transport.abort()


def refusal(what: str, code: int, answer: Command) -> BrokerError:
    """Return the error for a response that is not a success."""
    error = BrokerError(
        f"the broker rejected the request for {what} (code {code}) with response code"
        f" {answer.code}: {answer.remark[:200] or 'no reason given'}"
    )
    error.code = answer.code
    return error
