"""How long a follower waits, and how far it is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """When a follower stops waiting, seconds; the defaults are RocketMQ's where it has one."""

    connect: float = 5.0
    report: float = 5.0
    """Report again after this time without anything new (``haSendHeartbeatInterval``)."""
    housekeeping: float = 20.0
    """Give a connection up that has brought neither the end of a frame nor ``ENOUGH_BYTES`` for so
    long (``haHousekeepingInterval``)."""
    first_retry: float = 0.2
    """Wait before the first new connection; each further one waits twice as long."""
    last_retry: float = 5.0
    quiet: float = 2.0
    """Between two heartbeats that say that there is nothing more. One says nothing: a master that
    was stopped sends it before it looks for new bytes. Nor do several at once: its flow control
    sends them in place of bytes for up to a second."""
    stopping: float = 15.0
    """For which a master that is being stopped may send heartbeats alone, to everybody: RocketMQ's
    reads nothing from then on, and closes its connections three to nine seconds later."""
    last_file: float = 60.0
    """For which the master's last file surely stays in its log: it would have to fill it first."""


@dataclass(slots=True)
class FollowerProgress:
    """How far a follower is: connected, verified, appended, reported."""

    end: int = 0
    """Phy offset behind the last record here."""
    reported: int = -1
    """What was last reported to the master, -1: nothing."""
    connected: bool = False
    verified: bool = False
    """On this connection, or the last one, the master has sent what this log ended with."""
    caught_up: bool = False
    """The master has no byte that is not here, or had none when it last said so."""
    connections: int = 0
    """That were made."""
    body_bytes: int = 0
    """Of log that came, those among them that were here already."""
    port: int = 0
    """Of this end of the connection, or of the last one; 0: there was none."""
    master_end: int = -1
    """Where the master's log ended when it was last asked, -1: it was not, or did not say."""

    fault: str = ""
    """What ended the last connection that was lost, or why there was none; empty: nothing yet."""
    metadata_time: float = 0.0
    """When all tables of the master's had come last, seconds since the epoch; 0: never."""
    metadata_fault: str = ""
    """What was wrong with them the last time."""

    @property
    def lag_bytes(self) -> int | None:
        """Return how many bytes of the master's log are not here; ``None``: that is not known.

        At least so many: the master's log may have grown since it was asked. A follower that has
        nothing yet will not get all that the master has.
        """
        if self.caught_up:
            return 0
        return max(self.master_end - self.end, 0) if self.master_end >= 0 and self.end else None


Until = Callable[[FollowerProgress], bool]
"""Whether a follower has come far enough; asked whenever something came."""
