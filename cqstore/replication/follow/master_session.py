"""Session: one connection to a master, with either protocol: reports, frames and timeouts."""

import asyncio
import math
import time
from typing import Protocol

from cqstore.replication.endpoint import MASTER_CLOSED, nothing_received
from cqstore.replication.follow.blocking import to_the_end
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing, Until
from cqstore.replication.follow.log_receiver import READ_BYTES, LogReceiver
from cqstore.replication.follow.received_stream import Arrivals
from cqstore.replication.follow.stopwatch import Stopwatch
from cqstore.replication.wire import FrameParser
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

ENOUGH_BYTES = 64 << 10
"""Bytes of a frame that count like its end; RocketMQ's frames are half as long by default."""


TAKEN_AT_ONCE_BYTES = 64 << 10
"""Maximum size of a piece that is processed in the event loop, if no disk access is awaited: a
thread would take longer to start than the step takes."""


class WireProtocol(Protocol):
    """The part of a protocol that differs, for one connection that is ready for reports."""

    receiver: LogReceiver
    acknowledges: bool
    """Whether the end of this log is reported to the master; else only the requested offset."""

    @property
    def parser(self) -> FrameParser:
        """Return the parser of the master's frames."""

    def receive(self, data: bytes) -> None:
        """Pass received bytes to the receiver; blocks.

        Raises:
            WireError, DivergedError: the bytes do not continue this log.
        """

    def report(self, phy_offset: int) -> bytes:
        """Return the bytes of a report that this log has everything before ``phy_offset``."""

    async def has_all(self) -> bool:
        """Return whether only heartbeats arrive because this log has all of the master's.

        Called when only heartbeats arrive.

        Raises:
            DivergedError: the master has nothing more to send and lacks bytes of this log.
        """


class Session:
    """One connection to a master, from the first report to its end."""

    def __init__(
        self,
        store: MessageStore,
        protocol: WireProtocol,
        writer: asyncio.StreamWriter,
        timing: Timing,
        progress: FollowerProgress,
        appending: asyncio.Lock,
    ) -> None:
        self._protocol = protocol
        self._appending = appending
        self._log = components_of(store).log
        self._sync = store.config.syncs_each_put
        self._receiver = protocol.receiver
        self._writer = writer
        self._timing = timing
        self._progress = progress
        self._reported_at = -math.inf
        self._quiet = Stopwatch()  # how long heartbeats arrive but no bytes
        self._until: Until = lambda _: False
        self._limit: asyncio.Timeout | None = None  # timeout of the current wait for bytes
        self._fault: BaseException | None = None  # raised while bytes were processed in it
        self._may_have_all = False  # heartbeats arrived that may mean that this log has all
        self._received_at, self._frames, self._torn_bytes = 0.0, 0, 0

    async def receive(self, reader: Arrivals, until: Until) -> None:
        """Append what the master sends, and report, until ``until`` returns True.

        Raises:
            OSError: the connection failed or ended.
        """
        timing = self._timing
        self._until, self._received_at = until, time.monotonic()
        while not until(self._progress):
            if time.monotonic() >= self._reported_at + timing.report:
                await self._report()
            data = await self._next(reader)
            if self._fault is not None:
                raise self._fault
            if data is None:
                await self._answer()
            elif not data:
                raise self._lost(MASTER_CLOSED)
            else:
                await self._receive(data)

    async def _next(self, reader: Arrivals) -> bytes | None:
        """Return bytes that arrived but are not processed; ``None``: another step may be due."""
        timing = self._timing
        silent_at = self._received_at + timing.housekeeping
        report_at = self._reported_at + timing.report
        try:
            async with asyncio.timeout(min(silent_at, report_at) - time.monotonic()) as self._limit:
                with reader.taken_by(self._receive_at_once):
                    return await reader.read(READ_BYTES)
        except TimeoutError:
            if self._fault is None and time.monotonic() >= self._received_at + timing.housekeeping:
                torn_bytes = self._torn_bytes
                seconds = timing.housekeeping
                how = f"only {torn_bytes} bytes of a frame received in {seconds:g} s"
                raise self._lost(how if torn_bytes else nothing_received(seconds)) from None
            return None
        finally:
            self._limit = None

    def _lost(self, how: str) -> ConnectionError:
        has_frame = self._receiver.body_bytes or self._receiver.heartbeats
        return ConnectionError(
            how if has_frame else f"{how} (no frame received: is this the haListenPort?)"
        )

    # ---- receiving

    def _receive_at_once(self, data: bytes) -> bool:
        """Process ``data`` in the call that delivers it; return whether it was processed."""
        if not self._is_short(data) or self._appending.locked() or self._limit is None:
            return False
        progress, receiver = self._progress, self._receiver
        bodies, beats = receiver.body_bytes, receiver.heartbeats
        try:
            try:
                self._protocol.receive(data)
                # First, because the master waits for the report.
                is_reported = self._report_more()
            finally:
                self._note_end(bodies)
            self._note(data, bodies, beats)
            is_over = self._may_have_all or self._until(progress)
            is_over = is_over or (
                is_reported and self._writer.transport.get_write_buffer_size() > 0
            )
        except BaseException as exc:  # noqa: BLE001 - ``receive`` raises it
            self._fault, is_over = exc, True
        if is_over and not self._limit.expired():
            self._limit.reschedule(0)  # a time in the past, so that ``receive`` continues at once
        return True

    def _is_short(self, data: bytes) -> bool:
        return len(data) <= TAKEN_AT_ONCE_BYTES and not self._sync

    async def _receive(self, data: bytes) -> None:
        """Append received bytes, and report the new end of the log."""
        async with self._appending:
            bodies, beats = self._receiver.body_bytes, self._receiver.heartbeats
            try:
                if self._is_short(data):
                    self._protocol.receive(data)
                else:
                    await to_the_end(self._protocol.receive, data)
            finally:
                self._note_end(bodies)
            self._note(data, bodies, beats)
        await self._answer()

    def _note_end(self, bodies: int) -> None:
        """Update the end of the log in the progress, even after an error."""
        self._progress.end = self._log.max_phy_offset()
        self._progress.body_bytes += self._receiver.body_bytes - bodies

    def _note(self, data: bytes, bodies: int, beats: int) -> None:
        """Update the progress after ``data``; ``bodies`` and ``beats`` are the counts before it."""
        receiver, progress, frames = self._receiver, self._progress, self._protocol.parser.frames
        now = time.monotonic()
        progress.verified = receiver.is_verified
        if receiver.body_bytes > bodies:
            progress.caught_up, beats = False, 0
        if receiver.heartbeats > beats and self._is_quiet(now):
            self._may_have_all = True
        self._torn_bytes += len(data)
        if frames > self._frames or self._torn_bytes >= ENOUGH_BYTES:
            self._received_at, self._frames, self._torn_bytes = now, frames, 0

    async def _answer(self) -> None:
        """Report, and check whether this log has all, as required by the processed frames."""
        if self._may_have_all:
            self._may_have_all = False
            self._progress.caught_up = await self._protocol.has_all()
        self._report_more()
        await self._drain()

    def _is_quiet(self, now: float) -> bool:
        """Return whether a heartbeat at time ``now`` shows that the master has nothing more."""
        return self._quiet.seconds(self._receiver.body_bytes, now) >= self._timing.quiet

    # ---- reporting

    def _reportable(self) -> int:
        """Return the end to acknowledge; before the log is verified, the requested phy offset."""
        if not (self._receiver.is_verified and self._protocol.acknowledges):
            return self._receiver.request
        end = self._log.max_phy_offset()
        return min(end, self._log.flushed_phy_offset()) if self._sync else end

    def _report_more(self) -> bool:
        """Report the end of the log if it has grown since the last report; return whether so."""
        if not self._receiver.is_verified or (end := self._reportable()) <= self._progress.reported:
            return False
        self._write_report(end)
        return True

    def _write_report(self, end: int) -> None:
        self._progress.reported = end
        self._reported_at = time.monotonic()
        self._writer.write(self._protocol.report(end))

    async def _report(self) -> None:
        self._write_report(self._reportable())
        await self._drain()

    async def _drain(self) -> None:
        async with asyncio.timeout(self._timing.housekeeping):
            await self._writer.drain()
