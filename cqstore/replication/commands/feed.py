"""The command ``cqstore feed``."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import (
    Backend,
    ConfigFile,
    Dir,
    Format,
    about_end,
    bounded,
    note,
    read_config,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.replication.address import address, networks
from cqstore.replication.endpoint import endpoint
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.feeder import MAX_CONNECTIONS, Feeder
from cqstore.replication.feed.slave_brokers import SlaveBroker, ha_address
from cqstore.replication.listening import (
    LOOPBACK,
    Network,
    check_listen,
    is_loopback,
)
from cqstore.replication.signals import ended_event
from cqstore.replication.tls_options import TlsKey, listening_context
from cqstore.store.errors import StoreConfigError
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import StoreConfig

_HERE = "127.0.0.1"
_MAX_PORT = 65_535
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


def feed(
    root: Dir,
    *,
    listen: Listen = None,
    allow: Allow = None,
    max_connections: MaxConnections = MAX_CONNECTIONS,
    slave: Slave = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    interval: Interval = 10.0,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Serve the log of the store in DIR to RocketMQ slaves and cqstore follow.

    Opens the store read-write and recovers it. Appends and expires nothing. Runs until Ctrl-C or
    SIGTERM. Each follower gets every message. By default, only this machine can connect; to admit
    others, use --listen with --allow. --slave makes a RocketMQ slave broker connect to this feed.

    Examples:
        cqstore feed DIR
        cqstore feed DIR --listen 0.0.0.0:10912 --allow 10.0.0.0/24
    """
    given = read_config(config, root)
    resolve_layout(root, given, read_only=True)  # refuse to create a new store
    settings = FeedSettings.read(config)
    host, port = _place(listen, settings, config)
    allowed, slaves = _networks(host, allow or []), _slaves(slave or [], host, tls_cert)
    tls = listening_context(tls_cert, tls_key, tls_client_ca)
    check_listen(host, port)
    with _open(root, given, backend) as store:
        feeder = Feeder(
            store, host=host, port=port, allow=allowed, max_connections=max_connections,
            settings=settings, tls=tls, on_event=note,
        )  # fmt: skip
        asyncio.run(_serve(feeder, store, host, interval, slaves))
        facts = {
            "listened": endpoint(host, feeder.port), "begin": max(store.min_phy_offset(), 0),
            "end": store.max_phy_offset(), "connections": feeder.connections,
            "sentBytes": feeder.sent_bytes,
        }  # fmt: skip
    output(kind).record(facts)


def _place(listen: str | None, settings: FeedSettings, config: Path | None) -> tuple[str, int]:
    """Return the host and port to listen on.

    Raises:
        StoreConfigError: the settings contain no valid port.
    """
    if listen is not None:
        return address(listen, "--listen", any_port=True)
    if not 0 < settings.port <= _MAX_PORT:
        raise StoreConfigError(
            f"cannot listen on port {settings.port}: haListenPort={settings.ha_listen_port} means"
            f" listenPort={settings.listen_port} plus 1. Use --listen", path=config,
        )  # fmt: skip
    return _HERE, settings.port


def _open(root: Path, config: StoreConfig, backend: str | None) -> MessageStore:
    with progress("opening", about_end(root, config)) as tick:
        options = OpenOptions(backend=backend, housekeeping=False, progress=tick)
        return open_served(MessageStore, root, config, options)


async def _serve(
    feeder: Feeder, store: MessageStore, host: str, interval: float, slaves: list[SlaveBroker]
) -> None:
    """Feed followers and print their lag until SIGINT or SIGTERM arrives."""
    ended = ended_event()
    async with feeder, asyncio.TaskGroup() as group:
        log = components_of(store).log
        note(
            f"{endpoint(host, feeder.port)}: serving the log from {max(log.min_phy_offset(), 0)} to"
            f" {log.max_phy_offset()}"
        )
        leading = [group.create_task(each.lead(ha_address(host, feeder.port))) for each in slaves]
        printed = ""
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await ended.wait()
            line = _line(feeder, log.max_phy_offset())
            if line != printed:
                note(line)
            printed = line
        for task in leading:
            task.cancel()


def _line(feeder: Feeder, end: int) -> str:
    """Return one line with the number of followers and the lag of each."""
    lags = [
        f"{link.address} lags by {end - link.position} bytes"
        for link in feeder.followers.links()
        if link.position >= 0
    ]
    return f"{len(lags)} connected: {', '.join(sorted(lags)[:8])}" if lags else "no connections"


def _networks(host: str, texts: list[str]) -> list[Network]:
    """Return the networks from which followers may connect.

    Raises:
        StoreConfigError: other machines can connect to ``host``, but no network is allowed.
        typer.BadParameter: a text is not a valid network.
    """
    found = networks(texts)
    if not found and not is_loopback(host):
        raise StoreConfigError(
            f"other machines can connect to {host}, and every follower receives all messages: name"
            " the allowed networks with --allow (0.0.0.0/0 and ::/0 allow all)"
        )
    return found or list(LOOPBACK)


def _slaves(texts: list[str], host: str, cert: Path | None) -> list[SlaveBroker]:
    """Return the slave brokers to direct to this feed.

    Raises:
        StoreConfigError: slave brokers cannot connect to ``host``.
        typer.BadParameter: a text is not a valid address, or the feed uses TLS.
    """
    if texts and cert is not None:
        raise typer.BadParameter(
            "--slave cannot be used with --tls-cert: RocketMQ slaves do not support TLS"
        )
    if texts:
        ha_address(host, 0)
    return [SlaveBroker(*address(text, "--slave"), note) for text in texts]
