"""Brokers on stores of which only some topics were moved: every message comes once, on both sides.

Producers and consumers are RocketMQ's own, and each has its keys: acknowledged, received.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.topic_choice import ONLY_LIGHT
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import VERSION, Broker, Brokers
from tests.interop.test_moved_tables import LMQ, MASTER, config
from tests.interop.walk import SMALL, registered
from tests.kit.migrations import NO_SPARK

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
FILES = {"storeType": "default"}
APART = {
    **FILES, "rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true",
}  # fmt: skip
SELECTIVE = {**APART, "rocksdbCQSelectiveDoubleWriteEnable": "true"}
LIGHT = ("%LMQ%$p$a", "%LMQ%$p$b")
QUEUES = 2


@dataclass
class Clients:
    """A producer and two groups, over all lives of a broker."""

    acknowledged: list[str] = field(default_factory=list)
    received: dict[str, list[str]] = field(default_factory=dict)

    def send(self, broker: Broker, topic: str, count: int, name: str, *lights: str) -> None:
        more = [",".join(lights)] if lights else []
        keys = broker.do("send", topic, QUEUES, count, name, *more)["keys"]
        assert len(keys) == count
        for place in (topic, *lights):
            self.acknowledged += [f"{place} {key}" for key in keys]

    def consume(self, broker: Broker, group: str, topic: str, queues: int = QUEUES) -> None:
        """Receive everything from the group's offsets on."""
        for queue_id in range(queues):
            found = broker.do("consume", group, "p", topic, queue_id)
            assert found["status"] == "NO_NEW_MSG", found
            got = self.received.setdefault(group, [])
            got += [f"{topic} {key}" for key in found["keys"]]

    def consume_all(self, broker: Broker, group: str) -> None:
        for topic in ("p", "plain"):
            self.consume(broker, group, topic)
        for topic in LIGHT:
            self.consume(broker, group, topic, 1)

    def lost_and_twice(self, group: str) -> tuple[list[str], list[str]]:
        """Return what was acknowledged and not received, and what was received twice."""
        sent, got = Counter(self.acknowledged), Counter(self.received[group])
        assert max(sent.values()) == 1
        assert not got.keys() - sent.keys()
        lost = sorted(sent.keys() - got.keys())
        return lost, sorted(key for key, count in got.items() if count > 1)


def move(
    root: Path, settings: StoreConfig, topics: Sequence[str] = (), leave: Sequence[str] = ()
) -> None:
    make_plan(root, settings, topics=topics, leave=leave)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    switch(root, settings)


def damage(root: Path, settings: StoreConfig) -> list[str]:
    with MessageStore.open(root, settings) as store:
        return [str(found) for found in store.check() if found.damage]


@pytest.mark.parametrize("then", [APART, SELECTIVE], ids=["double-write", "selective"])
@pytest.mark.parametrize(
    "brokers_of",
    [VERSION, *(pytest.param(each, marks=pytest.mark.long) for each in ("5.5.0", "5.4.0"))],
    indirect=True,
)
def test_a_broker_serves_light_queues_from_rocksdb_and_the_others_from_files(
    tmp_path: Path, brokers_of: Brokers, names: dict[str, object], then: dict[str, str]
) -> None:
    brokers = brokers_of
    settings = {**MASTER, **SMALL, **LMQ, **names}
    ours, clients = config(**LMQ), Clients()
    lite = ["liteTopic"] if brokers.program.version.startswith("5.5") else []
    with brokers.running(tmp_path, **FILES, **settings) as broker:
        registered(broker, "p", *lite)
        registered(broker, "plain")
        clients.send(broker, "p", 40, "before", *LIGHT)
        clients.send(broker, "plain", 40, "before")
        clients.consume_all(broker, "early")
        clients.send(broker, "p", 20, "unread", LIGHT[0])
        clients.send(broker, "plain", 20, "unread")
    move(tmp_path, ours, topics=[ONLY_LIGHT])
    for turn in range(2):  # it recovers what it wrote itself, too
        with brokers.running(tmp_path, **then, **settings) as broker:
            registered(broker, "p", "end")
            clients.consume_all(broker, "early")
            clients.send(broker, "p", 30, f"moved{turn}-", *LIGHT)
            clients.send(broker, "plain", 30, f"moved{turn}-")
            clients.consume_all(broker, "early")
        assert damage(tmp_path, ours) == []
    assert not list((tmp_path / "consumequeue").glob("%LMQ%*/0/" + "0" * 19 + "1*"))
    with brokers.running(tmp_path, **then, **settings) as broker:
        registered(broker, "p", "end")
        clients.consume_all(broker, "late")
    assert clients.lost_and_twice("late") == ([], [])
    assert rollback(tmp_path, ours) is not None
    assert damage(tmp_path, ours) == []
    with brokers.running(tmp_path, **FILES, **settings) as broker:
        registered(broker, "p", "end")
        clients.send(broker, "p", 10, "back", *LIGHT)
        clients.consume_all(broker, "early")
        clients.consume_all(broker, "last")
    assert clients.lost_and_twice("early") == ([], [])
    assert clients.lost_and_twice("last") == ([], [])
    assert len(clients.acknowledged) == 3 * 40 + 40 + 2 * 20 + 20 + 2 * (3 * 30 + 30) + 3 * 10


def test_a_batch_topic_that_is_left_comes_back_with_a_rollback(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    settings = {**MASTER, **SMALL, **names}
    ours, clients = config(), Clients()
    rocksdb = {"storeType": "defaultRocksDB"}
    with brokers.running(tmp_path, **FILES, **settings) as broker:
        registered(broker, "p")
        registered(broker, "b", "batchTopic")
        clients.send(broker, "p", 40, "before")
        assert broker.do("batches", "b", 0, 3, 1, 2)["offsets"] == [0, 3, 4]
        assert len(broker.do("consume", "early", "b", "b", 0)["keys"]) == 6
        assert broker.do("batches", "b", 0, 4)["offsets"] == [6]
        clients.consume(broker, "early", "p")
    with pytest.raises(RefusedStoreError, match=r"clients can still use topics .* 'b'"):
        move(tmp_path, ours, leave=["b"])
    with brokers.running(tmp_path, **FILES, **settings) as broker:
        assert broker.do("perm", "b", 0) == {"perm": 0}
    switch(tmp_path, ours)
    files = {path: path.read_bytes() for path in (tmp_path / "batchconsumequeue").rglob("0" * 20)}
    with brokers.running(tmp_path, **rocksdb, **settings) as broker:
        registered(broker, "p", "end")
        clients.send(broker, "p", 40, "moved")
        clients.consume(broker, "early", "p")
        clients.consume(broker, "late", "p")
        assert broker.do("consume", "early", "p", "b", 0) == {
            "keys": [], "status": "code 16", "offset": 6,
        }  # fmt: skip
    assert clients.lost_and_twice("early") == clients.lost_and_twice("late") == ([], [])
    assert damage(tmp_path, ours) == []
    assert rollback(tmp_path, ours) is not None
    assert {path: path.read_bytes() for path in files} == files
    with brokers.running(tmp_path, **FILES, **settings) as broker:
        broker.do("perm", "b", 6)
        registered(broker, "b", "end")
        assert broker.do("batches", "b", 0, 2)["offsets"] == [10]
        assert broker.do("consume", "early", "b", "b", 0)["keys"] == [
            *(f"key{at}" for at in range(4)), "key0", "key1",
        ]  # fmt: skip
        clients.consume(broker, "early", "p")
        clients.consume(broker, "last", "p")
    assert clients.lost_and_twice("early") == clients.lost_and_twice("last") == ([], [])
    assert damage(tmp_path, ours) == []


def test_a_rollback_is_refused_if_the_topic_was_used_meanwhile(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    """The broker with RocksDB gives them the offsets of those that are in files."""
    settings = {**MASTER, **SMALL, **names}
    with brokers.running(tmp_path, **FILES, **settings) as broker:
        registered(broker, "b", "batchTopic")
        assert broker.do("batches", "b", 0, 3, 1)["offsets"] == [0, 3]
        broker.do("perm", "b", 0)
    move(tmp_path, config(), leave=["b"])
    with brokers.running(tmp_path, storeType="defaultRocksDB", **settings) as broker:
        broker.do("perm", "b", 6)
        registered(broker, "b", "end")
        assert broker.do("batches", "b", 0, 2)["offsets"] == [0]
    files = {path: path.read_bytes() for path in (tmp_path / "batchconsumequeue").rglob("0" * 20)}
    with pytest.raises(RefusedStoreError, match="topic 'b', which was left in files, got messages"):
        rollback(tmp_path, config())
    assert {path: path.read_bytes() for path in files} == files
