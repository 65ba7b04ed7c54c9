"""The replication protocol under a controller: ``wire`` with a handshake and an epoch per frame.

An epoch is the part of the log that one master wrote: a number and the phy offset of its start. The
slave starts with a handshake that identifies it. The master responds with all its epochs. Then the
slave reports, and the master sends frames as in ``wire``, each with the epoch of its bytes.

Source: RocketMQ ``AutoSwitchHAClient``, ``AutoSwitchHAConnection``.
"""

from collections.abc import Callable

from cqstore.replication.errors import WireError
from cqstore.replication.wire import REPORT, FrameHead, FrameParser, hint_at_text
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire

HANDSHAKE, TRANSFER = 1, 2
"""``HAConnectionState``, the kind of a frame. Part of the protocol: do not renumber."""
_FIELD_BYTES = 4
"""Size of each of the first two fields of a handshake."""
MAX_EPOCHS = 1000
"""Maximum number of epochs that a master can send: the buffer size of RocketMQ's master."""
_NO_CONTROLLER = ". Is it a master under a controller? Any other is followed without --controller"
_NOWHERE = -1
"""Phy offset in a heartbeat from a master whose log has no file yet."""


class EpochEntry(NamedTuple):
    """One epoch of a log: the range that one master wrote, by its start."""

    epoch: Annotated[int, Wire("i", "epoch number, increasing")]
    start_offset: Annotated[int, Wire("q", "phy offset of its start, increasing")]


class SlaveHandshake(NamedTuple):
    """First frame of a slave; RocketMQ's master reads it only if it arrives in one piece."""

    state: Annotated[int, Wire("i", "1: handshake")]
    sync_from_last_file: Annotated[int, Wire("h", "1: an empty slave begins at the last file")]
    async_learner: Annotated[int, Wire("h", "1: never joins the in-sync set")]
    broker_id: Annotated[int, Wire("q", "id of the slave")]


class SlaveReport(NamedTuple):
    """Frame of a slave after its handshake: the phy offset up to which it has the log."""

    state: Annotated[int, Wire("i", "2: transfer")]
    phy_offset: Annotated[
        int, Wire("q", "first report: where to begin; later: end of the slave's log")
    ]


class MasterHandshake(NamedTuple):
    """Header of the master's response to a handshake; the epochs follow it."""

    state: Annotated[int, Wire("i", "1: handshake")]
    size: Annotated[int, Wire("i", "bytes of the epochs that follow")]
    max_phy_offset: Annotated[int, Wire("q", "end of the master's log")]
    last_epoch: Annotated[int, Wire("i", "last epoch; -1: none")]


class TransferHead(NamedTuple):
    """Header that the master sends before each range of bytes of its log."""

    state: Annotated[int, Wire("i", "2: transfer")]
    size: Annotated[int, Wire("i", "bytes that follow; 0: heartbeat")]
    phy_offset: Annotated[
        int, Wire("q", "log position of these or the next bytes; -1: no log file")
    ]
    epoch: Annotated[int, Wire("i", "epoch of the bytes; in its last frame the next epoch")]
    epoch_start_offset: Annotated[int, Wire("q", "start of that epoch")]
    confirm_offset: Annotated[int, Wire("q", "all in-sync replicas have the log up to here")]

    @property
    def entry(self) -> EpochEntry:
        """Return the epoch in this header."""
        return EpochEntry(self.epoch, self.epoch_start_offset)


EPOCH_ENTRY = Layout(EpochEntry)
SLAVE_HANDSHAKE = Layout(SlaveHandshake)
SLAVE_REPORT = Layout(SlaveReport)
MASTER_HANDSHAKE = Layout(MasterHandshake)
TRANSFER_HEAD = Layout(TransferHead)


def parse_handshake(data: bytes) -> MasterHandshake:
    """Return the header of a master's handshake.

    Raises:
        WireError: the bytes are not a handshake of a master under a controller.
    """
    head = MASTER_HANDSHAKE.unpack_from(data)
    _check_state(data, head.state, HANDSHAKE)
    if head.size % EPOCH_ENTRY.size or not 0 <= head.size <= MAX_EPOCHS * EPOCH_ENTRY.size:
        raise WireError(
            f"the master's handshake has an invalid size{_NO_CONTROLLER}",
            expected=f"0 to {MAX_EPOCHS} epochs of {EPOCH_ENTRY.size} bytes",
            got=f"{head.size} bytes",
        )
    if head.max_phy_offset < 0:
        raise WireError(
            "the master's handshake has an invalid end of the log",
            expected="0 or more", got=head.max_phy_offset,
        )  # fmt: skip
    return head


def is_slave_handshake(data: bytes) -> bool:
    """Return whether the first bytes of a slave are a handshake rather than two reports."""
    if len(data) < SLAVE_HANDSHAKE.size:
        return False
    hello = SLAVE_HANDSHAKE.unpack_from(data)
    flags = {hello.sync_from_last_file, hello.async_learner}
    (as_report,) = REPORT.unpack_from(data)  # a slave's second report is never lower than its first
    return hello.state == HANDSHAKE and flags <= {0, 1} and hello.broker_id < as_report


def refuse_other_answer(begin: bytes) -> None:
    """Refuse a truncated response to a handshake that does not begin like a master's handshake.

    Raises:
        WireError: the bytes do not begin like a handshake of a master under a controller.
    """
    if len(whole := begin[: len(begin) - len(begin) % _FIELD_BYTES]) >= _FIELD_BYTES:
        parse_handshake(whole[: 2 * _FIELD_BYTES].ljust(MASTER_HANDSHAKE.size, b"\0"))


def parse_epochs(head: MasterHandshake, body: bytes) -> list[EpochEntry]:
    """Return the epochs of a handshake, oldest first.

    Raises:
        WireError: the epochs do not increase, one begins after the end of the log, or the last one
            differs from the header.
    """
    entries = list(EPOCH_ENTRY.iter_unpack(body))
    refuse_unordered(entries, WireError)
    if entries and entries[-1].start_offset > head.max_phy_offset:
        raise WireError(
            f"the master's epoch {entries[-1].epoch} begins after the end of its log",
            expected=f"at most {head.max_phy_offset}", got=entries[-1].start_offset,
        )  # fmt: skip
    last = entries[-1].epoch if entries else -1
    if head.last_epoch != last:
        raise WireError(
            "the last epoch in the master's handshake differs from the list of epochs",
            expected=last, got=head.last_epoch,
        )  # fmt: skip
    return entries


def refuse_unordered(entries: list[EpochEntry], error: Callable[[str], Exception]) -> None:
    """Refuse epochs whose numbers or starts do not increase, or are negative.

    Raises:
        Exception: the result of ``error``, called with the message.
    """
    before = EpochEntry(-1, -1)
    for entry in entries:
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            raise error(
                f"epochs do not increase: {entry.epoch} from {entry.start_offset} follows"
                f" {before.epoch} from {before.start_offset}"
            )
        before = entry


class TransferParser(FrameParser):
    """Parser for the frames that a master under a controller sends after its handshake."""

    head_size = TRANSFER_HEAD.size

    def __init__(self, enter: Callable[[TransferHead], None]) -> None:
        """``enter`` is called with each header before its body, and may raise to refuse it."""
        super().__init__()
        self._enter = enter
        self.head = TransferHead(TRANSFER, 0, 0, -1, 0, -1)
        """Header of the frame to which the last yielded piece belongs."""

    def begin(self, head: bytes) -> FrameHead:
        """Return phy offset and size of the body that follows the header ``head``."""
        found = TRANSFER_HEAD.unpack_from(head)
        _check_state(head, found.state, TRANSFER)
        if found.phy_offset == _NOWHERE and not found.size:
            found = found._replace(phy_offset=0)
        place = self.possible(FrameHead(found.phy_offset, found.size))
        self._enter(found)
        self.head = found
        return place


def _check_state(data: bytes, state: int, wanted: int) -> None:
    if state != wanted:
        hint = hint_at_text(data[:4]) or _NO_CONTROLLER
        raise WireError(
            f"unexpected kind of frame{hint}", expected=f"state {wanted}",
            got=f"state {state}",
        )  # fmt: skip
