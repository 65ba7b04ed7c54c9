"""Two stores that were one: a log that both have, and what each was given after that."""

import shutil
from pathlib import Path

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.log_bytes import log_of

CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip
QUEUES = 2
"""Of each topic."""


def grow(
    root: Path, count: int, topic: str = "both", backend: str | None = None, word: str = ""
) -> list[int]:
    """Put ``count`` messages, each with a key, of bodies of ``word``; return where they lie."""
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        return [_put(store, topic, number, word or topic) for number in range(count)]


def _put(store: MessageStore, topic: str, number: int, word: str) -> int:
    body = f"{word} {number} ".encode() * (number % 9)
    properties = {"KEYS": f"{topic}-{number}", "TAGS": f"t{number % 3}"}
    result = store.put_message(Message(topic, body, number % QUEUES, properties))
    assert result.ok, result
    return result.phy_offset


def parted(
    folder: Path, common: int, former: int, new: int, backend: str | None = None
) -> tuple[Path, Path, int]:
    """Return a former master, a new one, and where their logs part."""
    one, other = folder / "former", folder / "new"
    grow(one, common, backend=backend)
    with MessageStore.open(one, CONFIG) as store:
        end = store.max_phy_offset()
    shutil.copytree(one, other)
    (other / "lock").unlink()  # a copy is not locked
    grow(one, former, "former", backend)
    grow(other, new, "new", backend)
    return one, other, end


def log_in(root: Path) -> bytes:
    """Return the bytes of the log in ``root``, which is not open."""
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        return log_of(store) if store.max_phy_offset() else b""
