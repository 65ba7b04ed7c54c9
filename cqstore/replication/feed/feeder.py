"""Feeder: serves the log of a store to followers, RocketMQ's or cqstore's, on asyncio.

A client that is not in an allowed network, or exceeds the maximum number of connections, is
disconnected before a byte is read.

Source: RocketMQ ``DefaultHAService.AcceptSocketService``, ``DefaultHAConnection``.
"""

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from cqstore.replication.errors import OutsideLogError, WireError
from cqstore.replication.feed.append_notifier import AppendNotifier
from cqstore.replication.feed.connection import REPORT_BYTES, FeedConnection
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.followers import Followers, Link
from cqstore.replication.feed.served_log import ServedLog
from cqstore.replication.listening import LOOPBACK, Network, listen, peer_ip
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore

_LOG = StoreLogger(__name__)
MAX_CONNECTIONS = 64
_HANDSHAKE_SECONDS = 10.0
_NO_ROOM_SECONDS = 0.5


class Feeder:
    """Serves the log of one open store to followers; an asynchronous context manager.

    Any number of threads may put in the meantime; puts wait for followers only under
    ``SYNC_MASTER``. ``followers`` is the object that the store was opened with (``replicas``).
    """

    def __init__(
        self,
        store: MessageStore,
        followers: Followers | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        allow: Sequence[Network] = LOOPBACK,
        max_connections: int = MAX_CONNECTIONS,
        settings: FeedSettings | None = None,
        tls: ssl.SSLContext | None = None,
        on_event: Callable[[str], object] = _LOG.info,
    ) -> None:
        """Prepare to listen on ``host`` and ``port`` (0: a free one) for clients in ``allow``.

        ``tls`` is for cqstore's own followers: RocketMQ slaves do not support it. ``on_event`` is
        called with a message when a follower connects, disconnects, or is refused.
        """
        self.followers = followers or Followers()
        self.port = port
        """The port on which the feeder listens, once it does."""
        self.connections = 0
        """Number of connections that were accepted."""
        self.sent_bytes = 0
        """Bytes sent to followers that have disconnected, including frame headers."""
        self._store = store
        self._host = host
        self._allow = allow
        self._limit = max_connections
        self._settings = settings or FeedSettings()
        self._tls = tls
        self._on_event = _OncePerMinute(on_event)
        self._growth: AppendNotifier | None = None
        self._own: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            StoreIOError: the feeder cannot listen on its address.
        """
        self._listener = listen(self._host, self.port)
        try:
            self._begin_serving(self._listener)
        except BaseException:
            await self._end_serving()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect every follower, and stop listening."""
        await self._end_serving()

    # ---- internal

    def _begin_serving(self, listener: socket.socket) -> None:
        """Start the tasks that accept connections and check for growth of the log."""
        self.port = listener.getsockname()[1]
        self._log = ServedLog(self._store)
        self._growth = growth = AppendNotifier()
        self.followers.add_listener(growth.check_soon)
        for work in (growth.run(), self._accept_all(growth)):
            self._own.append(task := asyncio.create_task(work))
            task.add_done_callback(
                partial(_log_fault, "a task of the feeder failed: new followers are not served")
            )

    async def _end_serving(self) -> None:
        """Close all connections and accept no more."""
        if self._growth is not None:
            self.followers.remove_listener(self._growth.check_soon)
        for task in (tasks := [*self._own, *self._tasks]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._own.clear()
        self._listener.close()

    async def _accept_all(self, growth: AppendNotifier) -> None:
        """Accept connections and begin to feed them, endlessly."""
        while True:
            await asyncio.sleep(0)  # many new connections must not starve the others
            await _readable(self._listener)
            try:  # no await in between: a cancellation must not lose an accepted connection
                peer, address = self._listener.accept()
                peer.settimeout(0)
            except BlockingIOError:  # the client has already disconnected
                continue
            except OSError as exc:  # no descriptor is left, or the client disconnected
                self._on_event(f"cannot accept a connection: {exc.strerror or exc}")
                await asyncio.sleep(_NO_ROOM_SECONDS)
                continue
            ip = peer_ip(address[0])
            if (refusal := self._refusal(ip)) is not None:
                self._on_event(f"{ip}: {refusal}")
                peer.close()
                continue
            self._begin(peer, self.followers.join(str(ip), address[1]), growth)

    def _begin(self, peer: socket.socket, link: Link, growth: AppendNotifier) -> None:
        """Begin to feed a connection in a separate task."""

        def ended(task: asyncio.Task[None]) -> None:  # is called even if the task never ran
            self._tasks.discard(task)
            self.followers.leave(link)
            peer.close()
            _log_fault("a follower's connection failed unexpectedly", task)

        self.connections += 1
        task = asyncio.create_task(self._serve(peer, link, growth))
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _refusal(self, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
        if not any(ip in network for network in self._allow):
            return "refused: the address is not in an allowed network"
        if len(self._tasks) >= self._limit:
            return f"refused: the limit of {self._limit} connections is reached"
        return None

    async def _serve(self, peer: socket.socket, link: Link, growth: AppendNotifier) -> None:
        """Serve one connection until it ends, and report why it ended."""
        who = f"{link.address}:{link.port}"
        try:
            reader, writer = await self._streams(peer)
            try:
                connection = FeedConnection(
                    self._log, self.followers, link, growth, self._settings, reader, writer,
                    peer if self._tls is None else None,
                )  # fmt: skip
                await connection.begin()
                self._on_event(
                    f"{who}: requested {link.position}, sending the log from {link.start}"
                )
                try:
                    await connection.run()
                finally:
                    self.sent_bytes += connection.sent_bytes
            finally:
                writer.transport.abort()
        except (WireError, OutsideLogError) as exc:
            self._on_event(f"{link.address}: {exc}; closing the connection")
        except (OSError, StoreError) as exc:
            position = "" if link.sent < 0 else f" at {link.position}"
            self._on_event(f"{who}: disconnected{position}: {exc}")

    async def _streams(
        self, peer: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a connection, after the TLS handshake if TLS is used."""
        loop = asyncio.get_running_loop()
        patience = min(self._settings.ha_housekeeping_interval / 1000, _HANDSHAKE_SECONDS)
        reader = asyncio.StreamReader(limit=REPORT_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, peer, ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else patience,
        )  # fmt: skip
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _readable(listener: socket.socket) -> None:
    """Wait until the listener has a pending connection."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)


def _log_fault(meaning: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        _LOG.error(meaning, exc_info=fault)


_MAX_SENTENCES = 64
_NEWS_SECONDS = 60.0


class _OncePerMinute:
    """Reports an event at most once a minute: refused followers reconnect every few seconds."""

    def __init__(self, on_event: Callable[[str], object]) -> None:
        self._reported: OrderedDict[str, float] = OrderedDict()
        self._on_event = on_event

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if now < self._reported.get(sentence, 0):
            return
        self._reported[sentence] = now + _NEWS_SECONDS
        self._reported.move_to_end(sentence)
        while len(self._reported) > _MAX_SENTENCES:
            self._reported.popitem(last=False)
        self._on_event(sentence)
