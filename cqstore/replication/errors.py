"""Errors of replication: bytes that no master sends, logs that have parted, refused questions."""

from cqstore.store.errors import CorruptionError, StoreError


class WireError(CorruptionError):
    """What came over a connection is no frame of the replication wire, or no remoting command."""


class DivergedError(CorruptionError):
    """What the master has does not continue this log; nothing of it was appended."""


class BeyondEpochError(DivergedError):
    """This log goes on behind ``phy_offset``, up to which it is the master's by their epochs."""


class OutsideLogError(StoreError):
    """A follower wants bytes that the master's log does not have."""


class BrokerError(StoreError):
    """A broker refuses a question, or its answer cannot be used; what is here stays as it is."""

    code: int = 0
    """What it answered; 0: success, or nothing."""
