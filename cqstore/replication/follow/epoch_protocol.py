"""EpochProtocol: the protocol under a controller. Compares logs by epochs first, then by bytes.

The follower identifies as an asynchronous learner and acknowledges nothing: a RocketMQ put that
waits for ``inSyncReplicas`` counts every connection, including those of learners.

Source: RocketMQ ``AutoSwitchHAClient``, ``GroupTransferService``.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from cqstore.replication.endpoint import MASTER_CLOSED, nothing_received
from cqstore.replication.epoch_wire import (
    HANDSHAKE,
    MASTER_HANDSHAKE,
    SLAVE_HANDSHAKE,
    SLAVE_REPORT,
    TRANSFER,
    EpochEntry,
    SlaveHandshake,
    SlaveReport,
    TransferParser,
    parse_epochs,
    parse_handshake,
    refuse_other_answer,
)
from cqstore.replication.errors import BeyondEpochError, DivergedError, WireError
from cqstore.replication.follow.blocking import to_the_end
from cqstore.replication.follow.epoch_file import read_epochs, write_epochs
from cqstore.replication.follow.epochs import EpochHistory, agreed, listed
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.log_receiver import LogReceiver, is_empty
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow.stopwatch import Stopwatch
from cqstore.replication.wire import Piece
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_KEEP = "nothing was removed. To start over, follow into an empty folder"
_HINT = "no epochs received: is this the haListenPort of a master under a controller?"


@dataclass(frozen=True, slots=True)
class Learner:
    """The identity of a slave under a controller."""

    broker_id: int
    """Identifies the slave to the master; no broker of the master's replica set may have it."""
    sync_from_last_file: bool = False
    """Begin an empty log with the master's last file instead of its first."""


@dataclass(frozen=True, slots=True)
class MasterEpochs:
    """The end of a master's log and its epochs, from its handshake."""

    end: int
    """Phy offset of the end of the log."""
    entries: Sequence[EpochEntry]
    """Oldest first; at least one."""


class EpochProtocol:
    """The protocol of a controller on one connection, after the handshake: a ``WireProtocol``."""

    acknowledges = False

    def __init__(
        self,
        store: MessageStore,
        port: MasterPort,
        timing: Timing,
        verify_tail_bytes: int,
        learner: Learner,
        master: MasterEpochs,
    ) -> None:
        """Compare this log's epochs with the master's; blocks.

        Raises:
            BeyondEpochError: this log continues after the offset up to which both are equal.
            DivergedError: both have no epoch in common, or the master lacks the next bytes.
            CorruptionError, StoreIOError: this log's epochs cannot be read or written.
        """
        components_of(store).log.commit()  # so that buffered bytes count as part of this log
        self._path = components_of(store).paths.epoch_file
        is_new, end = is_empty(components_of(store).log), store.max_phy_offset()
        own = [] if is_new else read_epochs(self._path)
        self._held = not own and not is_new
        """The epochs are the master's; they are written once its bytes are verified to match."""
        if own:
            self._epochs = _common(own, end, master)
            if self._epochs != own:  # the removed epochs have no byte in this log
                self._write()
        else:
            self._epochs = [] if is_new else _adopted(end, master)
        self._port, self._learner, self._timing = port, learner, timing
        self._their_end = master.end
        self._lacking = Stopwatch()  # time for which the master had more bytes but sent none
        self.parser = TransferParser(EpochHistory(master.entries).enter)
        self.receiver = LogReceiver(
            store, verify_tail_bytes, minimum=master.entries[0].start_offset
        )

    @classmethod
    async def begin(
        cls,
        store: MessageStore,
        port: MasterPort,
        timing: Timing,
        verify_tail_bytes: int,
        learner: Learner,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> "EpochProtocol":
        """Exchange handshakes on a new connection, and compare epochs.

        Raises:
            OSError: the connection failed, or the master's controller has not made it master yet.
            WireError, StoreError: as for ``parse_handshake`` and the constructor.
        """
        master = await shake_hands(*streams, learner, timing.housekeeping)
        return await to_the_end(cls, store, port, timing, verify_tail_bytes, learner, master)

    def receive(self, data: bytes) -> None:
        """Pass received bytes to the receiver; each epoch is made durable before its first byte.

        Raises:
            DivergedError: an epoch begins inside a record, or bytes differ.
            WireError, StoreError: as for the receiver.
        """
        for (entry, side), pieces in groupby(self.parser.feed(data), self._place):
            if side == 0 and self.receiver.is_torn:
                raise DivergedError(
                    f"the master's epoch {entry.epoch} begins inside a record of its log",
                    phy_offset=entry.start_offset,
                )
            self._enter(entry)
            self.receiver.receive(pieces)
        if self._held and self.receiver.is_verified:
            self._held = False
            self._write()

    def report(self, phy_offset: int) -> bytes:
        """Return the bytes of a report that this log has everything before ``phy_offset``."""
        return SLAVE_REPORT.pack(SlaveReport(TRANSFER, phy_offset))

    async def has_all(self) -> bool:
        """Return whether heartbeats arrive because this log has all of the master's.

        A master also sends heartbeats for an offset that has expired from its log. The end of its
        log is part of each handshake.

        Raises:
            DivergedError: the master has more bytes but does not send them.
            OSError, WireError: a new handshake for the end of the master's log failed.
        """
        at = self.receiver.next_phy_offset
        if at > self._their_end:
            self._their_end = await _fetch_end(self._port, self._learner, self._timing)
        if at == self._their_end:
            return not self.receiver.is_torn
        if at < self._their_end:
            lacking = self._lacking.seconds(at, time.monotonic())
            if lacking >= self._timing.stopping:  # before that, the master may be shutting down
                raise self.receiver.divergence(
                    found=f"the master does not send its bytes from {at}, although its log ends at"
                    f" {self._their_end}: it has lost them, or none of its epochs contains them"
                )
        return False

    def _place(self, piece: Piece) -> tuple[EpochEntry, int]:
        """Return the epoch of a piece's frame, and -1, 0 or 1: before, at or after its start."""
        entry = self.parser.head.entry
        at, start = piece.phy_offset, entry.start_offset
        return entry, (at > start) - (at < start)

    def _enter(self, entry: EpochEntry) -> None:
        """Add an epoch whose bytes follow; it is written before the first of them."""
        head, last = self.parser.head, self._epochs[-1].epoch if self._epochs else -1
        # A heartbeat for bytes that have expired carries the first epoch that has not.
        if entry.epoch > last and (head.size or head.phy_offset >= entry.start_offset):
            self._epochs = [*self._epochs, entry]
            self._held = self._held and not self.receiver.is_verified
            if not self._held:
                self._write()

    def _write(self) -> None:
        write_epochs(self._path, self._epochs)


async def shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, learner: Learner, seconds: float
) -> MasterEpochs:
    """Send the slave's identity; return the end and epochs in the master's response.

    Raises:
        OSError: no response within ``seconds``, the connection ended, or the master has no epoch.
        WireError: the response is not from a master under a controller.
    """
    hello = SlaveHandshake(HANDSHAKE, learner.sync_from_last_file, 1, learner.broker_id)
    writer.write(SLAVE_HANDSHAKE.pack(hello))  # in one piece: the master reads no part of one
    try:
        async with asyncio.timeout(seconds):
            head = parse_handshake(await _answer(reader))
            entries = parse_epochs(head, await reader.readexactly(head.size))
    except asyncio.IncompleteReadError:
        raise ConnectionError(f"{MASTER_CLOSED} ({_HINT})") from None
    except TimeoutError:
        raise TimeoutError(f"{nothing_received(seconds)} ({_HINT})") from None
    if not entries:
        raise ConnectionError("the master has no epoch: its controller has not made it master yet")
    return MasterEpochs(head.max_phy_offset, entries)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Return the header of the master's response.

    Raises:
        WireError: the connection ended after bytes that do not begin like a handshake.
        IncompleteReadError: the connection ended before the header was complete.
    """
    try:
        return await reader.readexactly(MASTER_HANDSHAKE.size)
    except asyncio.IncompleteReadError as exc:
        refuse_other_answer(exc.partial)
        raise


async def _fetch_end(port: MasterPort, learner: Learner, timing: Timing) -> int:
    """Return the end of the master's log, from a new connection; -1: no response."""
    try:
        async with asyncio.timeout(timing.connect):
            reader, writer = await port.connect()
        try:
            return (await shake_hands(reader, writer, learner, timing.connect)).end
        finally:
            writer.transport.abort()
    except (OSError, WireError):
        return -1


def _common(own: list[EpochEntry], end: int, master: MasterEpochs) -> list[EpochEntry]:
    """Return the epochs that this log, which ends at ``end``, shares with the master.

    Raises:
        BeyondEpochError, DivergedError: see ``EpochProtocol``.
    """
    found = agreed(own, end, master.entries, master.end)
    if found is None:
        raise DivergedError(
            f"this log, which ends at {end}, and the master's, which ends at {master.end}, have no"
            f" epoch in common; {_KEEP}",
            expected=f"one of the epochs {listed(master.entries)}", got=listed(own),
        )  # fmt: skip
    if found.end < end:
        raise BeyondEpochError(
            f"this log ends at {end}, the master's at {master.end}, but they are equal only up to"
            f" {found.end}, in epoch {found.kept[-1].epoch}; nothing was removed. Use --truncate to"
            " cut this log there and keep the records that are cut. To start over, follow into an"
            " empty folder", phy_offset=found.end,
            expected=f"epochs {listed(master.entries)}", got=listed(own),
        )  # fmt: skip
    return found.kept


def _adopted(end: int, master: MasterEpochs) -> list[EpochEntry]:
    """Return the epochs of a log that has none, provided that its bytes equal the master's.

    Raises:
        DivergedError: the bytes cannot be equal, or the master cannot send the next ones.
    """
    first = master.entries[0].start_offset
    if not first <= end <= master.end:
        raise DivergedError(
            f"this log ends at {end} and has no epochs, and the master's epochs do not include this"
            f" offset; {_KEEP}", expected=f"an end from {first} to {master.end}", got=end,
        )  # fmt: skip
    return [entry for entry in master.entries if entry.start_offset < end]
