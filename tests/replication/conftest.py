"""One log of several files to follow."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.log_bytes import log_of

CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip

SIZES = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=50\n"
    "maxIndexNum=100\n"
)
"""The same as a broker's file."""


@dataclass(frozen=True)
class Led:
    """A store that was closed and is not written."""

    root: Path
    log: bytes
    starts: list[int]
    """Of its records."""


@pytest.fixture(scope="session")
def led(tmp_path_factory: pytest.TempPathFactory) -> Led:
    root = tmp_path_factory.mktemp("led") / "store"
    with MessageStore.open(root, CONFIG) as store:
        for number in range(90):
            properties = {"KEYS": f"k{number}", "TAGS": "a"} if number % 3 else {}
            assert store.put_message(Message("t", b"x" * number * 5, number % 2, properties)).ok
        return Led(
            root, log_of(store), [record.phy_offset for record in components_of(store).log.scan(0)]
        )


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(SIZES)
    return path
