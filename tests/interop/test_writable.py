"""RocketMQ's own producers and consumers with ``cqstore serve --writable``.

What a producer is told, and what is stored, is compared with a real broker's on the same sends.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.message_store import MessageStore
from tests.interop.brokers import Brokers
from tests.interop.consumers import NEWEST, OLD, RunningConsumers, served
from tests.interop.started import Row, started
from tests.interop.walk import registered
from tests.kit.remoting_client import Client
from tests.kit.waiting import run, until
from tools.bench.peer.maven import JavaProgram

pytestmark = [pytest.mark.interop, pytest.mark.long]
KINDS = ("sync", "oneway", "batch", "delay", "select")
COUNT = 12
SIZES = "mappedFileSizeCommitLog=4194304\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
BACKENDS = {"file": "default", "rocksdb": "defaultRocksDB"}


@pytest.fixture(scope="module", params=[NEWEST, OLD])
def writers(request: pytest.FixtureRequest) -> Iterator[RunningConsumers]:
    with running_writers(request.param) as found:
        yield found


@contextmanager
def running_writers(version: str) -> Iterator[RunningConsumers]:
    folder = Path(__file__).parent / "clients"
    with started(JavaProgram.build(folder, "interop.Writers", version), []) as process:
        yield RunningConsumers(process)


@contextmanager
def writable(tmp_path: Path, backend: str, settings: str = "") -> Iterator[int]:
    """Serve a new store to clients that send; yield the port."""
    conf = tmp_path / "broker.conf"
    conf.write_text(SIZES + settings)
    more = ("--writable", "--new", "--backend", backend, "--config", conf)
    names = ("--broker-name", "a", "--cluster-name", "c")
    with served(tmp_path / "store", *more, *names) as port:
        yield port


def stored(root: Path) -> dict[str, list[Row]]:
    """Return what clients have sent, by topic, except for times and addresses."""
    rows: dict[str, list[Row]] = defaultdict(list)
    with MessageStore.open(root, read_only=True) as store:
        for topic in sorted(store.topics()):
            if not topic.startswith(("send", "SCHEDULE", "%")):
                continue
            for key in store.queue_keys(topic):
                at = 0
                while messages := store.get_message(*key, at).messages():
                    at += len(messages)
                    rows[topic] += map(row_of, messages)
    return {topic: sorted(each, key=lambda row: str(row["body"])) for topic, each in rows.items()}


def row_of(message: Any) -> Row:
    properties = message.properties
    assert len(properties["UNIQ_KEY"]) in {32, 56}  # with an IPv4 or an IPv6 address
    # Which queue a producer takes first is its own choice.
    left = {"UNIQ_KEY", "REAL_QID"}
    return {
        "body": message.body, "flag": message.head.flag, "sysFlag": message.sys_flag,
        "reconsumeTimes": message.tail.reconsume_times,
        "properties": {name: value for name, value in properties.items() if name not in left},
    }  # fmt: skip


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_store_is_as_a_broker_would_have_it(
    tmp_path: Path, brokers: Brokers, names: dict[str, object], writers: RunningConsumers,
    backend: str,
) -> None:  # fmt: skip
    def all_kinds(port: object) -> dict[str, Any]:
        found = {}
        for kind in KINDS:
            results = writers.do("send", port, f"send{kind}", COUNT, f"{kind}-", kind)
            assert isinstance(results, list), results
            found[kind] = [
                {"status": each["status"], "region": each["region"], "traced": each["traced"],
                 "ids": each["msgId"].count(","), "offsetIds": each["offsetMsgId"].count(","),
                 "hasTransactionId": each["transactionId"] is not None}
                for each in results
            ]  # fmt: skip
        return found

    name_port = str(names["namesrvAddr"]).partition(":")[2]
    settings = {"storeType": BACKENDS[backend], "mappedFileSizeCommitLog": 4 << 20, **names}
    root = tmp_path / "broker"
    # Levels of an hour: nothing is delivered meanwhile.
    with brokers.running(root, messageDelayLevel="1h 1h", **settings) as broker:
        registered(broker, "known")
        of_broker = all_kinds(name_port)
    with writable(tmp_path, backend, "messageDelayLevel=1h 1h\n") as port:
        assert all_kinds(port) == of_broker
    expected, found = stored(root), stored(tmp_path / "store")
    assert found.keys() == expected.keys()
    assert sum(map(len, found.values())) == COUNT * len(KINDS)
    for topic, rows in expected.items():
        assert found[topic] == rows, topic


def test_a_producer_is_told_where_its_messages_are(
    tmp_path: Path, writers: RunningConsumers
) -> None:
    with writable(tmp_path, "file") as port:
        results = writers.do("send", port, "t", 8, "m", "select")
        refused = writers.do("send", port, "no good", 1, "m", "sync")
        assert "refused" in refused
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        for number, each in enumerate(results):
            host, phy_offset = decode_message_id(each["offsetMsgId"])
            assert (host.address, host.port) == ("127.0.0.1", port)
            message = store.message_by_offset(phy_offset)
            assert message.body == b"m%d" % number
            assert message.properties["UNIQ_KEY"] == each["msgId"]
            assert (message.queue_id, message.queue_offset) == (
                each["queueId"],
                each["queueOffset"],
            )
            assert each["queueId"] == number % 4


def bodies(rows: list[Row]) -> set[str]:
    return {each["body"] for each in rows}


def expected(*names: str, count: int = 40) -> set[str]:
    return {f"{name}{number}" for name in names for number in range(count)}


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
def test_two_consumers_share_the_queues(
    tmp_path: Path, writers: RunningConsumers, backend: str, kind: str
) -> None:
    def queues(name: str) -> list[int]:
        found: list[int] = writers.do("queues", name, "t")
        return found

    def received(*names: str) -> list[Row]:
        return [row for name in names for row in writers.do("received", name)]

    with writable(tmp_path, backend) as port:
        writers.do("send", port, "t", 40, "first", "select")
        writers.do("open", port, "one", "g", "t", kind, 0, 16)
        until(lambda: bodies(received("one")) == expected("first"), pause=0.1)
        assert queues("one") == [0, 1, 2, 3]
        writers.do("open", port, "two", "g", "t", kind, 0, 16)
        # Clients look by themselves every 20 s; the server has told them.
        until(lambda: (queues("one"), queues("two")) == ([0, 1], [2, 3]), seconds=15, pause=0.1)
        writers.do("send", port, "t", 40, "second", "select")
        until(lambda: bodies(received("one", "two")) == expected("first", "second"), pause=0.1)
        second = {each["queueId"] for each in received("two")}
        assert second == {2, 3}
        for name in ("one", "two"):  # in order, each once
            places: dict[int, list[int]] = defaultdict(list)
            for row in received(name):
                places[row["queueId"]].append(row["queueOffset"])
            for offsets in places.values():
                if kind == "orderly":
                    assert offsets == sorted(set(offsets))
        writers.do("close", "two")
        until(lambda: queues("one") == [0, 1, 2, 3], seconds=15, pause=0.1)
        writers.do("send", port, "t", 40, "third", "select")
        until(lambda: expected("third") <= bodies(received("one")), pause=0.1)
        writers.do("close", "one")
    with writable(tmp_path, backend) as port:  # the group continues where it was
        writers.do("send", port, "t", 4, "fourth", "select")
        writers.do("open", port, "three", "g", "t", kind, 0, 16)
        until(lambda: bodies(received("three")) == expected("fourth", count=4), pause=0.1)
        writers.do("close", "three")


@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
def test_failed_messages_come_back_and_become_dead_letters(
    tmp_path: Path, writers: RunningConsumers, kind: str
) -> None:
    with writable(tmp_path, "rocksdb", "messageDelayLevel=1s 1s 1s 1s 1s 1s\n") as port:
        writers.do("send", port, "t", 4, "m", "select")
        writers.do("open", port, "again", "g", "t", kind, 1, 16)
        until(lambda: bodies(writers.do("received", "again")) == expected("m", count=4), pause=0.1)
        rows = writers.do("received", "again")
        assert {each["reconsumeTimes"] for each in rows} == {1}
        assert {each["properties"].get("RETRY_TOPIC", "t") for each in rows} == {"t"}
        assert len({(each["queueId"], each["queueOffset"]) for each in rows}) == 4
        writers.do("close", "again")
        writers.do("open", port, "never", "h", "t", kind, 1000, 1)
        until(lambda: run(end_of(port, "%DLQ%h")) >= 4, pause=0.2)
        writers.do("close", "never")
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        dead = [bytes(each.body) for each in store.get_message("%DLQ%h", 0, 0).messages()]
        assert {*dead} == {b"m0", b"m1", b"m2", b"m3"}  # a slow client may send one back twice


async def end_of(port: int, topic: str) -> int:
    """Return the max offset of queue 0, 0 if there is no such topic."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    answer = await client.ask(30, {"topic": topic, "queueId": 0})
    client.close()
    await asyncio.sleep(0)
    return int(answer.fields["offset"]) if answer.code == 0 else 0


def test_delayed_messages_are_delivered_to_their_topic(
    tmp_path: Path, writers: RunningConsumers
) -> None:
    with writable(tmp_path, "file") as port:
        results = writers.do("send", port, "t", 3, "late", "delay")
        assert {each["status"] for each in results} == {"SEND_OK"}
        writers.do("open", port, "one", "g", "t", "concurrent", 0, 16)
        until(lambda: bodies(writers.do("received", "one")) == expected("late", count=3), pause=0.1)
        writers.do("close", "one")
