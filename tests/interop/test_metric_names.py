"""Figures under RocketMQ's names, beside those that a broker of RocketMQ's shows to Prometheus."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cqstore.metrics.prometheus import register
from cqstore.metrics.topic_families import BrokerLabels
from cqstore.store.service.message_store import MessageStore
from tests.interop.brokers import Brokers
from tests.interop.walk import registered
from tests.kit.waiting import until

pytestmark = pytest.mark.interop
OFFSETS = {0: 1, 1: 1, 2: 0, 3: 1}
"""None behind the first five messages, for a client sends three more to queues that it chooses."""
LAG = 8 - sum(OFFSETS.values())
BOTH = {
    "rocketmq_storage_flush_behind_bytes", "rocketmq_storage_dispatch_behind_bytes",
    "rocketmq_messages_in_total", "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
}  # fmt: skip
"""The others are those of ``rocketmq-exporter``."""


class Offsets:
    def page(self, at: int, count: int) -> Sequence[tuple[str, str, Mapping[int, int]]]:
        return [] if at else [("g0", "orders", OFFSETS)]

    def of_topic(self, group: str, topic: str) -> Mapping[int, int]:
        return OFFSETS


def samples(text: str) -> dict[str, Sample]:
    """Return one sample of each name, of the topic ``orders`` where it has a topic."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("topic", "orders") == "orders":
                found[sample.name] = sample
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_names_and_labels_are_those_of_a_broker(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    port, root = free_port(), tmp_path / "store"
    settings = {
        "metricsExporterType": "PROM", "metricsPromExporterPort": port,
        "metricsPromExporterHost": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20,
        "enablePropertyFilter": "true", **names,
    }  # fmt: skip

    theirs = dict[str, Sample]()

    def are_reported() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found = samples(answer.read().decode())
        theirs.clear()
        theirs.update(found)
        return {*theirs} >= BOTH and theirs["rocketmq_consumer_lag_messages"].value == LAG

    with brokers.running(root, **settings) as broker:
        registered(broker, "orders")
        broker.do("groups", "g", 1)
        broker.do("put", "orders", 4, 5)
        for queue_id, offset in OFFSETS.items():
            broker.do("offset", "orders", "g0", queue_id, offset)
        broker.do("subscribe", "g0", "orders", "a", "IS", "NOT", "NULL", "OR", "a", "IS", "NULL")
        broker.do("delayed", "orders", 0, 3, "sent")  # by a client: these alone a broker counts
        until(are_reported, lambda: ("missing", BOTH - {*theirs}, "told", theirs))
    registry = CollectorRegistry()
    with MessageStore.open(root, read_only=True, housekeeping=False) as store:
        register(
            store, offsets={store: Offsets()}, brokers={store: BrokerLabels("a", "c")},
            registry=registry,
        )  # fmt: skip
        ours = samples(generate_latest(registry).decode())
    for name in BOTH:
        known = {**theirs[name].labels}
        del known["otel_scope_name"]
        if "message_type" in known:  # which the store does not know
            known["message_type"] = ""
        assert ours[name].labels == known, name
    assert ours["rocketmq_consumer_lag_messages"].value == LAG
