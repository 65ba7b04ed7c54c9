"""Options of commands that run the operator's own client."""

from typing import Annotated

import typer

ClientTimeout = Annotated[
    float,
    typer.Option(
        "--client-timeout",
        metavar="SECONDS",
        min=1,
        help="Maximum time of each run of --client-command.",
    ),
]
