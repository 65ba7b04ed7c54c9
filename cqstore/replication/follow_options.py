"""The options of ``cqstore follow``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import bounded, java_long

Master = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Replication port of the master.")]
Base = Annotated[
    Path | None,
    typer.Option("--base", metavar="PATH", help="Copy of the master's log to begin with."),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="HOST:PORT",
        help="listenPort of the same master: topics, groups and offsets follow too.",
    ),
]
MetadataInterval = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded, help="With --broker: between two rounds; 10."
    ),
]
AcceptLowerOffsets = Annotated[
    bool,
    typer.Option(
        "--accept-lower-offsets", help="With --broker: take offsets that are lower there."
    ),
]
UntilQuiet = Annotated[
    bool, typer.Option("--until-quiet", help="End when the master has nothing more to send.")
]
QuietTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded,
        help="With --until-quiet: give up, with exit code 1, after coming no nearer for so long;"
        " 600.",
    ),
]  # fmt: skip
UntilOffset = Annotated[
    int | None,
    typer.Option(
        "--until",
        metavar="N",
        min=0,
        callback=java_long,
        help="End when the log here ends at N or behind.",
    ),
]
VerifyTail = Annotated[
    int,
    typer.Option(
        metavar="BYTES",
        min=1,
        callback=java_long,
        help="Of this log's end to compare when connecting.",
    ),
]
Controller = Annotated[
    bool, typer.Option("--controller", help="The master is under a controller; needs --broker-id.")
]
BrokerId = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        callback=java_long,
        help="With --controller: the broker id that the master sees; of no broker of its set.",
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate", help="With --controller: cut what the master does not have, and keep it."
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        metavar="PEM", help="The CA that signed the master's certificate (cqstore feed's)."
    ),
]
TlsCert = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Certificate and key to show to it.")
]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded, help="Between two lines of how far it is."
    ),
]
