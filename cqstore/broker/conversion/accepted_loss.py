"""AcceptedLoss: what a conversion may leave behind."""

from enum import StrEnum


class AcceptedLoss(StrEnum):
    """Data of a broker that a move may leave behind if it cannot be converted."""

    FORBIDDEN = "forbidden"
    """Permissions denied to groups; version 2 of the metadata cannot store them."""
    PULL_OFFSETS = "pull-offsets"
    """Offsets of pull consumers; only version 2 stores them."""
    UNKNOWN_FIELDS = "unknown-fields"
    """Fields of JSON files that no known release writes."""
    ROCKSDBSTORE = "rocksdbstore"
    """Timer messages, half messages and the index that a broker keeps in RocksDB."""
    KV_STORE = "kvStore"
    """Messages that POP consumers have received but not acknowledged."""
    COMPACTION = "compaction"
    """Messages of compacted topics."""
