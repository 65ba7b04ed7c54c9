"""DefaultProtocol: the protocol without a controller, which does not report a log's start or end.

Source: RocketMQ ``DefaultHAClient``.
"""

import time
from functools import partial

from cqstore.replication.follow.blocking import to_the_end
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.last_file import last_file
from cqstore.replication.follow.log_receiver import LogReceiver
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow.stopwatch import Stopwatch
from cqstore.replication.wire import REPORT, FrameParser, Report
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class DefaultProtocol:
    """The default protocol on one connection: a ``WireProtocol``."""

    acknowledges = True

    def __init__(
        self, store: MessageStore, receiver: LogReceiver, port: MasterPort, timing: Timing
    ) -> None:
        """``port`` is used for further connections, which request the master's last file."""
        self.receiver = receiver
        self.parser = FrameParser()
        self._timing = timing
        self._file_size = components_of(store).log.files.file_size
        self._last_file = partial(last_file, port, timing.housekeeping)
        self._proven_at = -1  # phy offset at which ``has_all`` last succeeded; -1: none
        self._lacking = Stopwatch()  # time since the master's last file began after this log's end
        self._last = range(0)  # phy offsets of the master's last file
        self._last_until = 0.0
        self._mute = Stopwatch()  # time for which the master sent nothing on new connections

    @classmethod
    async def begin(
        cls, store: MessageStore, port: MasterPort, timing: Timing, verify_tail_bytes: int
    ) -> "DefaultProtocol":
        """Return the protocol for a new connection; nothing is sent before the first report."""
        receiver = await to_the_end(LogReceiver, store, verify_tail_bytes)
        return cls(store, receiver, port, timing)

    def receive(self, data: bytes) -> None:
        """Pass received bytes to the receiver."""
        self.receiver.receive(self.parser.feed(data))

    def report(self, phy_offset: int) -> bytes:
        """Return the bytes of a report that this log has everything before ``phy_offset``."""
        return REPORT.pack(Report(phy_offset))

    async def has_all(self) -> bool:
        """Return whether heartbeats arrive because this log has all of the master's.

        A master also sends heartbeats for an offset that has expired from its log, even in the
        middle of a connection. Offsets in the master's last file have not expired.

        Raises:
            DivergedError: the master no longer has the bytes that would continue this log.
        """
        receiver, at = self.receiver, self.receiver.next_phy_offset
        if not receiver.is_verified:
            return await self._has_none_of_this()
        now = time.monotonic()
        if at != self._proven_at and (at not in self._last or now >= self._last_until):
            found = await self._last_file(whole=False)
            if found is None:
                return False  # the next heartbeat repeats the check
            if found.start > at:
                if self._lacking.seconds(at, now) < self._timing.quiet:
                    return False  # that file may be new: then bytes arrive soon, or have arrived
                raise receiver.divergence(await self._last_file(whole=True))
            self._last = range(found.start, found.start + self._file_size)
            self._last_until = now + self._timing.last_file
        self._proven_at = at
        return not receiver.is_torn

    async def _has_none_of_this(self) -> bool:
        """Raise that the master lacks the end of this log.

        Returns False while that is not certain: a master that is shutting down sends no bytes.
        """
        found = await self._last_file(whole=True)
        if not found:
            muted = self._mute.seconds(self.receiver.request, time.monotonic())
            if muted < self._timing.stopping:
                return False
        raise self.receiver.divergence(found)
