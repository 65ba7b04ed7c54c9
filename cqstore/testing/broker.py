"""running_broker: a writable server with a store of its own, in a thread of this process."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cqstore.embedded.log_message import LogMessage, log_message
from cqstore.serve.store_writer import WriteSettings
from cqstore.serve.writable_server import HOST, serving_writable
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.topic_reader import read_topic
from cqstore.store.settings.config import StoreConfig


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that clients can use."""

    store: MessageStore
    """The open store: what clients have sent can be read here at once."""
    port: int

    @property
    def address(self) -> str:
        """Return ``HOST:PORT``, the name server for clients; it is the broker, too."""
        return f"{HOST}:{self.port}"

    def messages(self, topic: str) -> list[LogMessage]:
        """Return all messages of a topic, by their store times.

        Raises:
            StoreError: a queue cannot be read.
        """
        return [log_message(topic, each) for each in read_topic(self.store, topic)]


def small_config() -> StoreConfig:
    """Return the settings of a temporary store: small files, and delay levels are delivered."""
    return StoreConfig(
        mapped_file_size_commit_log=16 << 20,
        mapped_file_size_consume_queue=20 * 10_000,
        max_hash_slot_num=10_000,
        max_index_num=40_000,
        rocksdb_memory_bytes=32 << 20,
        enable_schedule_message_service=True,
    )


@contextmanager
def running_broker(
    *,
    backend: str = "file",
    root: Path | str | None = None,
    config: StoreConfig | None = None,
    settings: WriteSettings | None = None,
    port: int = 0,
) -> Iterator[RunningBroker]:
    """Run a broker on 127.0.0.1 while the block runs.

    At the end the clients are disconnected, the thread and its port are gone, and a temporary store
    is removed.

    Args:
        backend: backend of a new store's queues: ``file`` or ``rocksdb``.
        root: folder of the store, which stays afterwards; default: a temporary one.
        config: settings of the store; default: those of ``small_config``.
        settings: which topics clients may create; default: a thousand of any name.
        port: the port; default: a free one.

    Raises:
        StoreError: the store cannot be opened, or the port is in use.
    """
    with ExitStack() as ended:
        if root is None:
            root = ended.enter_context(TemporaryDirectory(prefix="cqstore-broker-"))
        used = small_config() if config is None else config
        store = ended.enter_context(MessageStore.open(root, used, backend=backend))
        server = ended.enter_context(serving_writable(store, settings, port))
        yield RunningBroker(store, server.ports[0])
