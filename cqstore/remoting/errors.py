"""The error of bytes that are not a protocol of RocketMQ."""

from cqstore.store.errors import CorruptionError


class WireError(CorruptionError):
    """Received bytes are not a frame of the replication wire, or not a remoting command."""
