"""DefaultProtocol: the wire without a controller, which has no word for begin or end of a log.

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
    """The default wire on one connection: a ``WireProtocol``."""

    acknowledges = True

    def __init__(
        self, store: MessageStore, receiver: LogReceiver, port: MasterPort, timing: Timing
    ) -> None:
        """Begin with the first byte; ``port`` is asked by other connections for its last file."""
        self.receiver = receiver
        self._parser = FrameParser()
        self._timing = timing
        self._file_size = components_of(store).log.files.file_size
        self._last_file = partial(last_file, port, timing.housekeeping)
        self._proven_at = -1  # nothing has come since
        self._lacking = Stopwatch()  # what the master's last file began behind
        self._last = range(0)  # the master's last file
        self._last_until = 0.0
        self._mute = Stopwatch()  # from where on the master sent nothing to a new request

    @classmethod
    async def begin(
        cls, store: MessageStore, port: MasterPort, timing: Timing, verify_tail_bytes: int
    ) -> "DefaultProtocol":
        """Return what a new connection begins with; nothing is said before the first report."""
        receiver = await to_the_end(LogReceiver, store, verify_tail_bytes)
        return cls(store, receiver, port, timing)

    @property
    def frames(self) -> int:
        """Return how many have ended."""
        return self._parser.frames

    def receive(self, data: bytes) -> None:
        """Give what came to the receiver."""
        self.receiver.receive(self._parser.feed(data))

    def report(self, phy_offset: int) -> bytes:
        """Return the bytes of a report that this log has all before ``phy_offset``."""
        return REPORT.pack(Report(phy_offset))

    async def has_all(self) -> bool:
        """Return whether there is nothing more because all is here.

        A master sends heartbeats for an offset too that has left its log, also in the middle of a
        connection. What lies in its last file has not.

        Raises:
            DivergedError: the master does not have what this log goes on behind.
        """
        receiver, at = self.receiver, self.receiver.next_phy_offset
        if not receiver.is_verified:
            return await self._has_none_of_this()
        now = time.monotonic()
        if at != self._proven_at and (at not in self._last or now >= self._last_until):
            found = await self._last_file(whole=False)
            if found is None:
                return False  # the next heartbeat asks again
            if found.start > at:
                if self._lacking.seconds(at, now) < self._timing.quiet:
                    return False  # it may just have begun that file: then bytes come, or have come
                raise receiver.divergence(await self._last_file(whole=True))
            self._last = range(found.start, found.start + self._file_size)
            self._last_until = now + self._timing.last_file
        self._proven_at = at
        return not receiver.is_torn

    async def _has_none_of_this(self) -> bool:
        """Raise that the master lacks this log's end.

        Returns False while that is not certain: a master that is being stopped sends no bytes.
        """
        found = await self._last_file(whole=True)
        if not found:
            muted = self._mute.seconds(self.receiver.request, time.monotonic())
            if muted < self._timing.stopping:
                return False
        raise self.receiver.divergence(found)
