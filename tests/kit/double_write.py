"""Stores with double write: what was put, what each backend has of it, and parts that fail."""

from collections import defaultdict
from pathlib import Path

import pytest

from cqstore.store.errors import ConsumeQueueError
from cqstore.store.journals.backend_state import BackendState, read_backend_state
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.queue_of import QUEUES_OF

TYPES = {"file": "default", "rocksdb": "defaultRocksDB"}
OTHER = {"file": "rocksdb", "rocksdb": "file"}
QUEUES = 5


def config(read: str = "file", **changes: object) -> StoreConfig:
    """Settings of a small store with double write that reads ``read``; no thread flushes it."""
    return StoreConfig.from_mapping(
        {
            "mapped_file_size_commit_log": 16384,
            "mapped_file_size_consume_queue": 200,
            "max_hash_slot_num": 100,
            "max_index_num": 4000,
            "rocksdb_memory_bytes": 8 << 20,
            "flush_interval_commit_log": 3_600_000,
            "flush_commit_log_thorough_interval": 3_600_000,
            "flush_interval_consume_queue": 3_600_000,
            "flush_consume_queue_thorough_interval": 3_600_000,
            "rocksdb_cq_double_write_enable": True,
            "combine_cq_prefer_cq_type": TYPES[read],
            **changes,
        }
    )


def open_store(root: Path, read: str = "file", **changes: object) -> MessageStore:
    return MessageStore.open(root, config(read, **changes), housekeeping=False)


class StoredOffsets:
    """What a store has said of the messages that it took: phy offsets by queue, in order."""

    def __init__(self) -> None:
        self.phys: dict[QueueKey, list[int]] = defaultdict(list)

    def put(self, store: MessageStore, count: int, topic: str = "t") -> None:
        """Put ``count`` messages, in turn into five queues, and hand them on to the queues."""
        for number in range(count):
            queue_id = number % QUEUES
            result = store.put_message(
                Message(topic, b"x" * 40, queue_id, {"TAGS": f"tag{number}"})
            )
            assert result.ok, result
            assert result.queue_offset == len(self.phys[QueueKey(topic, queue_id)])
            self.phys[QueueKey(topic, queue_id)].append(result.phy_offset)
        store.max_offset(topic, 0)

    def check(self, root: Path) -> None:
        """Compare with what each backend alone serves of ``root``, read-only."""
        for name in TYPES:
            with MessageStore.open(root, read_only=True, backend=name) as store:
                least = store.min_phy_offset()
                assert components_of(store).queues.backends()[0].name == name
                assert {key for key in store.queue_keys() if store.max_offset(*key)} == set(
                    self.phys
                )
                for key, phys in self.phys.items():
                    low, high = store.min_offset(*key), store.max_offset(*key)
                    assert high == len(phys), (name, key)
                    assert low == sum(phy < least for phy in phys), (name, key)
                    rows = components_of(store).queues.queue(*key).read_units(low, high).rows()
                    assert [row[0] for row in rows] == phys[low:], (name, key)


def backend_state(root: Path) -> BackendState:
    return read_backend_state(StorePaths(root))


def refuse(patched: pytest.MonkeyPatch, name: str, method: str) -> None:
    """Let a method of backend ``name``, or of its queues, fail until ``patched`` is undone."""

    def fail(*_: object, **__: object) -> None:
        raise ConsumeQueueError(f"{method} was made to fail")

    queues = QUEUES_OF[name]
    for each in [method, *(["pull"] if method == "read_units" else [])]:
        patched.setattr(queues if hasattr(queues, each) else backend(name), each, fail)
