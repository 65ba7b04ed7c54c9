"""A small store that every workload can be run on: tags, several log files, an expired queue."""

from pathlib import Path

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

FILE = 128 << 10
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE, mapped_file_size_consume_queue=20 * 500,
    message_index_enable=False,
)  # fmt: skip
MESSAGES = 2_000
RARE = 100
"""One in so many messages has the tag ``rare``."""


def make_varied_store(root: Path, messages: int = MESSAGES, backend: str = "file") -> None:
    """Put to queues of very different lengths, delete a topic, let the first file go."""
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        gone = [Message("gone", b"x"), *[Message("early", b"x" * 100)] * 3]
        assert all(result.ok for result in store.put_messages(gone))
        store.delete_topic("gone")
        for first in range(0, messages, 50):
            batch = [_message(number) for number in range(first, first + 50)]
            assert all(result.ok for result in store.put_messages(batch))
        store.delete_expired_files(FILE)


def _message(number: int) -> Message:
    topic = "hot" if number % 2 else f"topic{number % 38:02d}"
    tag = "rare" if number % RARE == 1 else "often"
    return Message(topic, b"b" * (number % 200 + 50), number % 3, {"TAGS": tag})
