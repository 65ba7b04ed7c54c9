"""The store that rebuilds are tried on, and what its queues hold."""

from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

Facts = dict[QueueKey, tuple[int, int, list[tuple[int, int, int | None]]]]
"""Queue → minimum, next offset, and of each unit phy offset, size and tags code."""
CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, enable_lmq=True,
    enable_multi_dispatch=True, max_hash_slot_num=50, max_index_num=100,
)  # fmt: skip
_LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two", "KEYS": "key"}


def fill(store: MessageStore, *, again: bool = False) -> None:
    """Put light queues, a deleted topic (``again``: put again), and a queue that expired whole."""
    for number in range(30):
        assert store.put_message(Message("expired", b"x", number % 2)).ok
    for number in range(300):
        assert store.put_message(Message("t", b"x" * 400, number % 3, _LIGHT)).ok
        assert store.put_message(Message("gone", b"x", 0)).ok
    store.delete_topic("gone")
    if again:
        assert store.put_message(Message("gone", b"a new life", 0, {"TAGS": "A"})).ok
    assert store.delete_expired_files(65536).log_files == 1


def facts(store: MessageStore) -> Facts:
    """Return what every queue holds."""
    found = {}
    for key in store.queue_keys():
        low, high = store.min_offset(*key), store.max_offset(*key)
        units = (
            [u[1:4] for u in components_of(store).queues.queue(*key).iterate(low)]
            if low < high
            else []
        )
        found[key] = (low, high, units)
    return found
