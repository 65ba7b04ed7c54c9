"""Options of the verbs that bring a broker's tables into another form or folder."""

from enum import StrEnum
from typing import Annotated

import typer


class AcceptedLoss(StrEnum):
    """Data of a broker that a move may leave behind if it cannot be converted."""

    FORBIDDEN = "forbidden"
    """What groups may not do; version 2 of the metadata keeps none of it."""
    PULL_OFFSETS = "pull-offsets"
    """Of consumers that pull by themselves; version 2 alone keeps them."""
    UNKNOWN_FIELDS = "unknown-fields"
    """Fields of JSON files that no release is known to write."""
    ROCKSDBSTORE = "rocksdbstore"
    """Timer messages, half messages and the index that a broker keeps in RocksDB."""
    KV_STORE = "kvStore"
    """What POP consumers have in hand."""
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
