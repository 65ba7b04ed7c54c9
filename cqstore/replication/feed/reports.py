"""Reports: the phy offsets that a slave reports, checked against what it was sent.

RocketMQ uses the last report that was received and does not check it: a single connection that
reports 2^50 counts as a replica of everything that will ever be put.
"""

from cqstore.replication.epoch_wire import is_slave_handshake
from cqstore.replication.errors import WireError
from cqstore.replication.wire import REPORT

_LOWER = "the slave reported a lower phy offset than before"


class Reports:
    """Parses the bytes of one slave, in pieces of any size; keeps at most a partial report."""

    def __init__(self) -> None:
        self._torn = b""

    @property
    def is_torn(self) -> bool:
        """Return whether a partial report was received."""
        return bool(self._torn)

    def feed(self, data: bytes, last: int) -> list[int]:
        """Return the phy offsets in ``data``, in order; ``last`` is the previous one, -1: none.

        Raises:
            WireError: a phy offset decreases or is negative, or the slave is under a controller.
        """
        data = self._torn + data
        if last < 0 and is_slave_handshake(data):
            raise WireError(
                "this is a slave under a controller (cqstore follow --controller), and there is no"
                " controller here"
            )
        whole = len(data) - len(data) % REPORT.size
        self._torn = data[whole:]
        found = [phy_offset for (phy_offset,) in REPORT.struct.iter_unpack(data[:whole])]
        for phy_offset in found:
            if phy_offset < max(last, 0):
                raise WireError(
                    _LOWER if last >= 0 else "the slave requested an invalid phy offset",
                    expected=f"{max(last, 0)} or more", got=phy_offset,
                )  # fmt: skip
            last = phy_offset
        return found


def check_sent(phy_offset: int, sent: int) -> None:
    """Refuse an acknowledgement of bytes that were not sent.

    Raises:
        WireError: ``phy_offset`` is after the last sent byte.
    """
    if phy_offset > sent:
        raise WireError(
            "the slave acknowledged bytes that were not sent",
            expected=f"at most {sent}",
            got=phy_offset,
        )
