"""``cqstore serve``: serve a store to RocketMQ's clients."""

import asyncio
import ssl
from pathlib import Path

import typer

from cqstore.broker.one_form import BrokerForm
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    New,
    note,
    refuse_beside,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.replication.address import address, networks
from cqstore.replication.endpoint import endpoint
from cqstore.replication.listening import LOOPBACK, Network, check_listen, is_loopback
from cqstore.replication.signals import ended_event
from cqstore.replication.tls_options import TlsKey, listening_context
from cqstore.serve.commands.metrics_export import MetricsExport, metrics_export
from cqstore.serve.commands.opened import OpenedBroker, StorePlace, opened_to_read, opened_to_write
from cqstore.serve.commands.serve_options import (
    AccessLog,
    Advertise,
    Allow,
    As,
    BrokerName,
    ClusterName,
    Listen,
    MaxConnections,
    MaxNewTopics,
    MetricsAddress,
    OffsetsFile,
    TlsCert,
    TlsClientCa,
    UsersFile,
    Writable,
)
from cqstore.serve.limits import ServeLimits
from cqstore.serve.served_broker import CLUSTER, NAME
from cqstore.serve.server import Server
from cqstore.serve.users import Users
from cqstore.store.settings.broker_conf import BrokerConf

_LISTEN = "127.0.0.1:9876"
_ALL = ["0.0.0.0/0", "::/0"]


def serve(
    root: Dir, *,
    listen: Listen = _LISTEN, as_addresses: As = None, advertise: Advertise = None,
    allow: Allow = None, offsets: OffsetsFile = None, broker_name: BrokerName = None,
    cluster_name: ClusterName = None, writable: Writable = False, new: New = False,
    max_new_topics: MaxNewTopics = None, max_connections: MaxConnections = 1024,
    tls_cert: TlsCert = None, tls_key: TlsKey = None, tls_client_ca: TlsClientCa = None,
    users: UsersFile = None, access_log: AccessLog = False, metrics: MetricsAddress = None,
    form: BrokerForm = None, config: ConfigFile = None, backend: Backend = None,
    commit_log: CommitLogFolder = None, kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Serve the store in DIR to RocketMQ's clients, mqadmin and the dashboard.

    Clients use the address as their name server; it answers as the broker, too. They need the
    remoting protocol, RocketMQ 4.9 or later. Without --writable, no file of the store is changed,
    and a store that another process writes is followed. With --writable, producers send messages
    and groups commit offsets: for tests.

    Examples:
        cqstore serve DIR
        cqstore serve DIR --listen 0.0.0.0:9876 --allow 10.0.0.0/24 --offsets offsets.json
        cqstore serve DIR --writable --new
    """
    _check_writable(max_new_topics, writable=writable, new=new, offsets=offsets, form=form)
    places = _places(listen, as_addresses or [])
    known = None if users is None else Users.read(users)
    allowed = _allowed(places, allow or [], is_open=known is None, writable=writable)
    tls = listening_context(tls_cert, tls_key, tls_client_ca)
    names = _names(config, broker_name, cluster_name)
    export = metrics_export(root, metrics)
    place = StorePlace(root, config, backend, commit_log, names, _advertised(advertise))
    limits = _limits(max_connections)
    reading = opened_to_read(place, form, offsets, limits)
    writing = opened_to_write(place, max_new_topics, limits, new=new)
    with writing if writable else reading as opened:
        server = _server(opened, places, allowed, tls, known, logs_access=access_log)
        asyncio.run(_run(server, [host for host, _ in places], export))
    output(kind).rows(each._asdict() for each in server.counts.snapshot())


def _server(
    opened: OpenedBroker,
    places: list[tuple[str, int]],
    allowed: list[Network],
    tls: ssl.SSLContext | None,
    users: Users | None,
    *,
    logs_access: bool,
) -> Server:
    return Server(
        opened.broker, places, allow=allowed, limits=opened.limits, tls=tls, users=users,
        on_event=note, read_metadata=opened.read_metadata,
        on_access=note if logs_access else None, writer=opened.writer,
    )  # fmt: skip


def _check_writable(
    max_new_topics: int | None, *, writable: bool, new: bool, **others: object
) -> None:
    """Refuse options that ``--writable`` does not have, or that need it.

    Raises:
        typer.BadParameter: there is one.
    """
    if writable:
        refuse_beside("--writable", **others)
    elif new or max_new_topics is not None:
        raise typer.BadParameter("--new and --max-new-topics require --writable")


def _places(listen: str, others: list[str]) -> list[tuple[str, int]]:
    """Return the addresses to listen on; all of them are available.

    Raises:
        StoreIOError: cannot listen on one.
        typer.BadParameter: one is invalid.
    """
    places = [
        address(listen, "--listen", any_port=True), *(address(each, "--as") for each in others),
    ]  # fmt: skip
    for each in places:
        check_listen(*each)
    return places


def _advertised(text: str | None) -> str:
    """Return the address in routes; empty: the one to which a client has connected."""
    return endpoint(*address(text, "--advertise")) if text else ""


def _names(config: Path | None, broker: str | None, cluster: str | None) -> tuple[str, str]:
    """Return the names of broker and cluster: as given, or those of the configuration file."""
    found = BrokerConf.read(config).values if config is not None else {}
    return (
        broker or found.get("brokerName") or NAME,
        cluster or found.get("brokerClusterName") or CLUSTER,
    )


def _limits(max_connections: int) -> ServeLimits:
    per_address = max(max_connections // 2, 1)
    return ServeLimits(connections=max_connections, connections_per_address=per_address)


async def _run(server: Server, hosts: list[str], export: MetricsExport) -> None:
    """Serve until SIGINT or SIGTERM arrives."""
    ended = ended_event()
    async with server:
        places = ", ".join(map(endpoint, hosts, server.ports))
        note(f"{places}: serving as name server and broker")
        with export(server):
            await ended.wait()
        note(f"ending: {server.connected} connections were accepted")


def _allowed(
    places: list[tuple[str, int]], texts: list[str], *, is_open: bool, writable: bool
) -> list[Network]:
    """Return the networks that may connect; warn if other machines are among them.

    ``is_open``: requests need no signature.
    """
    found = networks(texts)
    open_to = [host for host, _ in places if not is_loopback(host)]
    if not open_to:
        return found or list(LOOPBACK)
    if is_open and not found:
        note(
            f"other machines can connect to {', '.join(open_to)} and read all messages"
            f"{' and send others' if writable else ''}: there is no access control. Limit them"
            " with --allow"
        )
    return found or networks(_ALL)
