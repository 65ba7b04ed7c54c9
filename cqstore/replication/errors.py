"""Errors of replication: invalid frames, logs that diverge, refused requests."""

from cqstore.remoting.errors import WireError
from cqstore.store.errors import CorruptionError, StoreError

__all__ = ["BeyondEpochError", "BrokerError", "DivergedError", "OutsideLogError", "WireError"]


class DivergedError(CorruptionError):
    """The master's log does not continue this log; the bytes that differ were not appended."""


class BeyondEpochError(DivergedError):
    """This log continues after ``phy_offset``, up to which both logs agree by their epochs."""


class OutsideLogError(StoreError):
    """A follower requests bytes that the master's log does not have."""


class BrokerError(StoreError):
    """A broker refuses a request, or its response is invalid; local tables are unchanged."""

    code: int = 0
    """The broker's response code; 0: success, or no response."""
