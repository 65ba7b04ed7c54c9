"""Errors of replication: bytes that no master sends, and logs that have parted."""

from store.errors import CorruptionError


class WireError(CorruptionError):
    """What came over a connection is no frame of the replication wire."""


class DivergedError(CorruptionError):
    """What the master has does not continue this log; nothing of it was appended."""
