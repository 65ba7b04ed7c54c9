"""Limits of a server: connections, requests and bytes, in total and per address.

A limit is never silent: a connection above one is closed and reported, a request above one is
answered with ``SYSTEM_BUSY``.
"""

from collections import Counter
from dataclasses import dataclass

from cqstore.remoting.frame import FrameLimits

IpText = str


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """Limits of one server. "Per address" counts all connections from one IP address."""

    connections: int = 1024
    connections_per_address: int = 512
    waiting_pulls: int = 65_536
    """Pulls that wait for messages."""
    waiting_pulls_per_address: int = 32_768
    jobs: int = 64
    """Requests of tools that wait for, or use, one of the threads that answer them."""
    jobs_per_address: int = 16
    memory_bytes: int = 256 << 20
    """Bytes of received requests and of responses that were not sent yet."""
    memory_bytes_per_address: int = 128 << 20
    put_bytes: int = 64 << 20
    """Bytes of messages that wait for the disk."""
    put_bytes_per_address: int = 32 << 20
    frame_bytes: int = 16 << 20
    """Maximum size of one request; RocketMQ's own limit."""
    header_bytes: int = 64 << 10
    body_bytes: int = 1 << 20
    """A larger body is read past: no request that is answered has one."""
    idle_seconds: float = 120.0
    """A connection without a byte in either direction is closed; RocketMQ's own limit."""
    request_seconds: float = 30.0
    """Maximum time from the first byte of a request to its last one."""
    send_seconds: float = 30.0
    """Maximum time in which a client reads nothing of a response."""
    call_seconds: float = 10.0
    """Maximum time in which a consumer answers a request that is passed on; a broker's limit."""
    suspend_seconds: float = 600.0
    """Maximum time that a pull may wait; RocketMQ's clients ask for 20 to 30 s."""

    @property
    def frame_limits(self) -> FrameLimits:
        """Return the limits of a received command."""
        return FrameLimits("a request", "", self.frame_bytes, self.header_bytes, self.body_bytes)


class Quota:
    """Counts something in total and per address, and refuses more than the limits. One thread."""

    def __init__(self, limit: int, limit_per_address: int) -> None:
        self.total = 0
        self._limit, self._limit_per_address = limit, limit_per_address
        self._by_address = Counter[IpText]()

    def has_room(self, address: IpText, count: int = 1) -> bool:
        """Return whether ``count`` more are within both limits."""
        return (
            self.total + count <= self._limit
            and self._by_address[address] + count <= self._limit_per_address
        )

    def add(self, address: IpText, count: int = 1) -> None:
        """Count ``count`` more; a negative number returns them."""
        self.total += count
        left = self._by_address[address] + count
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]
