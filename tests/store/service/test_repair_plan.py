"""What a repair plans from the findings of a check, and what it then does."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.maintenance.check import CheckFinding
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.repair import MAX_SINGLE, RepairPlan, carry_out, plan_repair
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=16384)
QUEUES = MAX_SINGLE + 1
RECORDS = 2 * QUEUES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", CONFIG, backend="file") as store:
        for number in range(RECORDS):
            assert store.put_message(Message("t", b"x" * 200, number % QUEUES, {"KEYS": "k"})).ok
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        yield store


def test_each_finding_has_its_remedy(store: MessageStore) -> None:
    log, paths = str(components_of(store).paths.commit_log), components_of(store).paths
    places = [record.phy_offset for record in components_of(store).log.scan(0)]
    findings = [
        CheckFinding("worth knowing", damage=False, path=log, phy_offset=1),
        CheckFinding("no place", path=log),
        CheckFinding("first", path=log, phy_offset=places[-3]),
        CheckFinding("later", path=log, phy_offset=places[-2]),
        CheckFinding("a unit", queue=QueueKey("t", 3)),
        CheckFinding("another unit", path=str(paths.consume_queue), queue=QueueKey("t", 1)),
        CheckFinding("again", queue=QueueKey("t", 3)),
        CheckFinding("a slot", path=str(paths.index / "20260101000000000")),
        CheckFinding("a checkpoint", path=str(paths.checkpoint)),
        CheckFinding("nowhere"),
    ]
    plan = plan_repair(store, findings)
    assert plan.cut_at == places[-3]
    assert plan.lost_bytes == store.max_phy_offset() - places[-3]
    assert plan.lost_records == 2
    assert plan.index
    assert not plan.recover
    assert plan.queues == [QueueKey("t", 3), QueueKey("t", 1)]
    assert plan.beyond == [f"a checkpoint ({paths.checkpoint})", "nowhere ()"]
    steps = "\n".join(plan.steps())
    found = [steps.index(word) for word in ("cut the log", "the index", "queue 3", "queue 1")]
    assert found == sorted(found)
    assert steps.endswith("cannot repair: nowhere ()")


def test_records_between_two_damaged_ones_count_as_lost(root: Path) -> None:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        places = [record.phy_offset for record in components_of(store).log.scan(0)]
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    for place in (places[5] + 4, places[12] + 150, places[13] + 4):  # magic codes and a body
        data[place] ^= 1
    log.write_bytes(data)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        plan = plan_repair(store, store.check())
    assert plan.cut_at == places[5]
    assert plan.lost_records == RECORDS - 6 - 2


def test_batch_queues_are_built_anew(golden: Callable[[str], Path]) -> None:
    with MessageStore.open(golden("special-default"), read_only=True) as store:
        (topic,) = {key.topic for key in store.queue_keys() if key.topic.startswith("batch_")}
        plan = plan_repair(store, [CheckFinding("odd", queue=QueueKey(topic, 0))])
    assert plan.queues == [QueueKey(topic, 0)]
    assert plan.beyond == []


def test_where_nothing_is_found_nothing_is_lost(store: MessageStore) -> None:
    assert plan_repair(store, []) == RepairPlan(None, 0, 0, recover=False, index=False)
    assert list(RepairPlan(recover=True).steps()) == ["recover the store, as the next open would"]


def test_a_plan_without_steps_is_false() -> None:
    assert not RepairPlan(beyond=["what cannot be mended"])
    assert RepairPlan(cut_at=0)
    assert RepairPlan(recover=True)
    assert RepairPlan(index=True)
    assert RepairPlan(queues=[QueueKey("t", 0)])


@pytest.mark.parametrize("count", [MAX_SINGLE, QUEUES])
def test_a_few_queues_are_built_one_by_one_and_no_old_file_goes(root: Path, count: int) -> None:
    plan = RepairPlan(queues=[QueueKey("t", number) for number in range(count)])
    (step, *more) = plan.steps()
    assert step.startswith("rebuild all") == (count > MAX_SINGLE)
    assert len(more) == (0 if count > MAX_SINGLE else count - 1)
    threads: set[str] = set()
    carry_out(
        root, CONFIG, plan, None,
        lambda _: threads.update(each.name for each in threading.enumerate()),
    )  # fmt: skip
    assert threads or count > MAX_SINGLE, "it tells how far it is"
    assert "cqstore-expiry" not in threads
    assert (root / "cqstore" / "replaced").exists() == (count > MAX_SINGLE)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert not plan_repair(store, store.check())
        assert all(store.max_offset("t", number) == 2 for number in range(QUEUES))
