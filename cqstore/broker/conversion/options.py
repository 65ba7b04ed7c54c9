"""Options of the verbs that convert or move a broker's tables."""

from enum import StrEnum
from typing import Annotated

import typer


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


AcceptOlderTables = Annotated[
    bool,
    typer.Option(
        "--accept-older-tables",
        help="Moving to files: keep the older JSON tables in DIR/config and convert nothing.",
    ),
]
WithoutOption = Annotated[
    list[AcceptedLoss] | None,
    typer.Option(
        "--without",
        metavar="TABLE",
        help=f"Data that may be left behind: {', '.join(AcceptedLoss)}. May be repeated.",
    ),
]
