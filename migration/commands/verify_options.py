"""The options of ``cqstore migrate verify``."""

from typing import Annotated

import typer

Deep = Annotated[bool, typer.Option("--deep", help="Also decode every record and check it.")]
WithClients = Annotated[
    bool,
    typer.Option(
        "--with-clients",
        help="Also serve both on free ports of this machine, read all queues of both over the"
        " remoting protocol, and compare all responses.",
    ),
]
OwnClient = Annotated[
    str | None,
    typer.Option(
        "--client-command",
        metavar="COMMAND",
        help="With --with-clients: also run COMMAND, such as your own consumer, once for each."
        " {address} and the variable NAMESRV_ADDR are the name server's address. The printed"
        " lines are compared, in any order.",
    ),
]
Schema = Annotated[bool, typer.Option("--schema", help="Only print the JSON schema of the report.")]
