"""LogTap: receives a master's log from its replication port without storing it.

It requests offset 0, for which a master sends its last log file from the beginning, and never
reports more. So a master never counts the tap's reports as an acknowledgement of a put, and a log
of more than ``haMaxGapNotInSync`` bytes does not count the tap as a replica that is in sync.

Source: RocketMQ ``DefaultHAConnection``, ``DefaultHAService.inSyncReplicasNums``.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence

from cqstore.ab.record.record_stream import RecordStream
from cqstore.replication.endpoint import MASTER_CLOSED, nothing_received, reason_of
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.last_file import check_master
from cqstore.replication.follow.log_receiver import READ_BYTES
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow.stopwatch import Stopwatch
from cqstore.replication.wire import REPORT, FrameParser, Piece, Report
from cqstore.store.record.decoder import StoredMessage

_NOTHING = REPORT.pack(Report(0))
OnRecords = Callable[[Sequence[StoredMessage]], object]


class LogTap:
    """Receives the records of one master, and reconnects when needed."""

    def __init__(
        self, port: MasterPort, timing: Timing, on_records: OnRecords,
        on_event: Callable[[str], object],
    ) -> None:  # fmt: skip
        """``on_records`` gets records in the order of the log, each once."""
        self._port, self._timing = port, timing
        self._on_records, self._on_event = on_records, on_event
        self._next = -1  # phy offset after what was passed on; -1: unknown
        self._received_bytes = 0
        self._quiet = Stopwatch()
        self.quiet_at = -math.inf
        """Time (``time.monotonic``) of the last heartbeat that shows that nothing more was due."""
        self.lost_bytes = 0
        """Bytes between the last record and what the master sent after a reconnect, padding
        included."""

    async def check(self) -> None:
        """Receive one frame from the master, to check the address.

        Raises:
            StoreIOError, WireError: as for ``check_master``.
        """
        found = await check_master(self._port, self._timing.housekeeping)
        self._next = found.start  # a file that the master begins from now on is a gap

    async def run(self) -> None:
        """Receive until cancelled.

        Raises:
            WireError, CorruptionError: the received bytes are not a log.
        """
        wait, reported = self._timing.first_retry, ""
        while True:
            received = self._received_bytes
            try:
                await self._connection()
            except OSError as exc:
                if self._received_bytes > received:
                    wait, reported = self._timing.first_retry, ""
                if reason_of(exc) != reported:
                    reported = reason_of(exc)
                    self._on_event(f"{self._port}: {reported}; retrying")
                await asyncio.sleep(wait)
                wait = min(2 * wait, self._timing.last_retry)

    async def _connection(self) -> None:
        async with asyncio.timeout(self._timing.connect):
            reader, writer = await self._port.connect()
        try:
            await self._receive(reader, writer)
        finally:
            writer.transport.abort()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive on one connection until it ends.

        Raises:
            ConnectionError: the master closed the connection, or is silent.
        """
        timing, parser, stream = self._timing, FrameParser(), RecordStream()
        reported_at, received_at = -math.inf, time.monotonic()
        while True:
            if (now := time.monotonic()) >= reported_at + timing.report:
                reported_at = now
                writer.write(_NOTHING)
            if now >= received_at + timing.housekeeping:
                raise ConnectionError(nothing_received(timing.housekeeping))
            due = min(reported_at + timing.report, received_at + timing.housekeeping)
            try:
                async with asyncio.timeout(due - now):
                    data = await reader.read(READ_BYTES)
            except TimeoutError:
                continue
            if not data:
                raise ConnectionError(MASTER_CLOSED)
            received_at = time.monotonic()
            self._take(parser.feed(data), stream, received_at)

    def _take(self, pieces: Iterable[Piece], stream: RecordStream, now: float) -> None:
        """Pass on the records in ``pieces``, those before an error too."""
        found: list[StoredMessage] = []
        try:
            for piece in pieces:
                if not piece.data:
                    if self._quiet.seconds(self._received_bytes, now) >= self._timing.quiet:
                        self.quiet_at = now
                    continue
                if stream.next_phy_offset is None and 0 <= self._next < piece.phy_offset:
                    self.lost_bytes += piece.phy_offset - self._next
                self._received_bytes += len(piece.data)
                for record in stream.feed(piece):
                    if record.phy_offset >= self._next:
                        found.append(record)  # noqa: PERF401 - kept when a later one is refused
                self._next = max(self._next, stream.position)
        finally:
            if found:
                self._on_records(found)
