"""MasterPort: the address at which a master serves its followers."""

import asyncio
import ssl
from dataclasses import dataclass

from cqstore.replication.endpoint import endpoint
from cqstore.replication.follow.log_receiver import READ_BYTES
from cqstore.replication.follow.received_stream import Arrivals, connect


@dataclass(frozen=True, slots=True)
class MasterPort:
    """Connects to a master's ``haListenPort``, with TLS or without."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    """How to authenticate a cqstore master with TLS; RocketMQ masters do not support TLS."""

    def __str__(self) -> str:
        return endpoint(self.host, self.port)

    async def connect(self) -> tuple[Arrivals, asyncio.StreamWriter]:
        """Return a new connection.

        Raises:
            OSError: the connection cannot be made.
        """
        return await connect(self.host, self.port, READ_BYTES, ssl=self.tls)
