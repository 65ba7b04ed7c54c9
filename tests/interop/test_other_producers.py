"""Producers in Go and Python send to ``cqstore serve --writable``.

Each message is read back from the store, and by RocketMQ's Java consumer.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.client_batch import decode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.message_store import MessageStore
from tests.interop.brokers import Brokers
from tests.interop.consumers import NEWEST, Consumers, RunningConsumers
from tests.interop.other_clients import GoClient, PythonClient
from tests.interop.started import Row
from tests.interop.test_writable import BACKENDS, writable
from tests.interop.walk import registered
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 12
GO_KINDS = ("sync", "async", "oneway", "batch", "delay", "select")
PYTHON_KINDS = ("sync", "async", "oneway", "delay", "orderly")
WITHOUT_RESULTS = "oneway"


@pytest.fixture(scope="module")
def consumers() -> Iterator[RunningConsumers]:
    with Consumers.build(NEWEST).running() as found:
        yield found


def received(consumers: RunningConsumers, port: int, topic: str) -> list[Row]:
    """Return what a Java consumer receives, once all messages have arrived."""
    found: list[Row] = []

    def has_all() -> bool:
        with suppress(AssertionError):  # a topic of one-way messages may not exist yet
            found[:] = consumers.do("pull", port, "java", topic, "*")["found"]
        return len(found) >= COUNT

    until(has_all, pause=0.2)
    return found


def stored(root: Path, topic: str) -> list[Any]:
    with MessageStore.open(root, read_only=True) as store:
        keys = store.queue_keys(topic)
        return [each for key in keys for each in store.get_message(*key, 0).messages()]


def check(
    root: Path, topic: str, kind: str, results: list[Row], java: list[Row], ending: bytes
) -> None:
    """Every message is stored once as it was sent, is where its producer was told, and arrived."""
    messages = stored(root, topic)
    by_number = {int(each.properties["number"]): each for each in messages}
    assert len(messages) == len(by_number) == COUNT
    for number, each in by_number.items():
        assert bytes(each.body) == f"{kind} {number} ".encode() + ending
        assert each.properties["TAGS"] == "red"
        assert each.properties["KEYS"].split()[0] == f"k{number}"
    bodies = {hashlib.sha256(bytes(each.body)).hexdigest() for each in messages}
    assert {each["body"] for each in java} == bodies
    assert [each["properties"]["TAGS"] for each in java] == ["red"] * COUNT
    places = {(each.queue_id, each.queue_offset) for each in messages}
    assert {(each["queueId"], each["queueOffset"]) for each in java} == places
    told = {WITHOUT_RESULTS: 0, "batch": 1}.get(kind, COUNT)
    assert [each["status"] for each in results] == [0] * told
    if kind == "delay":  # their results are those of the schedule's topic
        return
    for each, first in zip(results, range(told), strict=True):
        assert each["queueOffset"] == by_number[first].queue_offset
        unique_key = each["msgId"].split(",")[0]
        assert unique_key == by_number[first].properties.get("UNIQ_KEY", "")  # Go: none in a batch


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_go_producer_is_told_where_its_messages_are(
    tmp_path: Path, go_client: GoClient, consumers: RunningConsumers, backend: str
) -> None:
    found: dict[str, tuple[list[Row], list[Row]]] = {}
    with writable(tmp_path, backend) as port:
        for kind in GO_KINDS:
            results = go_client.send(port, f"go{kind}", kind, COUNT)
            found[kind] = results, received(consumers, port, f"go{kind}")
    root = tmp_path / "store"
    for kind, (results, java) in found.items():
        check(root, f"go{kind}", kind, results, java, b"\0" + "é".encode())
        for number, each in enumerate(results if kind == "select" else ()):
            assert each["queueId"] == number % 4
    with MessageStore.open(root, read_only=True) as store:
        for number, each in enumerate(found["sync"][0]):
            _, phy_offset = decode_message_id(each["offsetMsgId"])
            message = store.message_by_offset(phy_offset)
            assert message.properties["number"] == str(number)
            assert message.queue_id == each["queueId"]


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_python_producer_is_told_where_its_messages_are(
    tmp_path: Path, python_client: PythonClient, consumers: RunningConsumers, backend: str
) -> None:
    found: dict[str, tuple[list[Row], list[Row]]] = {}
    with writable(tmp_path, backend) as port:
        for kind in PYTHON_KINDS:
            results = python_client.send(port, f"python{kind}", kind, COUNT)
            found[kind] = results, received(consumers, port, f"python{kind}")
    for kind, (results, java) in found.items():
        check(tmp_path / "store", f"python{kind}", kind, results, java, "é".encode())
    queues = [each.queue_id for each in stored(tmp_path / "store", "pythonorderly")]
    assert {*queues} == {0, 1, 2, 3}


def test_a_python_batch_is_stored_as_by_a_broker(
    tmp_path: Path, python_client: PythonClient, brokers: Brokers, names: dict[str, object]
) -> None:
    """As one message: the client sends ``batch=1``, and Java reads "true" alone as true."""
    kind = ("batch", "pythonbatch")
    with brokers.running(tmp_path / "broker", mappedFileSizeCommitLog=4 << 20, **names) as broker:
        registered(broker, "known")
        port = int(str(names["namesrvAddr"]).partition(":")[2])
        of_broker = python_client.send(port, kind[1], kind[0], COUNT)
    with writable(tmp_path, "file") as port:
        results = python_client.send(port, kind[1], kind[0], COUNT)
    assert results == of_broker == [{"status": 0, "msgId": "", "queueOffset": 0}]
    (ours,), (theirs,) = (stored(tmp_path / each, kind[1]) for each in ("store", "broker"))
    assert {*ours.properties} == {*theirs.properties}
    for each in (ours, theirs):
        messages = decode_client_batch(Message("t", bytes(each.body)))
        bodies = [bytes(message.body) for message in messages]
        assert bodies == [f"batch {number} é".encode() for number in range(COUNT)]
