"""Reports: what a slave says, checked against what it was sent.

RocketMQ looks at the last of the reports that have come and believes whatever it says: one
connection that writes 2^50 is a replica of all that will ever be put.
"""

from cqstore.replication.epoch_wire import is_slave_handshake
from cqstore.replication.errors import WireError
from cqstore.replication.wire import REPORT

_LOWER = "the slave reported a lower phy offset than before"


class Reports:
    """Takes what one slave sends, cut anywhere; keeps at most a part of a report."""

    def __init__(self) -> None:
        self._torn = b""

    @property
    def is_torn(self) -> bool:
        """Return whether a part of a report has come."""
        return bool(self._torn)

    def feed(self, data: bytes, last: int) -> list[int]:
        """Return the phy offsets that ``data`` brings, in order; ``last`` came before, -1: none.

        Raises:
            WireError: one goes back, or lies before every log; or it is a slave under a controller.
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
    """Refuse an acknowledgement of what was not sent.

    Raises:
        WireError: it is one.
    """
    if phy_offset > sent:
        raise WireError(
            "the slave acknowledged bytes that were not sent",
            expected=f"at most {sent}",
            got=phy_offset,
        )
