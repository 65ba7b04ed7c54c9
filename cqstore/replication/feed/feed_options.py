"""The options of ``cqstore feed``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import bounded

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where followers come; port 0: any. Else haListenPort, for this machine alone.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="NET", help="A network that may follow, as 10.0.0.0/24; may be repeated."),
]
MaxConnections = Annotated[
    int, typer.Option(metavar="N", min=1, help="At once; further ones are closed.")
]
TlsCert = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="Certificate to show (RocketMQ's slaves speak no TLS)."),
]
TlsKey = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Its key, if it is in another file.")
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="The CA that signed the followers' certificates."),
]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded, help="Between two lines about the followers."
    ),
]
Slave = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="listenPort of a slave broker of RocketMQ's that is to follow; may be repeated.",
    ),
]
