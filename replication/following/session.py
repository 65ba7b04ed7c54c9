"""Session: one connection to a master, whichever wire it speaks: reports, frames and times."""

import asyncio
import math
import time
from typing import Protocol

from replication.following.blocking import to_the_end
from replication.following.intake import READ_BYTES, Intake
from replication.following.lasting import Lasting
from replication.following.standing import Standing, Timing, Until
from store.config import FlushDiskType
from store.service.message_store import MessageStore

ENOUGH_BYTES = 64 << 10
"""Of a frame that are as good as its end; RocketMQ's frames are half as long by default."""


TAKEN_AT_ONCE_BYTES = 64 << 10
"""What comes in pieces no longer than this is taken within the loop, where no disk is waited for: a
thread would take longer to begin than the step takes."""


class Talk(Protocol):
    """What a wire has of its own, for one connection that may report now."""

    intake: Intake
    acknowledges: bool
    """Whether the master is told how far this log has come, or only where it began to ask."""

    @property
    def frames(self) -> int:
        """Return how many have ended."""

    def take(self, data: bytes) -> None:
        """Give what came to the intake; blocks.

        Raises:
            WireError, DivergedError: it does not continue this log.
        """

    def report(self, phy_offset: int) -> bytes:
        """Return a report."""

    async def has_all(self) -> bool:
        """Return whether heartbeats alone come because all is here; asked when they do.

        Raises:
            DivergedError: the master has no more to send, and does not have what is here.
        """


class Session:
    """One connection, from the first report on."""

    def __init__(
        self,
        store: MessageStore,
        talk: Talk,
        writer: asyncio.StreamWriter,
        timing: Timing,
        standing: Standing,
        appending: asyncio.Lock,
    ) -> None:
        self._talk = talk
        self._appending = appending
        self._log = store.commit_log
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._intake = talk.intake
        self._writer = writer
        self._timing = timing
        self._standing = standing
        self._reported_at = -math.inf
        self._quiet = Lasting()  # behind how many bytes heartbeats came

    async def receive(self, reader: asyncio.StreamReader, until: Until) -> None:
        """Take what comes, and report, until ``until`` says so.

        Raises:
            OSError: the connection is of no more use.
        """
        talk, timing = self._talk, self._timing
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
            await self._take(data)
            came += len(data)
            if talk.frames > frames or came >= ENOUGH_BYTES:
                heard, frames, came = time.monotonic(), talk.frames, 0

    def _lost(self, how: str) -> ConnectionError:
        came = self._intake.body_bytes or self._intake.heartbeats
        return ConnectionError(how if came else f"{how} (no frame came: is this haListenPort?)")

    async def _take(self, data: bytes) -> None:
        intake, standing = self._intake, self._standing
        bodies, beats = intake.body_bytes, intake.heartbeats
        try:
            async with self._appending:
                if len(data) <= TAKEN_AT_ONCE_BYTES and not self._sync:
                    self._talk.take(data)
                else:
                    await to_the_end(self._talk.take, data)
        finally:
            standing.end = self._log.max_phy_offset()
            standing.body_bytes += intake.body_bytes - bodies
        standing.verified = intake.verified
        if intake.body_bytes > bodies:
            standing.caught_up, beats = False, 0
        if intake.heartbeats > beats and self._is_quiet(time.monotonic()):
            standing.caught_up = await self._talk.has_all()
        if intake.verified and self._reportable() > standing.reported:
            await self._report()

    def _is_quiet(self, now: float) -> bool:
        """Return whether a heartbeat that came ``now`` says that the master has nothing more."""
        return self._quiet.seconds(self._intake.body_bytes, now) >= self._timing.quiet

    def _reportable(self) -> int:
        """Return what the master may count on; until it has proven its log, what was asked for."""
        if not (self._intake.verified and self._talk.acknowledges):
            return self._intake.request
        end = self._log.max_phy_offset()
        return min(end, self._log.flushed_phy_offset()) if self._sync else end

    async def _report(self) -> None:
        self._standing.reported = self._reportable()
        self._reported_at = time.monotonic()
        self._writer.write(self._talk.report(self._standing.reported))
        async with asyncio.timeout(self._timing.housekeeping):
            await self._writer.drain()
