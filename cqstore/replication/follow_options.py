"""The options of ``cqstore follow``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import bounded, java_long

Master = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="Address of the master (haListenPort).")
]
Base = Annotated[
    Path | None,
    typer.Option(
        "--base", metavar="PATH", help="Copy of the master's commitlog or store to start from."
    ),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="HOST:PORT",
        help="Address (listenPort) of the same master. Also replicate topics, groups and offsets"
        " to DIR/config, and delete topics that the master has deleted.",
    ),
]
MetadataInterval = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.1,
        callback=bounded,
        help="Time between two updates of topics, groups and offsets. Needs --broker. Default: 10.",
    ),
]
AcceptLowerOffsets = Annotated[
    bool,
    typer.Option(
        "--accept-lower-offsets",
        help="Accept consumer offsets that are lower at the master. Needs --broker.",
    ),
]
UntilQuiet = Annotated[
    bool, typer.Option("--until-quiet", help="Exit when the master has nothing more to send.")
]
QuietTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded,
        help="Give up after this time without getting closer to the master's end. Needs"
        " --until-quiet. Default: 600.",
    ),
]  # fmt: skip
UntilOffset = Annotated[
    int | None,
    typer.Option(
        "--until",
        metavar="N",
        min=0,
        callback=java_long,
        help="Exit when the log of DIR ends at or after this phy offset.",
    ),
]
VerifyTail = Annotated[
    int,
    typer.Option(
        metavar="BYTES",
        min=1,
        callback=java_long,
        help="Size of the end of DIR's log to compare on each connection.",
    ),
]
Controller = Annotated[
    bool,
    typer.Option("--controller", help="Follow a master under a controller. Needs --broker-id."),
]
BrokerId = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        callback=java_long,
        help="Broker id to use, one that no broker of the master's set has. Needs --controller.",
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        help="Cut records that the master does not have, and keep a copy. Needs --controller.",
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        metavar="PEM", help="Connect over TLS, with this CA for the certificate of cqstore feed."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="Client certificate with its key. Needs --tls-ca."),
]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded, help="Time between two progress lines."
    ),
]
