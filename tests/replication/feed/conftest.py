"""A master with a log of several files, and its bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.followers import Followers
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip
QUICK = FeedSettings(ha_send_heartbeat_interval=30, ha_transfer_batch_size=300)


def log_in(root: Path) -> bytes:
    """Return the bytes of the log's files, as they lie."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


@dataclass
class Master:
    """A store that is fed."""

    store: MessageStore
    feeder: Feeder
    root: Path
    reported: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.feeder.port

    @property
    def end(self) -> int:
        return self.store.max_phy_offset()

    @property
    def log(self) -> bytes:
        return log_in(self.root)[: self.end]

    def put(self, count: int, size: int = 150) -> None:
        for number in range(count):
            assert self.store.put_message(Message("t", b"x" * size, number % 2)).ok


@contextmanager
def leading(
    root: Path,
    config: StoreConfig = CONFIG,
    settings: FeedSettings = QUICK,
    count: int = 0,
    **options: object,
) -> Iterator[Master]:
    """A store in ``root`` with ``count`` messages, as it was opened to be fed, and its feeder."""
    followers, reported = Followers(), list[str]()
    replicas = followers if config.replica_promises else None
    with MessageStore.open(root, config, replicas=replicas, housekeeping=False) as store:
        feeder = Feeder(store, followers, settings=settings, on_event=reported.append, **options)  # type: ignore[arg-type]
        with feeding(feeder):
            master = Master(store, feeder, root, reported)
            master.put(count)
            yield master


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    with leading(tmp_path / "master", count=60) as master:
        yield master
