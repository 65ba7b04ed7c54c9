"""Stores that are served."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cqstore
from cqstore.store.record.message import LOOPBACK, Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=20 * 100,
    rocksdb_memory_bytes=16 << 20, max_hash_slot_num=100, max_index_num=4000,
)  # fmt: skip
MESSAGES = 90
TAGS = ("red", "green", "blue")


def fill(store: MessageStore, count: int = MESSAGES, first: int = 0) -> None:
    """Put messages to three queues of ``t``: tags by turns, keys k0, k1 …, 100 bytes each."""
    for number in range(first, first + count):
        message = Message("t", b"%d" % number + b" " * 100, number % 3)
        message.properties = {
            "TAGS": TAGS[number // 3 % 3], "KEYS": f"k{number} all", "UNIQ_KEY": f"U{number}",
        }  # fmt: skip
        message.store_host = LOOPBACK
        assert store.put_message(message).ok


@pytest.fixture(params=["file", "rocksdb"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A closed store of each backend, without a broker's tables."""
    folder = tmp_path / "store"
    with MessageStore.open(folder, CONFIG, backend=request.param) as store:
        fill(store)
    return folder


@pytest.fixture
def logged_root(tmp_path: Path) -> Path:
    """A closed log with a broker's tables: ``orders``, and group ``billing`` at 2 in each queue."""
    folder = tmp_path / "log"
    with cqstore.open(folder, config=CONFIG, queues=2) as log:
        for number in range(10):
            log.put(
                "orders", b"%d" % number, queue_id=number % 2, tags="odd" if number % 2 else "even"
            )
        for queue_id in range(2):
            log.offsets.commit("billing", "orders", queue_id, 2)  # type: ignore[union-attr]
    return folder


Opened = Callable[[Path], MessageStore]
