"""RocketMQ opens stores whose queues were moved, and reads every message, first to last."""

import hashlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.interop.rocketmq import RocketMQ
from tests.interop.started import Row
from tests.interop.test_interop import CONFIG, QUEUES, SIZES, compare, write
from tests.kit.migrations import NO_SPARK
from tools.bench.sample_store import LOG_FILE_BYTES, make_store, topic_and_queue

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def move(root: Path, config: StoreConfig, target: str, to: StoreMode | None = None) -> None:
    make_plan(root, config, target=target)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    switch(root, config, to=to)


def by_queue(root: Path, config: StoreConfig) -> dict[QueueKey, tuple[int, int, int, str]]:
    """Minimum, maximum, messages and digest of each queue, from its units as they lie."""
    found = {}
    place = struct.Struct(">qi")
    with MessageStore.open(root, config, read_only=True) as store:
        for key in store.queue_keys():
            low, high = store.min_offset(*key), store.max_offset(*key)
            digest = hashlib.sha1(usedforsecurity=False)
            rows = list(components_of(store).queues.queue(*key).read_units(low, high - low).rows())
            for phy, size, _ in rows:
                digest.update(place.pack(phy, size))
            found[key] = (low, high, len(rows), digest.hexdigest())
    return found


def as_read(rows: list[Row]) -> dict[QueueKey, tuple[int, int, int, str]]:
    return {
        QueueKey(row["topic"], row["queueId"]): (
            row["min"], row["max"], row["count"], row["digest"],
        )
        for row in rows
    }  # fmt: skip


def test_rocketmq_reads_moved_queues_and_goes_on(tmp_path: Path, rocketmq: RocketMQ) -> None:
    root = tmp_path / "store"
    written = write(root, "file", 600)
    move(root, CONFIG, "rocksdb")
    rows = rocketmq.append(root, "defaultRocksDB", QUEUES, 20, crash=False, **SIZES)
    assert len(rows) == 80
    rows = rocketmq.dump(root, "defaultRocksDB", QUEUES, **SIZES)
    assert [row["phy"] for row in rows if row["kind"] == "message"][:600] == written
    compare(root, rows)
    assert rollback(root, CONFIG) is not None
    rows = rocketmq.dump(root, "default", QUEUES, **SIZES)
    assert len([row for row in rows if row["kind"] == "message"]) == 680
    compare(root, rows)


@pytest.mark.parametrize("read", ["default", "defaultRocksDB"])
def test_rocketmq_reads_both_sides_of_double_write(
    tmp_path: Path, rocketmq: RocketMQ, read: str
) -> None:
    root = tmp_path / "store"
    write(root, "file", 600)
    move(root, CONFIG, "rocksdb", StoreMode("double-write-file"))
    keys = {"combineCQPreferCQType": read, "combineAssignOffsetCQType": read}
    rows = rocketmq.dump(root, "combine", QUEUES, **SIZES, **keys)
    queues = [row for row in rows if row["kind"] == "queue"]
    assert [(row["min"], row["max"]) for row in queues] == [(0, 150)] * 4
    compare(root, rows)


@pytest.mark.parametrize("kind", ["default", "defaultRocksDB"])
def test_a_golden_store_moved_there_and_back(
    golden: Callable[[str], Path], rocketmq: RocketMQ, kind: str
) -> None:
    """RocketMQ wrote it, we moved its queues, RocketMQ reads the others."""
    root = golden(f"wide-{kind}")
    config = StoreConfig(mapped_file_size_consume_queue=2_000)
    before = by_queue(root, config)
    target = "rocksdb" if kind == "default" else "file"
    other = "defaultRocksDB" if kind == "default" else "default"
    sizes = {**SIZES, "mappedFileSizeCommitLog": 262_144}
    move(root, config, target)
    moved = Path(shutil.copytree(root, root.with_name("moved")))
    assert as_read(rocketmq.read(moved, other, before, **sizes)) == before
    rollback(root, config)
    assert by_queue(root, config) == before
    assert as_read(rocketmq.read(root, kind, before, **sizes)) == before


@pytest.mark.long
def test_a_million_units_over_ten_thousand_queues(tmp_path: Path, rocketmq: RocketMQ) -> None:
    root = tmp_path / "store"
    config = make_store(root, 1_000_000, 10_000)
    queues = [topic_and_queue(number) for number in range(10_000)]
    before = by_queue(root, config)
    move(root, config, "rocksdb")
    settings = {"mappedFileSizeCommitLog": LOG_FILE_BYTES, "messageIndexEnable": "false"}
    found = as_read(rocketmq.read(root, "defaultRocksDB", queues, **settings))
    assert found == before
    rollback(root, config)
    assert by_queue(root, config) == before
