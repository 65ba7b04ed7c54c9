"""Options of the verbs that convert or move a broker's tables."""

from typing import Annotated

import typer

from cqstore.broker.conversion.accepted_loss import AcceptedLoss

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
