"""``migrate verify --with-clients``: RocketMQ's Java consumer reads old and new queues."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.migration.verify.clients_report import ClientsReport
from cqstore.migration.verify.with_clients import Clients, compare_by_clients
from cqstore.serve.client_command import ClientCommand
from cqstore.store.queue.units import QueueKey
from tests.interop.consumers import NEWEST, Consumers
from tests.kit.golden import load_dump
from tests.migration.made import Made, migrate

pytestmark = [pytest.mark.interop, pytest.mark.long]
QUEUE = QueueKey("p", 1)
MOVES = [("basic-default", "rocksdb"), ("basic-defaultRocksDB", "file")]


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """The program that the command runs, built for it."""
    Consumers.build(NEWEST)


def read_by_java(made: Made, topics: list[str]) -> Any:
    words = [sys.executable, "-m", "tests.interop.read_by_java", "{address}", *topics]
    client = ClientCommand(" ".join(words), 300)

    def compare(*given: Any) -> ClientsReport:
        return compare_by_clients(Clients(made.root, command=client), *given)

    report = made.verify(clients=compare)
    assert report.clients is not None
    return report.clients


@pytest.mark.parametrize(("name", "target"), MOVES)
def test_a_java_consumer_receives_the_same_of_both(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    made = migrate(golden(name), target, monkeypatch)
    messages = load_dump(name)["messages"]
    topics = sorted({each["topic"] for each in messages})
    found = read_by_java(made, topics)
    assert found.equal
    run = found.command
    assert (run.source_exit, run.target_exit) == (0, 0)
    assert run.source_lines == run.target_lines == len(messages) + len(topics)


def test_a_java_consumer_finds_a_message_that_comes_twice(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = migrate(golden("basic-default"), "rocksdb", monkeypatch)
    made.put_unit(QUEUE, 40, made.unit(QUEUE, 41))
    found = read_by_java(made, ["p"])
    assert not found.equal
    assert not found.command.equal
    assert (len(found.command.only_source), found.command.only_target) == (1, [])
