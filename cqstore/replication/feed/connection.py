"""FeedConnection: sends the log to one follower and receives its reports, until one side ends it.

Bytes that a follower has not accepted yet wait in the kernel's buffers; in this process, they never
need more memory than one turn. So a slow follower does not delay the others. On a TCP connection
without TLS, a thread receives the reports, and the threads of waiting puts send new bytes
(``Lane``): an iteration of the event loop for each would cost more than the put.

Source: RocketMQ ``DefaultHAConnection``, ``FlowMonitor``.
"""

import asyncio
import math
import socket
import time
from contextlib import suppress
from typing import NoReturn

from cqstore.replication.endpoint import nothing_received
from cqstore.replication.errors import OutsideLogError, WireError
from cqstore.replication.feed.append_notifier import AppendNotifier
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.followers import Followers, Link
from cqstore.replication.feed.frames import frames
from cqstore.replication.feed.lane import Lane, ReceiverThread
from cqstore.replication.feed.reports import Reports, check_sent
from cqstore.replication.feed.served_log import ServedLog
from cqstore.replication.wire import FRAME_HEAD, MAX_PHY_OFFSET, FrameHead

REPORT_BYTES = 4096
"""Maximum number of bytes of a follower's reports that are read at once."""
TURN_BYTES = 256 << 10
"""Bytes of the log that are sent in one turn, in any number of frames, before other connections."""
_BEYOND = MAX_PHY_OFFSET
"""Assumed request of a follower whose first bytes are not a valid request."""
_MIN_SECONDS = 0.001
"""Minimum timeout of a socket: 0 would make it non-blocking."""


class FeedConnection:
    """One connection. Call ``begin``, then ``run``, once each, in the event loop of its feeder.

    Both raise:
        OSError: the follower disconnected, sends no reports, or accepts no bytes.
        WireError: the follower sent bytes that no slave sends.
        OutsideLogError: the follower requests bytes that the log does not have.
        StoreError: the log cannot be read.
    """

    def __init__(
        self,
        log: ServedLog,
        followers: Followers,
        link: Link,
        growth: AppendNotifier,
        settings: FeedSettings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: socket.socket | None = None,
    ) -> None:
        """``peer``: the socket of ``reader`` and ``writer``; ``None`` if there is TLS between."""
        self._log = log
        self._followers = followers
        self._link = link
        self._growth = growth
        self._reader = reader
        self._writer = writer
        self._batch = settings.ha_transfer_batch_size
        self._heartbeat = settings.ha_send_heartbeat_interval / 1000
        self._patience = settings.ha_housekeeping_interval / 1000
        self._allowance = Allowance(settings)
        self._reports = Reports()
        self._wrote_at = -math.inf  # so that the first heartbeat is due at once
        self._sent_bytes = 0
        self._peer = peer
        self._lane: Lane | None = None
        if peer is not None and not settings.ha_flow_control_enable:
            self._lane = Lane(log, link, peer, self._batch)

    @property
    def sent_bytes(self) -> int:
        """Return the number of bytes that were sent, including frame headers."""
        return self._sent_bytes + (self._lane.sent_bytes if self._lane is not None else 0)

    async def begin(self) -> None:
        """Receive the follower's first report: where it wants to begin."""
        self._writer.transport.set_write_buffer_limits(high=0)
        request, more = _BEYOND, list[int]()
        try:
            request, *more = await self._received()
            start = self._log.start(request)
        except (OutsideLogError, WireError):
            # Send a heartbeat at the start or end of the log: RocketMQ's slave logs that offset,
            # and cqstore's follower then does not reconnect.
            await self._write([FRAME_HEAD.pack(FrameHead(self._log.nearest(request), 0))])
            raise
        self._followers.begin(self._link, request, start)
        self._acknowledge(more)

    async def run(self) -> None:
        """Send the log and receive reports until the follower disconnects or is refused."""
        if self._peer is not None:
            await self._leave_reading()
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._send())]
        try:
            if self._lane is not None:
                self._growth.add(self._lane)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            if self._lane is not None:
                self._growth.remove(self._lane)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- receiving

    async def _listen(self) -> None:
        if self._peer is not None:
            await ReceiverThread(self._peer, self._receive).receive()
        while True:
            self._acknowledge(await self._received())

    async def _leave_reading(self) -> None:
        """Take the bytes that the event loop has read; a thread reads from then on."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        while True:
            transport.pause_reading()  # in each iteration, because the reader resumes it
            try:
                async with asyncio.timeout(0):
                    data = await self._reader.read(REPORT_BYTES)
            except TimeoutError:
                return
            self._acknowledge(self._reported(data))

    def _receive(self, peer: socket.socket) -> NoReturn:
        """Receive in a thread; ``peer`` is not shared with another thread."""
        try:
            while True:
                self._complete(peer)
                other = self._followers.receive(self._link, peer.fileno(), self._patience)
                self._acknowledge(self._reported(other))
        except TimeoutError:
            raise self._silent() from None

    def _complete(self, peer: socket.socket) -> None:
        """Receive until no partial report is left.

        Raises:
            OSError: nothing was received in time, or the connection ended.
        """
        deadline = time.monotonic() + self._patience
        while self._reports.is_torn:
            peer.settimeout(max(deadline - time.monotonic(), _MIN_SECONDS))
            if found := self._reported(peer.recv(REPORT_BYTES)):
                self._acknowledge(found)
                deadline = time.monotonic() + self._patience

    async def _received(self) -> list[int]:
        """Wait for reports of the follower; return their phy offsets, at least one."""
        found: list[int] = []
        deadline = time.monotonic() + self._patience
        while not found:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    data = await self._reader.read(REPORT_BYTES)
            except TimeoutError:
                raise self._silent() from None
            found = self._reported(data)
        return found

    def _silent(self) -> ConnectionAbortedError:
        return ConnectionAbortedError(nothing_received(self._patience))

    def _reported(self, data: bytes) -> list[int]:
        if not data:
            raise ConnectionAbortedError("the follower closed the connection")
        return self._reports.feed(data, self._link.position)

    def _acknowledge(self, phy_offsets: list[int]) -> None:
        for phy_offset in phy_offsets:
            check_sent(phy_offset, self._link.sent)
        if phy_offsets:
            self._followers.acknowledge(self._link, phy_offsets[-1])

    # ---- sending

    async def _send(self) -> None:
        """Send new bytes of the log, one turn at a time and within the allowance, endlessly."""
        while True:
            at, now = self._link.sent, time.monotonic()
            if not self._log.size_at(at):
                await self._send_nothing(at)
                continue
            allowed = self._allowance.remaining(now)
            if not allowed:
                await asyncio.sleep(self._allowance.seconds_left(now))
                continue
            limit = min(max(TURN_BYTES, self._batch), allowed)
            if self._log.is_near(at):
                data = self._log.read(at, limit)
            else:
                data = await asyncio.to_thread(self._log.read, at, limit)
            self._link.sent = at + len(data)
            await self._write(list(frames(at, data, self._batch)))

    async def _send_nothing(self, at: int) -> None:
        """Wait for the log to grow beyond ``at``; send a heartbeat when it is due."""
        lane = self._lane
        wrote_at = self._wrote_at if lane is None else max(self._wrote_at, lane.wrote_at)
        left = wrote_at + self._heartbeat - time.monotonic()
        if left <= 0:
            await self._write([FRAME_HEAD.pack(FrameHead(at, 0))])
        elif lane is None:
            await self._growth.wait(self._is_due, left, lane)
        else:
            lane.open()
            try:
                await self._growth.wait(self._is_due, left, lane)
            finally:
                rest = lane.reclaim()
            if rest:
                await self._write([rest])

    def _is_due(self) -> bool:
        """Return whether the event loop has something to do for this connection."""
        is_left = self._lane is not None and self._lane.needs_loop
        return is_left or self._log.size_at(self._link.sent) != 0

    async def _write(self, parts: list[bytes | memoryview]) -> None:
        """Send ``parts``; return once the kernel has them."""
        size = sum(map(len, parts))
        self._allowance.consume(size)
        self._sent_bytes += size
        self._writer.writelines(parts)
        left = self._writer.transport.get_write_buffer_size()
        while left:
            before = left
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await self._writer.drain()
            left = self._writer.transport.get_write_buffer_size()
            if left >= before:
                raise ConnectionAbortedError(
                    f"the follower accepted nothing for {self._patience:g} s"
                )
        await self._writer.drain()  # raises the error that ended the connection
        self._wrote_at = time.monotonic()
        await asyncio.sleep(0)  # a fast follower must not starve the others


class Allowance:
    """Bytes that one connection may be sent in the current second (``haFlowControlEnable``).

    Counts headers and bodies. RocketMQ counts only headers, so its flow control has no effect.
    """

    def __init__(self, settings: FeedSettings) -> None:
        self._limit = settings.max_ha_transfer_byte_in_second
        self._counts = settings.ha_flow_control_enable
        self._taken = 0
        self._until = 0.0

    def remaining(self, now: float) -> int:
        """Return how many bytes may be sent now; ``now`` is ``time.monotonic()``."""
        if not self._counts:
            return _NO_LIMIT
        if now >= self._until:
            self._taken, self._until = 0, now + 1
        return max(self._limit - self._taken, 0)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until more may be sent."""
        return max(self._until - now, 0)

    def consume(self, size: int) -> None:
        """Count ``size`` bytes as sent in this second."""
        self._taken += size


_NO_LIMIT = 1 << 62
