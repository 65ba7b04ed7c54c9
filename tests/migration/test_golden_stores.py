"""Golden stores are moved whole: RocketMQ's dump of each is what the new queues hold."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from tests.kit.golden import Dump, load_dump
from tests.kit.migrations import Units, move, next_offsets, stored, without_times
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
FILES = [
    "basic-default", "basic533-default", "crash-default", "ext-default", "propcrc-default",
    "torn-default", "wide-default",
]  # fmt: skip
ROCKSDB = [
    "basic-defaultRocksDB", "basic533-defaultRocksDB", "crash-defaultRocksDB",
    "hole-defaultRocksDB", "separate-defaultRocksDB", "special-defaultRocksDB",
    "torn-defaultRocksDB", "wide-defaultRocksDB",
]  # fmt: skip


def close_well(root: Path) -> None:
    with MessageStore.open(root, housekeeping=False):
        pass
    StorePaths(root).own.mkdir(exist_ok=True)  # the workspace will lie in it


def as_dumped(dump: Dump) -> dict[QueueKey, Units]:
    """What RocketMQ reads in each queue, from its minimum on."""
    return {
        QueueKey(queue["topic"], queue["queueId"]): {
            unit[0]: (unit[1], unit[2], unit[3], unit[4])
            for unit in queue["units"]
            if unit is not None
        }
        for queue in dump["queues"]
        if queue["units"]
    }


@pytest.mark.parametrize("name", FILES)
def test_file_queues_become_rocksdb_queues(golden: Golden, name: str) -> None:
    root = golden(name)
    close_well(root)
    before = tree_digest(root, but=StorePaths(root).own)
    space, plan, report = move(root)
    made = stored(space.made, "rocksdb", plan)
    expected = as_dumped(load_dump(name))
    assert made == expected
    assert report.units == plan.units == sum(map(len, expected.values()))
    assert next_offsets(space.made, "rocksdb", plan) == {
        key: max(units) + 1 for key, units in expected.items()
    }
    assert tree_digest(root, but=StorePaths(root).own) == before


@pytest.mark.parametrize("name", ROCKSDB)
def test_rocksdb_queues_become_file_queues_and_these_rocksdb_queues(
    golden: Golden, name: str
) -> None:
    root = golden(name)
    close_well(root)
    before = tree_digest(root, but=StorePaths(root).own)
    with MessageStore.open(root, read_only=True) as store:
        ends = {key: store.max_offset(*key) for key in store.queue_keys()}
        low = store.min_phy_offset()
    space, plan, _ = move(root, "file")
    made = stored(space.made, "file", plan)
    source = stored(StorePaths(root), "rocksdb", plan)
    live = {
        key: {at: row for at, row in units.items() if row[0] >= low}
        for key, units in source.items()
    }
    assert without_times(made) == without_times(live)
    assert next_offsets(space.made, "file", plan) == ends
    assert tree_digest(root, but=StorePaths(root).own) == before
    if name not in {"hole-defaultRocksDB"}:  # RocketMQ lost units of it, we have none lost
        dumped = as_dumped(load_dump(name))
        assert {key: units for key, units in live.items() if units} == dumped


def test_batch_queues_are_refused(golden: Golden) -> None:
    with pytest.raises(RefusedStoreError, match=r"BatchCQ topics exist only as files: 'batch_\d+'"):
        move(golden("special-default"))


def test_a_store_that_was_not_closed_is_refused(golden: Golden) -> None:
    with pytest.raises(RefusedStoreError, match="not closed cleanly"):
        move(golden("crash-default"))


def test_a_combined_store_has_nothing_to_be_moved(golden: Golden) -> None:
    root = golden("basic-combine")
    close_well(root)
    with pytest.raises(RefusedStoreError, match="the store already has rocksdb queues"):
        move(root)
