"""The option of the verbs that lead a broker away from RocksDB."""

from typing import Annotated

import typer

AcceptOlderTables = Annotated[
    bool,
    typer.Option(
        "--accept-older-tables",
        help="Go on though JSON tables in DIR/config are older than those in RocksDB.",
    ),
]
