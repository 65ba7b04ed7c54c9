"""Timeouts and progress of a follower."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals and timeouts of a follower, in seconds; the defaults are RocketMQ's, if any."""

    connect: float = 5.0
    report: float = 5.0
    """Interval at which the last report is repeated (``haSendHeartbeatInterval``)."""
    housekeeping: float = 20.0
    """Time after which a connection is closed if neither the end of a frame nor ``ENOUGH_BYTES``
    were received (``haHousekeepingInterval``)."""
    first_retry: float = 0.2
    """Wait before the first reconnect; each further wait is twice as long."""
    last_retry: float = 5.0
    quiet: float = 2.0
    """Minimum time between two heartbeats that together show that the master has nothing more. One
    heartbeat is no evidence: a master that was suspended sends it before it checks for new bytes.
    Nor are several at once: flow control sends them in place of bytes for up to a second."""
    stopping: float = 15.0
    """Time for which a master that is shutting down may send only heartbeats: RocketMQ's master
    then reads nothing, and closes its connections three to nine seconds later."""
    last_file: float = 60.0
    """Time for which the master's last file surely remains: it has to be filled first."""


@dataclass(slots=True)
class FollowerProgress:
    """Progress of a follower: connected, verified, appended, reported."""

    end: int = 0
    """Phy offset of the end of the last record here."""
    reported: int = -1
    """Phy offset that was last reported to the master; -1: none."""
    connected: bool = False
    verified: bool = False
    """On the current or last connection, the master's bytes equal the end of this log."""
    caught_up: bool = False
    """This log has every byte of the master's, as of the last time that the master was quiet."""
    connections: int = 0
    """Number of connections that were made."""
    body_bytes: int = 0
    """Bytes of the log that were received, including those that were already here."""
    port: int = 0
    """Local port of the current or last connection; 0: there was none."""
    master_end: int = -1
    """End of the master's log when the broker was last queried; -1: not queried, or no response."""

    fault: str = ""
    """Why the last connection ended or failed; empty: no failure yet."""
    metadata_time: float = 0.0
    """Seconds since the epoch when all metadata tables were last complete; 0: never."""
    metadata_fault: str = ""
    """Why the last attempt to replicate the metadata failed; empty: it did not."""

    @property
    def lag_bytes(self) -> int | None:
        """Return how many bytes of the master's log are not here; ``None``: unknown.

        This is a minimum: the master's log may have grown since it was queried. A follower whose
        log is still empty does not receive all of the master's log.
        """
        if self.caught_up:
            return 0
        return max(self.master_end - self.end, 0) if self.master_end >= 0 and self.end else None


Until = Callable[[FollowerProgress], bool]
"""Whether a follower may stop; called whenever something was received."""
