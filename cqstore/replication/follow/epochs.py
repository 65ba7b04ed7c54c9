"""Epochs: the point up to which two logs agree, and the epochs that a master's frames may carry.

Source: RocketMQ ``EpochFileCache.findConsistentPoint``, ``AutoSwitchHAConnection``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cqstore.replication.epoch_wire import EpochEntry, TransferHead
from cqstore.replication.errors import WireError

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Agreed:
    """The point up to which this log and a master's are equal, by their epochs."""

    kept: list[EpochEntry]
    """Epochs of this log up to the newest one that the master also has."""
    end: int
    """Phy offset up to which both logs have the bytes of that epoch."""


def agreed(
    own: Sequence[EpochEntry], own_end: int, theirs: Sequence[EpochEntry], their_end: int
) -> Agreed | None:
    """Return the point of agreement: in the newest own epoch that starts equally at the master.

    Own epochs that begin after ``own_end`` have no byte in this log and are ignored: they were
    written before bytes that a power cut then removed. ``None``: no epoch is shared.
    """
    own = [entry for entry in own if entry.start_offset <= own_end]
    starts = [*(entry.start_offset for entry in theirs), their_end]
    ends = dict(zip(theirs, starts[1:], strict=True))
    end = own_end
    for at in reversed(range(len(own))):
        if own[at] in ends:
            return Agreed(own[: at + 1], min(end, ends[own[at]]))
        end = own[at].start_offset
    return None


def listed(entries: Sequence[EpochEntry]) -> str:
    """Return epochs as text for a message; if there are many, only the newest."""
    words = [f"{entry.epoch} from {entry.start_offset}" for entry in entries[-_SHOWN:]]
    more = len(entries) - len(words)
    return (f"{more} older ones, " if more > 0 else "") + (", ".join(words) or "none")


class EpochHistory:
    """A master's epochs, against which its frames are checked. One thread at a time."""

    def __init__(self, entries: Sequence[EpochEntry]) -> None:
        """Begin with the epochs of the master's handshake."""
        self._entries = list(entries)

    def enter(self, head: TransferHead) -> None:
        """Check the header of a frame, and add its epoch if it is new.

        RocketMQ puts the next epoch into the frame with the last bytes of one. Bytes before its
        first epoch are sent with the first epoch.

        Raises:
            WireError: the epoch in the header is unknown, or the bytes belong to another epoch.
        """
        entries, named, begin = self._entries, head.entry, head.phy_offset
        end = begin + head.size
        if named not in entries:
            self._begin(named, begin, end)
        at = entries.index(named)
        behind = entries[at + 1].start_offset if at + 1 < len(entries) else end
        if head.size and end > behind:
            raise self._error("crosses the end of the epoch", head, f"bytes up to {behind}", end)
        if not head.size or begin >= named.start_offset or at == 0:
            return
        before = entries[at - 1].start_offset
        if begin < before or end != named.start_offset:
            expected = f"bytes from {named.start_offset}, or from {before} to there"
            raise self._error("has bytes of another epoch", head, expected, end)

    def _begin(self, named: EpochEntry, begin: int, end: int) -> None:
        """Add a later epoch from a frame.

        Raises:
            WireError: the epoch is not later, or begins elsewhere.
        """
        last = self._entries[-1]
        is_later = named.epoch > last.epoch and named.start_offset > last.start_offset
        if not is_later or named.start_offset not in {begin, end}:
            raise WireError(
                "a frame has an unknown epoch", phy_offset=begin,
                expected=f"an epoch of the handshake, up to {last.epoch} from {last.start_offset},"
                f" or a later one that begins at {' or '.join(map(str, sorted({begin, end})))}",
                got=f"{named.epoch} from {named.start_offset}",
            )  # fmt: skip
        self._entries.append(named)

    def _error(self, how: str, head: TransferHead, expected: str, end: int) -> WireError:
        return WireError(
            f"a frame of epoch {head.epoch} {how}", phy_offset=head.phy_offset,
            expected=expected, got=f"bytes from {head.phy_offset} to {end}",
        )  # fmt: skip
