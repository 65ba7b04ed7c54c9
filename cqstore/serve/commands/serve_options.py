"""The options of ``cqstore serve``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.path_marks import OutputPath

Listen = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on, as name server and as broker; port 0 picks a free port.",
    ),
]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="HOST:PORT",
        help="Also listen on the address of the broker that wrote the store: clients send a"
        " request by message ID to the address inside the ID. The host needs that address. May be"
        " repeated.",
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the broker in routes. Default: the address to which the client has"
        " connected.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NET",
        help="Network that may connect, such as 10.0.0.0/24; may be repeated. Default: all, if"
        " --listen is not a loopback address.",
    ),
]
OffsetsFile = Annotated[
    Path | None,
    typer.Option(
        "--offsets",
        metavar="FILE",
        help="File for the consumer offsets that clients commit, created if it does not exist."
        " Default: memory only.",
    ),
    OutputPath(),
]
BrokerName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of the broker. Default: brokerName of --config, or cqstore."
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the cluster. Default: brokerClusterName of --config, or DefaultCluster.",
    ),
]
Writable = Annotated[
    bool,
    typer.Option(
        "--writable",
        help="Accept messages and consumer offsets, and store them in DIR. For tests: there is no"
        " replication and no access control.",
    ),
]
MaxNewTopics = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Maximum number of topics that clients create by sending messages or joining groups."
        " Default: 1000.",
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Maximum number of connections; from one IP address at most half of them.",
    ),
]
TlsCert = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Certificate of this server; enables TLS.")
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="Accept only clients with a certificate signed by this CA."),
]
UsersFile = Annotated[
    Path | None,
    typer.Option(
        "--users",
        metavar="FILE",
        help="File with a line NAME:SECRET for each user; requests without a user's signature"
        " (RocketMQ's ACL) are refused. Default: signatures are ignored.",
    ),
]
AccessLog = Annotated[
    bool, typer.Option("--access-log", help="Print a line for each request to standard error.")
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Also serve metrics for Prometheus at this address, over HTTP without access control."
        " Needs the extra 'metrics'.",
    ),
]
