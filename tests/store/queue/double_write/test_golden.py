"""Stores that RocketMQ wrote: double write fills what is missing, and takes nothing away."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import NAMES, load_dump

Golden = Callable[[str], Path]
COMBINED = [name for name in NAMES if name.endswith("combine")]
FILES = ["basic-default", "basic533-default", "wide-default", "propcrc-default", "ext-default",
         "crash-default", "torn-default"]  # fmt: skip
TYPES = {"file": "default", "rocksdb": "defaultRocksDB"}
Content = dict[QueueKey, tuple[int, int, list[tuple[int, int, int]]]]


def double_write(read: str) -> StoreConfig:
    return StoreConfig.from_mapping(
        {"rocksdbCQDoubleWriteEnable": True, "combineCQPreferCQType": TYPES[read]}
    )


def content(root: Path, name: str) -> Content:
    """Return what backend ``name`` alone serves."""
    found: Content = {}
    with MessageStore.open(root, read_only=True, backend=name) as store:
        queues = components_of(store).queues.backends()[0]
        assert queues.name == name
        for key in queues.queues():
            low, high = queues.queue(*key).ends()
            if high:
                units = [unit[1:4] for unit in queues.queue(*key).iterate(low)]
                found[key] = low, high, units  # type: ignore[assignment]
    return found


def as_rocketmq_read(name: str) -> Content:
    """Return what RocketMQ itself read from the store."""
    return {
        QueueKey(queue["topic"], queue["queueId"]): (
            queue["min"], queue["max"], [tuple(unit[1:4]) for unit in queue["units"]],
        )
        for queue in load_dump(name)["queues"]
    }  # fmt: skip


def queue_files(root: Path) -> dict[str, str]:
    """Return the digest of every queue file."""
    folder = root / "consumequeue"
    files = [path for path in folder.glob("*/*/*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("read", ["file", "rocksdb"])
@pytest.mark.parametrize("name", COMBINED)
def test_a_combined_store_is_opened_without_loss(golden: Golden, name: str, read: str) -> None:
    root = golden(name)
    files, before = queue_files(root), {kind: content(root, kind) for kind in TYPES}
    with MessageStore.open(root, double_write(read)) as store:
        assert next(each.name for each in components_of(store).queues.backends()) == read
        assert store.report.dispatched_units == 0
        assert store.verify().is_clean
    assert queue_files(root) == files, "a queue file was changed, made or removed"
    assert {kind: content(root, kind) for kind in TYPES} == before
    assert before["rocksdb"] == before["file"] == as_rocketmq_read(name)


@pytest.mark.parametrize("read", ["file", "rocksdb"])
@pytest.mark.parametrize("name", FILES)
def test_a_store_on_files_gets_all_its_history_into_rocksdb(
    golden: Golden, name: str, read: str
) -> None:
    """RocketMQ fills it from the last log file only, and nothing tells."""
    root = golden(name)
    with MessageStore.open(root, double_write(read)) as store:
        assert store.report.watermarks["rocksdb"] == 0
        assert store.detached_backends() == {}
        assert store.verify().is_clean
    assert content(root, "file") == content(root, "rocksdb") == as_rocketmq_read(name)


@pytest.mark.parametrize("lost", ["file", "rocksdb"])
def test_a_backend_that_is_made_anew_has_wholly_expired_queues_too(
    golden: Golden, lost: str
) -> None:
    """And topics that RocketMQ deleted, of whose deletion no journal tells, do not come back."""
    root = golden("special-combine")
    before = content(root, lost)
    expired = [key for key, (low, high, _) in before.items() if low == high]
    assert expired, "this store has such queues"
    for path in backend(lost).own_files(StorePaths(root)):
        path.rename(root.parent / path.name)
    with MessageStore.open(root, double_write("file")) as store:
        assert store.verify().is_clean
    assert content(root, lost) == before
