"""A writable server for an open store of this process, in a thread of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from cqstore.serve.limits import ServeLimits
from cqstore.serve.server import Server
from cqstore.serve.server_thread import ServerThread
from cqstore.serve.store_writer import StoreWriter, WriteSettings
from cqstore.store.service.message_store import MessageStore

HOST = "127.0.0.1"


@contextmanager
def serving_writable(
    store: MessageStore, settings: WriteSettings | None = None, port: int = 0
) -> Iterator[Server]:
    """Serve ``store`` to clients at ``HOST`` while the block runs; ``port`` 0: a free one.

    At the end the clients are disconnected, and the thread and its port are gone. The caller closes
    the store.

    Raises:
        StoreError: a table of the store cannot be read, or the port is in use.
    """
    writer = StoreWriter(store, settings)
    try:
        server = Server(
            writer.broker(), [(HOST, port)], limits=writer.limits(ServeLimits()),
            read_metadata=writer.metadata, writer=writer,
        )  # fmt: skip
        with ServerThread(server):
            yield server
    finally:
        writer.close()
