"""Server: listens, and connects clients to the handlers of their requests.

Everything of a connection runs in one event loop. What may take long runs in threads: requests of
tools, opening the store again, and writing the file for consumer offsets.

Source: RocketMQ ``NettyRemotingServer``, ``ClientHousekeepingService``.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from time import monotonic
from typing import NamedTuple, Self

from cqstore.remoting.command import IS_ONEWAY, Command
from cqstore.replication.listening import LOOPBACK, Network, listen, peer_ip
from cqstore.serve.broker_tables import BrokerTables, ReadMetadata
from cqstore.serve.client_calls import ClientCalls
from cqstore.serve.codes import RequestCode, request_name
from cqstore.serve.connection import Connection
from cqstore.serve.consumer_groups import ConsumerGroup
from cqstore.serve.held_pulls import HeldPulls
from cqstore.serve.limits import Quota, ServeLimits
from cqstore.serve.request import Request
from cqstore.serve.request_counts import RequestCounts
from cqstore.serve.request_handlers import RequestHandlers
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.served_store import POLL_SECONDS
from cqstore.serve.store_writer import StoreWriter
from cqstore.serve.users import Users
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError
from cqstore.store.service.dispatching.arrivals import ArrivalBatch

_LOG = StoreLogger(__name__)
_CHECK_SECONDS = 1.0
_SAVE_SECONDS = 5.0
_TABLES_SECONDS = 5.0
"""Minimum time between two reads of the tables of a running broker."""
_END_SECONDS = 2.0
_ACCEPT_TURNS = 3
"""Turns of the loop from the accept of a connection until its ``connection_made``."""
_HANDSHAKE_SECONDS = 10.0
OnEvent = Callable[[str], object]


class ServerFigures(NamedTuple):
    """What a server has done, and has in hand, at one moment."""

    connections: int
    """Connected clients."""
    connections_accepted: int
    connections_closed: int
    """Connections that were refused, or closed for a limit or an invalid request."""
    consumer_groups: int
    """Groups with connected consumers."""
    waiting_pulls: int
    messages_in: int
    """Messages of clients that were put."""
    messages_out: int
    """Messages that pulls were answered with."""
    memory_bytes: int
    """Bytes of received requests and of responses that were not sent yet."""
    store_openings: int
    """How often the store was opened again because its log has grown."""
    log_max_phy_offset_bytes: int
    """End of the log in the newest open."""


class Server:
    """Serves one store; an asynchronous context manager. The caller closes the store."""

    def __init__(
        self,
        broker: ServedBroker,
        addresses: Sequence[tuple[str, int]],
        *,
        allow: Sequence[Network] = LOOPBACK,
        limits: ServeLimits | None = None,
        tls: ssl.SSLContext | None = None,
        users: Users | None = None,
        read_metadata: ReadMetadata | None = None,
        on_event: OnEvent = _LOG.info,
        on_access: OnEvent | None = None,
        writer: StoreWriter | None = None,
    ) -> None:
        """Prepare to listen on ``addresses`` (port 0: a free one) for clients in ``allow``.

        With ``users``, only requests that one of them has signed are answered.
        ``read_metadata`` returns the store's tables; ``None``: topics are those of the queues.
        ``on_event`` is called when a connection is refused or closed for a reason, ``on_access``
        with a line for each request. ``writer`` puts what clients send; ``None``: sends are
        refused.
        """
        self.limits = limits or ServeLimits()
        self.counts = RequestCounts()
        """Number of requests by code and result."""
        self.connected = 0
        """Number of connections that were accepted."""
        self._closed = 0
        self.ports: list[int] = []
        """The ports on which the server listens, once it does."""
        self._broker = broker
        self._addresses = addresses
        self._allow = allow
        self._tls = tls
        self._read_metadata = read_metadata
        self._on_event, self._on_access = on_event, on_access
        self._links: set[Connection] = set()
        self._quota = Quota(self.limits.connections, self.limits.connections_per_address)
        self._memory = Quota(self.limits.memory_bytes, self.limits.memory_bytes_per_address)
        self.held = HeldPulls(self.limits)
        """The pulls that wait for messages."""
        self._calls = ClientCalls(self.limits)
        self._handlers = RequestHandlers(
            broker, self.held, self._calls, self.limits, version("cqstore"), self._notify, users,
            writer,
        )  # fmt: skip
        self._ended = AsyncExitStack()
        self._tables_at = 0.0
        self._is_ending = False

    async def __aenter__(self) -> Self:
        """Read the store's tables, and start to listen.

        Raises:
            StoreError: the tables cannot be read, or the server cannot listen on an address.
        """
        try:
            await self._begin()
        except BaseException:
            await self._ended.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Accept no more; let clients read what was sent, then disconnect them."""
        self._is_ending = True
        await self._ended.aclose()

    def figures(self) -> ServerFigures:
        """Return the figures of this moment. Any thread."""
        served = self._broker.served
        with served.reading() as store:
            end = store.max_phy_offset()
        return ServerFigures(
            connections=len(self._links), connections_accepted=self.connected,
            connections_closed=self._closed, consumer_groups=len(self._broker.groups),
            waiting_pulls=len(self.held), messages_in=self._broker.stats.messages_in,
            messages_out=self._broker.stats.messages_out, memory_bytes=self._memory.total,
            store_openings=served.renewals, log_max_phy_offset_bytes=end,
        )  # fmt: skip

    async def _begin(self) -> None:
        loop, ended = asyncio.get_running_loop(), self._ended
        ended.callback(self._broker.offsets.save)
        ended.push_async_callback(self._handlers.close)
        await asyncio.to_thread(self._read_tables)
        store = self._broker.served.newest
        if not store.read_only:
            subscription = store.add_arrival_listener(lambda batch: self._on_arrival(loop, batch))
            ended.callback(subscription.close)
        ended.push_async_callback(self._end_links)
        for work in (self._watch(), self._check(), self._save()):
            task = loop.create_task(work)
            task.add_done_callback(_log_fault)
            ended.callback(task.cancel)
        ended.push_async_callback(self._handlers.drain)
        for host, port in self._addresses:
            listener = listen(host, port)
            self.ports.append(listener.getsockname()[1])
            server = await loop.create_server(
                lambda: Connection(self), sock=listener, ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._tls else None,
            )  # fmt: skip
            ended.push_async_callback(_stop_accepting, listener, server)

    async def _end_links(self) -> None:
        """Disconnect all clients; those that do not read are cut off after a moment.

        Requests that are answered in threads get as long.
        """
        await self._handlers.finish(_END_SECONDS)
        for link in list(self._links):
            link.end()
        deadline = monotonic() + _END_SECONDS
        while self._links and monotonic() < deadline:
            await asyncio.sleep(0.01)
        for link in list(self._links):
            link.drop()
        await asyncio.sleep(0)

    # ---- what connections ask, see ``ConnectionOwner``

    def join(self, link: Connection) -> str:
        """Register a connection; return why it is refused, else an empty text."""
        ip = peer_ip(link.address)
        if not any(ip in network for network in self._allow):
            return "refused: the address is not in an allowed network"
        if self._is_ending:
            return "refused: the server is ending"
        if not self._quota.has_room(link.address):
            return "refused: too many connections"
        self._quota.add(link.address)
        self._links.add(link)
        self.connected += 1
        return ""

    def leave(self, link: Connection) -> None:
        """Forget a connection, its waiting pulls and its consumers."""
        if link not in self._links:
            return
        self._links.discard(link)
        self._quota.add(link.address, -1)
        self.held.drop(link)
        self._calls.drop(link)
        for name, group in self._broker.groups.leave(link):
            self._notify(name, group)

    def handle(self, request: Request, link: Connection) -> Command | None:
        """Return the response to a request; ``None``: it is sent later."""
        return self._handlers.handle(request, link)

    def answered(self, link: Connection, response: Command) -> None:
        """Take a client's response to a request of the server."""
        self._calls.answered(link, response)

    def count(self, request: Request, response: int, size: int) -> None:
        """Count a request, and write a line for it if that is wanted."""
        code = request.command.code
        self.counts.add(code, response, size)
        if self._on_access is not None:
            fields = request.command.fields
            about = fields.get("topic") or fields.get("consumerGroup") or ""
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            named = f"{request_name(code)} {about[:80]!r}"
            self._on_access(f"{at} {request.peer} {named} -> {response}, {size} bytes")

    def can_keep(self, link: Connection, more: int) -> bool:
        """Count ``more`` bytes in memory; return false if they exceed a limit."""
        has_room = more <= 0 or self._memory.has_room(link.address, more)
        self._memory.add(link.address, more)
        return has_room

    def can_send(self, link: Connection) -> None:
        """Answer the waiting pulls of a client that reads again."""
        self.held.wake_link(link)

    def report(self, link: Connection, sentence: str) -> None:
        """Report why a connection is closed."""
        self._closed += 1
        self._on_event(f"{link.peer}: {sentence}")

    # ---- work beside the connections

    def _notify(self, name: str, group: ConsumerGroup) -> None:
        """Tell the consumers of a group to share its queues anew."""
        command = Command(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._calls.next_opaque(), IS_ONEWAY,
            {"consumerGroup": name},
        )  # fmt: skip
        for link in list(group.consumers):
            link.send(command)

    def _on_arrival(self, loop: asyncio.AbstractEventLoop, batch: ArrivalBatch) -> None:
        """Wake pulls of queues with new messages; called in the listener's thread."""
        keys = tuple(batch.queues)
        if batch.dropped:
            loop.call_soon_threadsafe(lambda: loop.create_task(self.held.wake_all()))
        else:
            loop.call_soon_threadsafe(self.held.wake, keys)

    async def _watch(self) -> None:
        """Open the store again when another process has appended to it."""
        served = self._broker.served
        while served.is_followed:
            await asyncio.sleep(POLL_SECONDS)
            if await asyncio.to_thread(served.renew):
                await asyncio.to_thread(self._read_tables)
                await self.held.wake_all()

    def _read_tables(self) -> None:
        """Read topics, groups and offsets, at most once in a few seconds."""
        if self._read_metadata is None:
            tables = BrokerTables()
        elif self._tables_at and monotonic() < self._tables_at + _TABLES_SECONDS:
            tables = self._broker.tables.without_known()
        else:
            try:
                tables = BrokerTables.of(self._read_metadata())
            except StoreError as exc:
                if not self._tables_at:
                    raise
                self._on_event(f"cannot read the tables of the broker again: {exc}")
                tables = self._broker.tables.without_known()
            self._tables_at = monotonic()
        self._broker.use_tables(tables)

    async def _check(self) -> None:
        """Close connections whose time is over, and forget consumers without heartbeats."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = monotonic()
            for link in list(self._links):
                link.check_times(now)
            for name, group in self._broker.groups.expire():
                self._notify(name, group)

    async def _save(self) -> None:
        """Write the file for consumer offsets every few seconds."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            try:
                await asyncio.to_thread(self._broker.offsets.save)
            except StoreError as exc:
                self._on_event(f"cannot write consumer offsets, retrying: {exc}")


async def _stop_accepting(listener: socket.socket, server: asyncio.Server) -> None:
    """Close a listener, after the connections that it has just accepted have begun.

    asyncio would forget them, and they would stay open, if it was closed before.
    """
    asyncio.get_running_loop().remove_reader(listener)
    for _ in range(_ACCEPT_TURNS):
        await asyncio.sleep(0)
    server.close()


def _log_fault(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (exc := task.exception()) is not None:
        _LOG.error("a task of the server failed", exc_info=exc)
