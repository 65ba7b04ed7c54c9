"""Feeder: a store that serves its log to followers, RocketMQ's slaves or ours, on asyncio.

Nothing is served without permission: a client that is not of an allowed network, or comes while as
many are there as may be, is closed before a byte is read.

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

from cqstore.replication.endpoint import endpoint
from cqstore.replication.errors import OutsideLogError, WireError
from cqstore.replication.feed.append_notifier import AppendNotifier
from cqstore.replication.feed.connection import REPORT_BYTES, FeedConnection
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.followers import Followers, Link
from cqstore.replication.feed.served_log import ServedLog
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError, StoreIOError
from cqstore.store.service.message_store import MessageStore

_LOG = StoreLogger(__name__)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: tuple[Network, ...] = (
    ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"),
)  # fmt: skip
MAX_CONNECTIONS = 64
_HANDSHAKE_SECONDS = 10.0
_NO_ROOM_SECONDS = 0.5
_BACKLOG = 128


class Feeder:
    """Feeds the followers of one open store; an asynchronous context.

    Any number of threads may put meanwhile, and none of them waits for a follower unless
    ``SYNC_MASTER`` says so. ``followers`` is what the store was opened with (``replicas``), if it
    was opened with any.
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
        tell: Callable[[str], object] = _LOG.info,
    ) -> None:
        """Set out to listen at ``host``, port ``port`` (0: any free one), for those in ``allow``.

        ``tls`` is for our own followers: RocketMQ's speak none. ``tell`` gets a sentence when a
        follower comes, goes, or is refused.
        """
        self.followers = followers or Followers()
        self.port = port
        """Where it listens, once it does."""
        self.connections = 0
        """That were taken."""
        self.sent_bytes = 0
        """To all of them that have gone, heads of frames among them."""
        self._store = store
        self._host = host
        self._allow = allow
        self._limit = max_connections
        self._settings = settings or FeedSettings()
        self._tls = tls
        self._tell = _Telling(tell)
        self._growth: AppendNotifier | None = None
        self._own: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            StoreIOError: there cannot be listened.
        """
        self._listener = _listen(self._host, self.port)
        try:
            self._begin_serving(self._listener)
        except BaseException:
            await self._end_serving()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect every follower, and stop listening."""
        await self._end_serving()

    # ---- inside

    def _begin_serving(self, listener: socket.socket) -> None:
        """Start the tasks that take connections and look for the log's growth."""
        self.port = listener.getsockname()[1]
        self._log = ServedLog(self._store)
        self._growth = growth = AppendNotifier()
        self.followers.add_listener(growth.check_soon)
        for work in (growth.run(), self._accept_all(growth)):
            self._own.append(task := asyncio.create_task(work))
            task.add_done_callback(
                partial(_log_fault, "a part of the feeder has ended: no new follower is fed")
            )

    async def _end_serving(self) -> None:
        """End all connections, and take none any more."""
        if self._growth is not None:
            self.followers.remove_listener(self._growth.check_soon)
        for task in (tasks := [*self._own, *self._tasks]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._own.clear()
        self._listener.close()

    async def _accept_all(self, growth: AppendNotifier) -> None:
        """Take connections and begin to feed them, without end."""
        while True:
            await asyncio.sleep(0)  # many new connections must not starve the others
            await _readable(self._listener)
            try:  # at once: a connection that was taken is not lost to a cancellation
                peer, address = self._listener.accept()
                peer.settimeout(0)
            except BlockingIOError:  # it has gone again
                continue
            except OSError as exc:  # no descriptor is left, or it went while it waited
                self._tell(f"cannot take a connection: {exc.strerror or exc}")
                await asyncio.sleep(_NO_ROOM_SECONDS)
                continue
            ip = _ip(address[0])
            if (refusal := self._refusal(ip)) is not None:
                self._tell(f"{ip}: {refusal}")
                peer.close()
                continue
            self._begin(peer, self.followers.join(str(ip), address[1]), growth)

    def _begin(self, peer: socket.socket, link: Link, growth: AppendNotifier) -> None:
        """Begin to feed a connection, in a task of its own."""

        def ended(task: asyncio.Task[None]) -> None:  # also of one that never ran
            self._tasks.discard(task)
            self.followers.leave(link)
            peer.close()
            _log_fault("the connection of a follower has ended by a fault", task)

        self.connections += 1
        task = asyncio.create_task(self._serve(peer, link, growth))
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _refusal(self, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
        if not any(ip in network for network in self._allow):
            return "refused, it is in no network that may follow"
        if len(self._tasks) >= self._limit:
            return f"refused, {self._limit} connections are there already"
        return None

    async def _serve(self, peer: socket.socket, link: Link, growth: AppendNotifier) -> None:
        """Serve one connection to its end, and log why it ended."""
        who = f"{link.address}:{link.port}"
        try:
            reader, writer = await self._streams(peer)
            try:
                connection = FeedConnection(
                    self._log, self.followers, link, growth, self._settings, reader, writer,
                    peer if self._tls is None else None,
                )  # fmt: skip
                await connection.begin()
                self._tell(
                    f"{who}: asked for {link.position}, is sent the log from {link.start} on"
                )
                try:
                    await connection.run()
                finally:
                    self.sent_bytes += connection.sent_bytes
            finally:
                writer.transport.abort()
        except (WireError, OutsideLogError) as exc:
            self._tell(f"{link.address}: {exc}; the connection is closed")
        except (OSError, StoreError) as exc:
            came = "" if link.sent < 0 else f" at {link.position}"
            self._tell(f"{who}: gone{came}: {exc}")

    async def _streams(
        self, peer: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a connection, behind its TLS handshake if there is one."""
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
    """Wait until the listener has a connection."""
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


def check_listen(host: str, port: int) -> None:
    """Refuse an address where nothing can listen now, before a store is opened for it.

    Raises:
        StoreIOError: as said.
    """
    _listen(host, port).close()


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        StoreIOError: it cannot.
    """
    try:
        kind, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server((address[0], port), family=kind, backlog=_BACKLOG)
    except OSError as exc:
        why = str(exc.strerror or exc).partition(" (while")[0]  # what Python adds names it again
        raise StoreIOError(f"cannot listen at {endpoint(host, port)}: {why}") from exc
    listener.settimeout(0)
    return listener


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return a peer's address; one of IPv4 that came over IPv6 is that of IPv4."""
    ip = ipaddress.ip_address(text.partition("%")[0])
    return getattr(ip, "ipv4_mapped", None) or ip


_MAX_SENTENCES = 64
_NEWS_SECONDS = 60.0


class _Telling:
    """Logs a sentence once a minute: a follower that is refused comes again each few seconds."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._told: OrderedDict[str, float] = OrderedDict()
        self._tell = tell

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if now < self._told.get(sentence, 0):
            return
        self._told[sentence] = now + _NEWS_SECONDS
        self._told.move_to_end(sentence)
        while len(self._told) > _MAX_SENTENCES:
            self._told.popitem(last=False)
        self._tell(sentence)
