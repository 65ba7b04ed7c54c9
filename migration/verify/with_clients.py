"""Serves two stores side by side, and lets clients read both over the remoting protocol.

The proof that operators ask for: what their consumers receive of the new queues is what they
receive of the old ones. Servers and the own client run in one event loop of this process.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cqstore.broker.one_form import find_one_form
from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.verify.client_command import run_client
from cqstore.migration.verify.client_reads import PULL_BYTES, PULL_MESSAGES, ClientReads
from cqstore.migration.verify.clients_report import ClientsReport
from cqstore.replication.synchronize.broker_client import BrokerClient
from cqstore.serve.client_command import ClientCommand, command_words
from cqstore.serve.group_offsets import GroupOffsets
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.served_store import ServedStore
from cqstore.serve.server import Server
from cqstore.store.errors import RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.progress import noop
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions

_HOST = "127.0.0.1"
Progress = Callable[[int, int], object]
"""Called with the number of queues that were read, and of all queues."""


class Clients(NamedTuple):
    """How clients are to read two stores."""

    root: Path
    """Root of the store with the broker's tables."""
    config: Path | None = None
    """Configuration file of the broker, which may select the form of its tables."""
    command: ClientCommand | None = None
    """The operator's own client, run once for each store."""
    progress: Progress = noop


def compare_by_clients(
    clients: Clients,
    source: QueuePlace,
    target: QueuePlace,
    complete_to: int,
    topics: str | None,
) -> ClientsReport:
    """Serve both places, read all queues of both, and compare all responses.

    ``complete_to``: phy offset up to which both have all messages; ``topics``: selection of the
    topics to read, ``None``: all.

    Raises:
        RefusedStoreError: the source has no queues, only a commit log.
        StoreConfigError: the command is invalid.
        StoreError: a store cannot be opened or served, or the command cannot be started.
    """
    if source.backend == LOG:
        raise RefusedStoreError(
            "the queues were built from the commit log: there is no old store that clients could"
            " read. Run it without --with-clients",
            path=source.root,
        )
    if clients.command is not None:
        command_words(clients.command.command)
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(_open(each))) for each in (source, target)]
        return asyncio.run(_compare(clients, stores, complete_to, topics))


def _open(place: QueuePlace) -> MessageStore:
    """Open the queues of a place read-only, with the commit log of the source."""
    config = place.config
    folders = config.multi_path_splitter.join(map(str, place.log_folders))
    update = {
        "store_path_commit_log": folders,
        "max_transfer_count_on_message_in_memory": PULL_MESSAGES,
        "max_transfer_count_on_message_in_disk": PULL_MESSAGES,
        "max_transfer_bytes_on_message_in_memory": PULL_BYTES,
        "max_transfer_bytes_on_message_in_disk": PULL_BYTES,
    }
    options = OpenOptions(
        read_only=True, backend=place.backend, housekeeping=False, refuse_lost_units=False
    )
    return open_served(MessageStore, place.root, config.model_copy(update=update), options)


async def _compare(
    clients: Clients, stores: list[MessageStore], complete_to: int, topics: str | None
) -> ClientsReport:
    async with AsyncExitStack() as running:
        servers = [await running.enter_async_context(_server(store, clients)) for store in stores]
        ports = [each.ports[0] for each in servers]
        peers = [await running.enter_async_context(BrokerClient(_HOST, port)) for port in ports]
        reads = ClientReads(peers[0], peers[1], complete_to)
        keys = _queues(stores, topics)
        try:
            for number, key in enumerate(keys):
                clients.progress(number, len(keys))
                await reads.read(key)
        except OSError as exc:
            raise StoreIOError(f"cannot read a served store: {exc}") from exc
        clients.progress(len(keys), len(keys))
        if clients.command is not None:
            with TemporaryDirectory() as folder:
                source, target = (f"{_HOST}:{port}" for port in ports)
                run = await run_client(clients.command, source, target, Path(folder))
                reads.report.command = run
        return reads.report


def _server(store: MessageStore, clients: Clients) -> Server:
    """Return a server of a store, with the tables of the broker."""
    return Server(
        ServedBroker(ServedStore(store), GroupOffsets()), [(_HOST, 0)],
        read_metadata=partial(find_one_form, StorePaths(clients.root), config=clients.config),
    )  # fmt: skip


def _queues(stores: Iterable[MessageStore], topics: str | None) -> list[QueueKey]:
    """Return the queues of both stores, sorted."""
    found = {key for store in stores for key in store.queue_keys()}
    return sorted(key for key in found if selects(topics, key.topic))
