"""A store with a log of several files, to be recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400,
    message_index_enable=False,
)  # fmt: skip


def put(store: MessageStore, count: int, first: int = 0) -> list[tuple[str, int, int, str | None]]:
    """Put messages; return topic, queue, size and tag of each."""
    asked: list[tuple[str, int, int, str | None]] = []
    for number in range(first, first + count):
        tag = "paid" if number % 3 else None
        properties = {} if tag is None else {"TAGS": tag}
        topic = "%RETRY%billing" if number % 7 == 0 else "orders"
        assert store.put_message(Message(topic, b"x" * number * 5, number % 2, properties)).ok
        asked.append((topic, number % 2, number * 5, tag))
    return asked


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 90)
        yield store
