"""ClientCalls: requests of the server to a connected client, and the client's responses.

Source: RocketMQ ``Broker2Client``.
"""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Protocol

from cqstore.remoting.command import Command
from cqstore.serve.limits import ServeLimits

_MAX_OPAQUE = 1 << 31


class CallLink(Protocol):
    """The connection of a client."""

    def send(self, command: Command) -> None:
        """Send a request, unless the client does not read."""


class ClientCalls:
    """The requests to clients that wait for a response; in the server's event loop."""

    def __init__(self, limits: ServeLimits) -> None:
        self._seconds = limits.call_seconds
        self._opaque = count()
        self._waiting: dict[int, tuple[CallLink, asyncio.Future[Command]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """Return a number for a request to a client."""
        return next(self._opaque) % _MAX_OPAQUE

    async def call(self, link: CallLink, code: int, fields: Mapping[str, str]) -> Command:
        """Send a request to a client; return its response.

        Raises:
            ConnectionError: the client has disconnected.
            TimeoutError: there was no response in time.
        """
        opaque = self.next_opaque()
        answered: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = link, answered
        try:
            link.send(Command(code, opaque, fields=fields))
            async with asyncio.timeout(self._seconds):
                return await answered
        finally:
            del self._waiting[opaque]

    def answered(self, link: CallLink, response: Command) -> None:
        """Take a response of a client; one that nothing waits for is ignored."""
        owner, answered = self._waiting.get(response.opaque, (None, None))
        if answered is not None and owner is link and not answered.done():
            answered.set_result(response)

    def drop(self, link: CallLink) -> None:
        """End the requests to a client that has gone."""
        for owner, answered in list(self._waiting.values()):
            if owner is link and not answered.done():
                answered.set_exception(ConnectionError("the client has disconnected"))
