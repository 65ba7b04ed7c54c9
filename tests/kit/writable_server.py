"""A writable server in the loop of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cqstore.serve.limits import ServeLimits
from cqstore.serve.server import Server
from cqstore.serve.store_writer import StoreWriter, WriteSettings
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_server import Serving, running


@asynccontextmanager
async def writing(
    store: MessageStore, *, settings: WriteSettings | None = None,
    limits: ServeLimits | None = None, **changes: Any,
) -> AsyncIterator[Serving]:  # fmt: skip
    """Serve an open store to clients that send."""
    writer = StoreWriter(store, settings)
    events: list[str] = []
    server = Server(
        broker := writer.broker("b", "c"), [("127.0.0.1", 0)],
        limits=writer.limits(limits or ServeLimits()), on_event=events.append,
        read_metadata=writer.metadata, writer=writer, **changes,
    )  # fmt: skip
    try:
        async with running(server, broker, events) as found:
            yield found
    finally:
        writer.close()
