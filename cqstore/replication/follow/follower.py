"""Follower: replicates the log of a running master to a store, and reconnects when needed.

One connection at a time, on asyncio streams; threads are used only for the store's blocking calls.

Source: RocketMQ ``DefaultHAClient``, ``AutoSwitchHAClient``.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cqstore.replication.endpoint import not_found, reason_of
from cqstore.replication.follow.default_protocol import DefaultProtocol
from cqstore.replication.follow.epoch_protocol import EpochProtocol, Learner
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing, Until
from cqstore.replication.follow.log_receiver import VERIFY_TAIL_BYTES
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow.master_session import Session, WireProtocol
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import DiskFullError, DispatcherError
from cqstore.store.journals.following import Following
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_LOG = StoreLogger(__name__)
_FAREWELL_SECONDS = 1


class Follower:
    """Replicates the log of one master to ``store``, to which nothing else may append.

    Readers may use the store in the meantime. Bytes are reported to the master when they are
    appended, but under ``SYNC_FLUSH`` when they are on disk.
    """

    def __init__(
        self,
        store: MessageStore,
        host: str,
        port: int,
        *,
        timing: Timing | None = None,
        verify_tail_bytes: int = VERIFY_TAIL_BYTES,
        tls: ssl.SSLContext | None = None,
        learner: Learner | None = None,
        on_event: Callable[[str], object] = _LOG.info,
    ) -> None:
        """Prepare to follow the master whose ``haListenPort`` is ``port``.

        ``tls``: for ``cqstore feed`` with TLS; RocketMQ masters do not support it. ``learner``:
        the master is under a controller, and this is the slave's identity. ``on_event`` is called
        with a message when the connection begins or ends.
        """
        self._store = store
        self._port, self._learner = MasterPort(host, port, tls), learner
        self._timing = timing or Timing()
        self._verify_tail_bytes = verify_tail_bytes
        self._on_event = on_event
        self._reported: set[str] = set()  # sentences since the last successful connection
        self._appending = asyncio.Lock()
        self.progress = FollowerProgress(end=store.max_phy_offset())

    async def run(self, until: Until = lambda _: False) -> None:
        """Follow until ``until`` returns True; a cancellation waits for the end of an append.

        Raises:
            DivergedError, WireError: what the master sends does not continue this log.
            StoreIOError: the host name cannot be resolved.
            StoreError: the store accepts no more writes.
        """
        wait = self._timing.first_retry / 2
        while not until(self.progress):
            end = self.progress.end
            try:
                await self._connection(until)
            except (OSError, DiskFullError, DispatcherError) as exc:
                of_use = self.progress.end > end or self.progress.caught_up
                wait = self._next_wait(wait, exc, of_use=of_use)
                await asyncio.sleep(wait)

    @property
    def root(self) -> Path:
        """Return the root of the store."""
        return self._store.root

    def figures(self) -> Following:
        """Return the current progress; any thread may call."""
        progress = self.progress
        return Following(
            pid=os.getpid(), time=time.time(), master=str(self._port),
            connected=progress.connected, verified=progress.verified,
            caught_up=progress.caught_up, end=progress.end, reported=progress.reported,
            master_end=progress.master_end, lag_bytes=progress.lag_bytes,
            last_stored_ms=components_of(self._store).log.followed_timestamp,
            connections=progress.connections, body_bytes=progress.body_bytes,
            metadata_time=progress.metadata_time, metadata_fault=progress.metadata_fault,
        )  # fmt: skip

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Append nothing during the block. Keep it short: the master receives no reports."""
        async with self._appending:
            yield

    def _next_wait(
        self, wait: float, exc: OSError | DiskFullError | DispatcherError, *, of_use: bool
    ) -> float:
        """Report what ended a connection; return the seconds to wait before the next one.

        ``of_use``: bytes were received on the connection, or the master had nothing more to send.
        """
        progress, timing = self.progress, self._timing
        if isinstance(exc, socket.gaierror) and not progress.connections:
            raise not_found(self._port.host, exc) from exc
        progress.caught_up = False
        progress.fault = reason_of(exc)
        if of_use:
            self._reported.clear()
        self._report(f"{progress.fault}; retrying")
        if isinstance(exc, DiskFullError | DispatcherError):
            return timing.last_retry
        return timing.first_retry if of_use else min(2 * wait, timing.last_retry)

    def _report(self, sentence: str) -> None:
        if sentence not in self._reported:  # do not repeat it every five seconds
            self._on_event(f"{self._port}: {sentence}")
            self._reported.add(sentence)

    async def _connection(self, until: Until) -> None:
        """Follow on one connection until it ends or ``until`` returns True."""
        progress = self.progress
        progress.verified = False
        async with asyncio.timeout(self._timing.connect):
            reader, writer = await self._port.connect()
        progress.connected = True
        progress.connections += 1
        progress.port = writer.get_extra_info("sockname")[1]
        try:
            protocol = await self._begin_protocol(reader, writer)
            self._report(f"connected, requesting the log from {protocol.receiver.request}")
            session = Session(
                self._store, protocol, writer, self._timing, progress, self._appending
            )
            await session.receive(reader, until)
        finally:
            progress.connected = False
            writer.close()
            with suppress(OSError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await writer.wait_closed()
            writer.transport.abort()  # a close would wait for a master that accepts no reports

    async def _begin_protocol(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> WireProtocol:
        """Return the protocol for the connection, ready for the first report."""
        given = self._store, self._port, self._timing, self._verify_tail_bytes
        if self._learner is None:
            return await DefaultProtocol.begin(*given)
        return await EpochProtocol.begin(*given, self._learner, (reader, writer))
