"""The options of ``cqstore feed``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import bounded

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on; port 0 picks a free port. Default: haListenPort on 127.0.0.1,"
        " or listenPort + 1 if it is not set.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NET", help="Network that may connect, such as 10.0.0.0/24; may be repeated."
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Maximum number of connections; further ones are closed."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        metavar="PEM", help="Certificate of this feed; enables TLS, which RocketMQ slaves lack."
    ),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="Accept only followers with a certificate signed by this CA."),
]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded, help="Time between two progress lines."
    ),
]
Slave = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address (listenPort) of a RocketMQ slave broker to connect; may be repeated.",
    ),
]
