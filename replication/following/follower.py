"""Follower: a store that receives the log of a running master, and goes on when it is cut off.

One connection at a time, on asyncio streams; no thread but for the store's blocking calls.

Source: RocketMQ ``DefaultHAClient``.
"""

import asyncio
import logging
import math
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from replication.following.intake import READ_BYTES, VERIFY_TAIL_BYTES, Intake
from replication.following.last_file import last_file
from replication.wire import REPORT, FrameParser, Report
from store.config import FlushDiskType
from store.errors import DiskFullError, StoreIOError
from store.journals.following import Following
from store.service.message_store import MessageStore

_LOG = logging.getLogger(__name__)
_FAREWELL_SECONDS = 1
ENOUGH_BYTES = 64 << 10
"""Of a frame that are as good as its end; RocketMQ's frames are half as long by default."""
A = TypeVarTuple("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Timing:
    """When a follower stops waiting, seconds; the defaults are RocketMQ's where it has one."""

    connect: float = 5.0
    report: float = 5.0
    """Report again after this time without anything new (``haSendHeartbeatInterval``)."""
    housekeeping: float = 20.0
    """Give a connection up that has brought neither the end of a frame nor ``ENOUGH_BYTES`` for so
    long (``haHousekeepingInterval``)."""
    first_retry: float = 0.2
    """Wait before the first new connection; each further one waits twice as long."""
    last_retry: float = 5.0
    quiet: float = 2.0
    """Between two heartbeats that say that there is nothing more. One says nothing: a master that
    was stopped sends it before it looks for new bytes. Nor do several at once: its flow control
    sends them in place of bytes for up to a second."""
    last_file: float = 60.0
    """For which the master's last file surely stays in its log: it would have to fill it first."""


@dataclass(slots=True)
class Standing:
    """How far a follower is."""

    end: int = 0
    """Phy offset behind the last record here."""
    reported: int = -1
    """What the master was last told, -1: nothing."""
    connected: bool = False
    verified: bool = False
    """On this connection, or the last one, the master has sent what this log ended with."""
    caught_up: bool = False
    """The master has no byte that is not here, or had none when it last said so."""
    connections: int = 0
    """That were made."""
    body_bytes: int = 0
    """Of log that came, those among them that were here already."""
    port: int = 0
    """Of this end of the connection, or of the last one; 0: there was none."""
    master_end: int = -1
    """Where the master's log ended when it was last asked, -1: it was not, or did not say."""

    metadata_time: float = 0.0
    """When all tables of the master's had come last, seconds since the epoch; 0: never."""
    metadata_fault: str = ""
    """What was wrong with them the last time."""

    @property
    def lag_bytes(self) -> int | None:
        """Return how many bytes of the master's log are not here; ``None``: that is not known.

        At least so many: the master's log may have grown since it was asked. A follower that has
        nothing yet will not get all that the master has.
        """
        if self.caught_up:
            return 0
        return max(self.master_end - self.end, 0) if self.master_end >= 0 and self.end else None


Until = Callable[[Standing], bool]
"""Whether a follower has come far enough; asked whenever something came."""


class LastFile(Protocol):
    """Asks the master, see ``last_file``."""

    async def __call__(self, *, whole: bool) -> range | None:
        """Return the bytes of its last file, or of the first frame of it."""


class Follower:
    """Follows the master at one address into ``store``, which nobody else may append to.

    Readers may use the store meanwhile. Under ``SYNC_FLUSH`` the master is told what is on disk,
    else what the log has.
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
        tell: Callable[[str], object] = _LOG.info,
    ) -> None:
        """Set out for the master whose ``haListenPort`` is ``port``.

        ``tls``: how to know a master of ours that speaks TLS; RocketMQ's speak none. ``tell`` gets
        a sentence when the connection comes or goes.
        """
        self._store = store
        self._host, self._port, self._tls = host, port, tls
        self._timing = timing or Timing()
        self._verify_tail_bytes = verify_tail_bytes
        self._tell = tell
        self._told: set[str] = set()  # since the last connection that was of use
        self._appending = asyncio.Lock()
        self.standing = Standing(end=store.commit_log.max_phy_offset())

    async def run(self, until: Until = lambda _: False) -> None:
        """Follow until ``until`` says so, or for ever; whoever cancels waits for an append's end.

        Raises:
            DivergedError, WireError: what the master sends does not continue this log.
            StoreIOError: no host has such a name.
            StoreError: the store takes no more writes.
        """
        wait = self._timing.first_retry / 2
        while not until(self.standing):
            end = self.standing.end
            try:
                await self._connection(until)
            except (OSError, DiskFullError) as exc:
                of_use = self.standing.end > end or self.standing.caught_up
                wait = self._next_wait(wait, exc, of_use=of_use)
                await asyncio.sleep(wait)

    @property
    def root(self) -> Path:
        """Return the root of the store."""
        return self._store.paths.root

    def figures(self) -> Following:
        """Return how far it is now; any thread may ask."""
        standing = self.standing
        return Following(
            pid=os.getpid(), time=time.time(), master=f"{self._host}:{self._port}",
            connected=standing.connected, verified=standing.verified,
            caught_up=standing.caught_up, end=standing.end, reported=standing.reported,
            master_end=standing.master_end, lag_bytes=standing.lag_bytes,
            last_stored_ms=self._store.commit_log.followed_timestamp,
            connections=standing.connections, body_bytes=standing.body_bytes,
            metadata_time=standing.metadata_time, metadata_fault=standing.metadata_fault,
        )  # fmt: skip

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Append nothing during the block, which must be short: the master sees no reports."""
        async with self._appending:
            yield

    def _next_wait(self, wait: float, exc: OSError | DiskFullError, *, of_use: bool) -> float:
        """Tell what ended a connection; return the seconds to wait before the next one.

        ``of_use``: it has brought something, or that there is nothing more.
        """
        standing, timing = self.standing, self._timing
        if isinstance(exc, socket.gaierror) and not standing.connections:
            raise StoreIOError(f"cannot find the master {self._host}: {exc.strerror}") from exc
        standing.caught_up = False
        if of_use:
            self._told.clear()
        self._say(f"{str(exc) or 'no answer in time'}; trying again")
        if isinstance(exc, DiskFullError):
            return timing.last_retry
        return timing.first_retry if of_use else min(2 * wait, timing.last_retry)

    def _say(self, sentence: str) -> None:
        if sentence not in self._told:  # a master that is away is no news each five seconds
            self._tell(f"{self._host}:{self._port}: {sentence}")
            self._told.add(sentence)

    async def _connection(self, until: Until) -> None:
        standing = self.standing
        standing.verified = False
        async with asyncio.timeout(self._timing.connect):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, limit=READ_BYTES, ssl=self._tls
            )
        standing.connected = True
        standing.connections += 1
        standing.port = writer.get_extra_info("sockname")[1]
        try:
            intake = await to_the_end(Intake, self._store, self._verify_tail_bytes)
            self._say(f"connected, asked for the log from {intake.request} on")
            seconds = self._timing.housekeeping
            ask = partial(last_file, self._host, self._port, seconds, tls=self._tls)
            session = _Session(
                self._store, intake, writer, self._timing, standing, ask, self._appending
            )
            await session.receive(reader, until)
        finally:
            standing.connected = False
            writer.close()
            with suppress(OSError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await writer.wait_closed()
            writer.transport.abort()  # a master that takes no reports would hold us up


class _Session:
    """One connection, from the first report on."""

    def __init__(
        self,
        store: MessageStore,
        intake: Intake,
        writer: asyncio.StreamWriter,
        timing: Timing,
        standing: Standing,
        last_file: LastFile,
        appending: asyncio.Lock,
    ) -> None:
        self._last_file = last_file
        self._appending = appending
        self._log = store.commit_log
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._intake = intake
        self._writer = writer
        self._timing = timing
        self._standing = standing
        self._reported_at = -math.inf
        self._quiet_since: float | None = None  # the first heartbeat behind the last byte
        self._proven_at = -1  # nothing has come since
        self._lacking = -1, 0.0  # where the master's last file began behind, and since when
        self._last = range(0)  # the master's last file
        self._last_until = 0.0

    async def receive(self, reader: asyncio.StreamReader, until: Until) -> None:
        """Take what comes, and report, until ``until`` says so.

        Raises:
            OSError: the connection is of no more use.
        """
        parser, timing = FrameParser(), self._timing
        heard, frames, came = time.monotonic(), 0, 0
        while not until(self._standing):
            if time.monotonic() >= self._reported_at + timing.report:
                await self._report()
            silent_at, report_at = heard + timing.housekeeping, self._reported_at + timing.report
            try:
                async with asyncio.timeout(min(silent_at, report_at) - time.monotonic()):
                    data = await reader.read(READ_BYTES)
            except TimeoutError:
                if time.monotonic() >= silent_at:
                    how = "silent" if not came else f"no more than {came} bytes of a frame"
                    raise self._lost(f"{how} for {timing.housekeeping:g} s") from None
                continue
            if not data:
                raise self._lost("the master has closed the connection")
            await self._take(parser, data)
            came += len(data)
            if parser.frames > frames or came >= ENOUGH_BYTES:
                heard, frames, came = time.monotonic(), parser.frames, 0

    def _lost(self, how: str) -> ConnectionError:
        came = self._intake.body_bytes or self._intake.heartbeats
        return ConnectionError(how if came else f"{how} (no frame came: is this haListenPort?)")

    async def _take(self, parser: FrameParser, data: bytes) -> None:
        intake, standing = self._intake, self._standing
        bodies, beats = intake.body_bytes, intake.heartbeats
        try:
            async with self._appending:
                await to_the_end(intake.take, parser.feed(data))
        finally:
            standing.end = self._log.max_phy_offset()
            standing.body_bytes += intake.body_bytes - bodies
        standing.verified = intake.verified
        if intake.body_bytes > bodies:
            self._quiet_since, standing.caught_up, beats = None, False, 0
        if intake.heartbeats > beats and self._is_quiet(time.monotonic()):
            standing.caught_up = await self._has_all()
        if intake.verified and self._reportable() > standing.reported:
            await self._report()

    def _is_quiet(self, now: float) -> bool:
        """Return whether a heartbeat that came ``now`` says that the master has nothing more."""
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= self._timing.quiet

    async def _has_all(self) -> bool:
        """Return whether there is nothing more because all is here.

        A master sends heartbeats for an offset too that has left its log, also in the middle of a
        connection. What lies in its last file has not.
        """
        intake, at = self._intake, self._intake.next_phy_offset
        if not intake.verified:
            raise intake.lacking(await self._last_file(whole=True))
        now = time.monotonic()
        if at != self._proven_at and (at not in self._last or now >= self._last_until):
            found = await self._last_file(whole=False)
            if found is None:
                return False  # the next heartbeat asks again
            if found.start > at:
                if self._lacking[0] != at:
                    self._lacking = at, now
                if now - self._lacking[1] < self._timing.quiet:
                    return False  # it may just have begun that file: then bytes come, or have come
                raise intake.lacking(await self._last_file(whole=True))
            self._last = range(found.start, found.start + self._log.files.file_size)
            self._last_until = now + self._timing.last_file
        self._proven_at = at
        return not intake.torn

    def _reportable(self) -> int:
        """Return what the master may count on; until it has proven its log, what was asked for."""
        if not self._intake.verified:
            return self._intake.request
        end = self._log.max_phy_offset()
        return min(end, self._log.flushed_phy_offset()) if self._sync else end

    async def _report(self) -> None:
        self._standing.reported = self._reportable()
        self._reported_at = time.monotonic()
        self._writer.write(REPORT.pack(Report(self._standing.reported)))
        async with asyncio.timeout(self._timing.housekeeping):
            await self._writer.drain()


async def to_the_end(step: Callable[[*A], R], *given: *A) -> R:
    """Run a blocking step in a thread; a cancellation waits for its end.

    A fault of the store counts for more than the cancellation.
    """
    job = asyncio.ensure_future(asyncio.to_thread(step, *given))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        fault = job.exception()
        if fault is not None and not isinstance(fault, DiskFullError):
            raise fault from None
        raise
