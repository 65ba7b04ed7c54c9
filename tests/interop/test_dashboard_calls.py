"""The calls of rocketmq-dashboard by its client library: answers of a broker and of its store.

Which methods of ``MQAdminExt`` the dashboard calls is read from its source. What only one of the
two has is removed by name: addresses, times, rates, and the permission to write.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import Brokers
from tests.interop.consumers import NEWEST, Consumers, RunningConsumers, served
from tests.interop.test_served import SIZES, dumped
from tests.interop.walk import registered
from tests.kit.remoting_client import strict
from tests.kit.tree import unchanged

pytestmark = [pytest.mark.interop, pytest.mark.long]
VARYING = {"consumeTps", "topicPutTps", "subVersion", "clientAddr", "perm", "jstack"}
"""Rates, times of the call, addresses of clients, and what a route lets producers do."""
RUNTIME = {"brokerVersionDesc", "brokerActive", "commitLogMaxOffset", "commitLogMinOffset",
           "msgPutTotalTodayNow", "msgGetTotalTodayNow", "putTps", "getTransferredTps",
           "commitLogDiskRatio", "earliestMessageTimeStamp"}  # fmt: skip
"""What the dashboard shows of a broker."""
DIFFERENT = {"runtime", "config", "running", "topics", "topicConfigs"}
"""Compared in part."""


@pytest.fixture(scope="module")
def consumers() -> Any:
    with Consumers.build(NEWEST).running() as found:
        yield found


def plain(value: Any) -> Any:
    """Return a JSON value without what varies; the order of lists does not count: most are sets."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in VARYING}
    if isinstance(value, list):
        return sorted(map(plain, value), key=json.dumps)
    return value


def asked(clients: RunningConsumers, port: int, address: str, *words: object) -> dict[str, Any]:
    """Return what each call has answered."""
    found: dict[str, str] = clients.do("dashboard", port, address, *words)
    return {
        name: plain(json.loads(strict(re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text))))
        for name, text in found.items()
    }


@pytest.mark.parametrize("store_type", ["default", "defaultRocksDB"])
def test_a_store_answers_the_dashboard_as_its_broker_did(
    tmp_path: Path, brokers: Brokers, consumers: RunningConsumers, store_type: str
) -> None:
    root = tmp_path / "store"
    words = ("orders", "watching", "k3", "billing")
    with brokers.name_server() as names:
        settings = {"storeType": store_type, "namesrvAddr": f"127.0.0.1:{names}", **SIZES}
        with brokers.running(root, **settings) as broker:
            for topic in ("orders", "%RETRY%billing"):
                registered(broker, topic)
            broker.do("put", "orders", 4, 20)
            broker.do("offset", "orders", "billing", 1, 3)
            for queue_id in range(4):
                broker.do("offset", "orders", "watching", queue_id, 5)  # it has read everything
            port, address = broker.port, f"127.0.0.1:{broker.port}"
            of_broker = asked(consumers, names, address, *words)
    with unchanged(root):
        more = ("--broker-name", "a", "--cluster-name", "c", "--listen", address)
        with served(root, *more) as own:
            assert own == port
            of_store = asked(consumers, own, address, *words)
    assert of_store.keys() == of_broker.keys()
    for name in of_broker.keys() - DIFFERENT:
        assert of_store[name] == of_broker[name], name
    check_parts(of_broker, of_store)


def check_parts(of_broker: dict[str, Any], of_store: dict[str, Any]) -> None:
    """Compare what is equal in part."""
    figures, all_figures = (each["runtime"]["table"] for each in (of_store, of_broker))
    assert RUNTIME <= figures.keys() <= all_figures.keys()
    for name in ("commitLogMaxOffset", "commitLogMinOffset", "earliestMessageTimeStamp"):
        assert figures[name] == all_figures[name]
    settings, all_settings = of_store["config"], of_broker["config"]
    assert settings.keys() <= all_settings.keys()
    for name in ("brokerName", "brokerClusterName", "brokerId", "listenPort"):
        assert settings[name] == all_settings[name]
    for each in (of_broker, of_store):
        assert each["threads"] is True
        assert {"orders", "%RETRY%watching"} == {
            row["topic"] for row in each["running"]["subscriptionSet"]
        }
    assert of_store["running"].keys() == of_broker["running"].keys()
    # A client hears of a new retry topic within half a minute.
    queues = [
        {key for key in each["running"]["mqTable"] if '"topic":"orders"' in key}
        for each in (of_broker, of_store)
    ]
    assert queues[0] == queues[1] != set()
    # A broker has topics of its own in memory and at the name server.
    assert set(of_store["topics"]["topicList"]) <= set(of_broker["topics"]["topicList"])
    rows, all_rows = (each["topicConfigs"]["topicConfigTable"] for each in (of_store, of_broker))
    assert {"orders", "%RETRY%billing"} <= rows.keys()
    assert {name: all_rows[name] for name in rows} == rows


@pytest.mark.parametrize("name", ["basic-default", "basic-defaultRocksDB"])
def test_the_dashboard_reads_golden_stores(
    golden: Callable[[str], Path], consumers: RunningConsumers, name: str
) -> None:
    rows, root = dumped(name, "orders_1"), golden(name)
    with unchanged(root):
        key = next(
            each["properties"]["KEYS"].split()[0]
            for each in rows.values()
            if {"UNIQ_KEY", "KEYS"} <= each["properties"].keys() and each["bodyLength"]
        )
        with served(root) as port:
            address = f"127.0.0.1:{port}"
            found = asked(consumers, port, address, "orders_1", "watching", key, "none")
    ends = {
        json.loads(queue)["queueId"]: each["maxOffset"]
        for queue, each in found["topicStats"]["offsetTable"].items()
    }
    assert ends == {
        queue: max((at for _, of_row, at in rows if of_row == queue), default=-1) + 1
        for queue in ends
    }
    refusals = {key for key, each in found.items() if isinstance(each, str)}
    expected = {"connectionOfOther", "producers", "runningElsewhere", "statistics", "lagOfOther"}
    # The client looks for a unique key in the last 36 hours alone, and asks the address in an id.
    assert refusals - {"byId", "byOffsetId"} <= expected, found
