"""A server of ``cqstore serve`` in the loop of a test, and its clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cqstore.broker.one_form import find_one_form
from cqstore.serve.group_offsets import GroupOffsets
from cqstore.serve.limits import ServeLimits
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.served_store import ServedStore
from cqstore.serve.server import Server
from cqstore.store.paths import StorePaths
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import Client


class Serving:
    """A server in this loop, and its clients."""

    def __init__(self, server: Server, broker: ServedBroker) -> None:
        self.server, self.broker = server, broker
        self.events: list[str] = []
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.server.ports[0]

    async def client(self) -> Client:
        """Connect another client."""
        made = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(made)
        return made


@asynccontextmanager
async def serving(
    store: Path | MessageStore, *, limits: ServeLimits | None = None, offsets: Path | None = None,
    name: str = "b", **changes: Any,
) -> AsyncIterator[Serving]:  # fmt: skip
    """Serve a folder read-only, or an open store of this process."""
    events: list[str] = []
    if isinstance(store, Path):
        opened = partial(MessageStore.open, store, read_only=True)
        served, root = ServedStore(opened(), opened), store
    else:
        served, root = ServedStore(store), store.root
    broker = ServedBroker(served, GroupOffsets(offsets), name, "c")
    server = Server(
        broker, [("127.0.0.1", 0)], limits=limits or ServeLimits(), on_event=events.append,
        read_metadata=partial(find_one_form, StorePaths(root)), **changes,
    )  # fmt: skip
    try:
        async with running(server, broker, events) as found:
            yield found
    finally:
        if isinstance(store, Path):
            served.close()


@asynccontextmanager
async def running(
    server: Server, broker: ServedBroker, events: list[str]
) -> AsyncIterator[Serving]:
    """Run a server that adds its events to ``events``; close its clients at the end."""
    async with server:
        found = Serving(server, broker)
        found.events = events
        try:
            yield found
        finally:
            for client in found.clients:
                client.close()
            await asyncio.sleep(0)  # their sockets are closed by the loop


def with_limits(**changes: Any) -> ServeLimits:
    return replace(ServeLimits(), **changes)
