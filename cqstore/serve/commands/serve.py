"""The command ``cqstore serve``."""

import asyncio
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.one_form import BrokerForm, find_one_form, read_one_form
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    note,
    open_store,
    read_config,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.replication.address import address, networks
from cqstore.replication.endpoint import endpoint
from cqstore.replication.listening import LOOPBACK, Network, check_listen, is_loopback
from cqstore.replication.signals import ended_event
from cqstore.replication.tls_options import TlsKey, listening_context
from cqstore.serve.commands.metrics_export import MetricsExport, metrics_export
from cqstore.serve.commands.serve_options import (
    AccessLog,
    Advertise,
    Allow,
    As,
    BrokerName,
    ClusterName,
    Listen,
    MaxConnections,
    MetricsAddress,
    OffsetsFile,
    TlsCert,
    TlsClientCa,
    UsersFile,
)
from cqstore.serve.group_offsets import GroupOffsets
from cqstore.serve.limits import ServeLimits
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.served_store import ServedStore
from cqstore.serve.server import Server
from cqstore.serve.users import Users
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.store_layout import with_log_folder
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.config import StoreConfig

_LISTEN = "127.0.0.1:9876"
_ALL = ["0.0.0.0/0", "::/0"]
_NAME, _CLUSTER = "cqstore", "DefaultCluster"


def serve(
    root: Dir,
    *,
    listen: Listen = _LISTEN,
    as_addresses: As = None,
    advertise: Advertise = None,
    allow: Allow = None,
    offsets: OffsetsFile = None,
    broker_name: BrokerName = None,
    cluster_name: ClusterName = None,
    max_connections: MaxConnections = 1024,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    users: UsersFile = None,
    access_log: AccessLog = False,
    metrics: MetricsAddress = None,
    form: BrokerForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Serve the store in DIR, read-only, to RocketMQ consumers, mqadmin and the dashboard.

    Clients use the address as their name server; it answers as the broker, too. They need the
    remoting protocol, RocketMQ 4.9 or later. Requests that would change a broker are refused, and
    no file of the store is changed. A store that another process writes is followed.

    Examples:
        cqstore serve DIR
        cqstore serve DIR --listen 0.0.0.0:9876 --allow 10.0.0.0/24 --offsets offsets.json
    """
    places = _places(listen, as_addresses or [])
    known = None if users is None else Users.read(users)
    allowed = _allowed(places, allow or [], is_open=known is None)
    advertised = endpoint(*address(advertise, "--advertise")) if advertise else ""
    tls = listening_context(tls_cert, tls_key, tls_client_ca)
    names = _names(config, broker_name, cluster_name)
    export = metrics_export(root, metrics)
    with closing(_open(root, read_config(config, root), backend, commit_log)) as served:
        server = Server(
            ServedBroker(served, GroupOffsets(offsets), *names, advertised), places,
            allow=allowed, limits=_limits(max_connections), tls=tls, users=known, on_event=note,
            read_metadata=partial(_metadata, root, form, config),
            on_access=note if access_log else None,
        )  # fmt: skip
        asyncio.run(_run(server, [host for host, _ in places], export))
    output(kind).rows(each._asdict() for each in server.counts.snapshot())


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


def _names(config: Path | None, broker: str | None, cluster: str | None) -> tuple[str, str]:
    """Return the names of broker and cluster: as given, or those of the configuration file."""
    found = BrokerConf.read(config).values if config is not None else {}
    return (
        broker or found.get("brokerName") or _NAME,
        cluster or found.get("brokerClusterName") or _CLUSTER,
    )


def _limits(max_connections: int) -> ServeLimits:
    per_address = max(max_connections // 2, 1)
    return ServeLimits(connections=max_connections, connections_per_address=per_address)


def _open(
    root: Path, settings: StoreConfig, backend: str | None, commit_log: Path | None
) -> ServedStore:
    """Open the store read-only, so that it can be opened again."""
    store = open_store(root, settings, backend, commit_log)
    options = OpenOptions(read_only=True, backend=backend, housekeeping=False)
    used = with_log_folder(settings, commit_log)
    return ServedStore(store, partial(open_served, MessageStore, root, used, options))


async def _run(server: Server, hosts: list[str], export: MetricsExport) -> None:
    """Serve until SIGINT or SIGTERM arrives."""
    ended = ended_event()
    async with server:
        places = ", ".join(map(endpoint, hosts, server.ports))
        note(f"{places}: serving as name server and broker")
        with export(server):
            await ended.wait()
        note(f"ending: {server.connected} connections were accepted")


def _allowed(places: list[tuple[str, int]], texts: list[str], *, is_open: bool) -> list[Network]:
    """Return the networks that may connect; warn if other machines may read all messages."""
    found = networks(texts)
    open_to = [host for host, _ in places if not is_loopback(host)]
    if not open_to:
        return found or list(LOOPBACK)
    if is_open and not found:
        note(
            f"other machines can connect to {', '.join(open_to)} and read all messages: there is"
            " no access control. Limit them with --allow"
        )
    return found or networks(_ALL)


def _metadata(root: Path, form: Form | None, config: Path | None) -> BrokerMetadata | None:
    """Return the tables of the store; ``None``: it has none, and ``form`` asks for none.

    Raises:
        StoreError: the form does not exist, or there are several and none is selected.
    """
    paths = StorePaths(root)
    if form is None:
        found = find_one_form(paths, form, config)
    else:
        found = read_one_form(paths, form, config)
    for fault in () if found is None else found.faults:
        _note_once(str(fault))
    return found


_note_once = cache(note)
