"""Figures by topic and group as Prometheus reads them, under our names and under RocketMQ's.

The queries are those of the dashboard and the rules of ``rocketmq-exporter``, without the labels
``Cluster`` and ``Env`` that a scrape's configuration adds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cqstore.metrics import topic_families
from cqstore.metrics.prometheus import register
from cqstore.metrics.topic_families import ROCKETMQ, BrokerLabels
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, rocksdb_memory_bytes=16 << 20)
BROKER = BrokerLabels("broker-a", "MQCluster")
DASHBOARD = """
sum(rocketmq_group_diff{topic=~"$topic",group=~"$group"}) by (group,topic) > 100000
sum(rocketmq_group_retrydiff{group=~"$group"}) by (group)
max(rocketmq_group_get_latency_by_storetime{broker=~"$broker",group=~"$group",topic=~"$topic"}) by(group, topic, broker)
rocketmq_broker_qps{broker=~"$broker"}
rocketmq_broker_tps{broker=~"$broker"}
rocketmq_brokeruntime_commitlog_disk_ratio{}*100
rocketmq_brokeruntime_commitlog_maxoffset{} - rocketmq_brokeruntime_commitlog_minoffset{}
rocketmq_brokeruntime_dispatch_behind_bytes{}
rocketmq_consumer_offset{broker=~"$broker",topic=~"$topic"}
rocketmq_producer_offset{broker=~"$broker",topic=~"$topic"}
sum by(topic)(rocketmq_producer_tps{broker=~"$broker",topic=~"$topic"})
rocketmq_topic_dlq_offset{broker=~"$broker"}
rocketmq_topic_retry_offset{broker=~"$broker"}
sum(rocketmq_producer_message_size{broker=~"$broker",topic=~"$topic"}) by(topic)
sum(rocketmq_producer_tps) by (cluster) >= 10
(sum(rocketmq_producer_offset) by (topic) - on(topic) group_right sum(rocketmq_consumer_offset) by (group,topic))
rocketmq_group_get_latency_by_storetime > 1000
"""  # noqa: E501
_BY = re.compile(r"by ?\(([^)]*)\)")
_METRIC = re.compile(r"\brocketmq_[a-z_]+")
_LABEL = re.compile(r"(\w+)=~")


class Offsets:
    """Offsets of groups."""

    def __init__(self, rows: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        self.rows = dict(rows)

    def page(self, at: int, count: int) -> Sequence[tuple[str, str, Mapping[int, int]]]:
        return [(*key, row) for key, row in self.rows.items()][at : at + count]

    def of_topic(self, group: str, topic: str) -> Mapping[int, int]:
        return self.rows.get((group, topic), {})


PUT = {"orders": 6, "%RETRY%billing": 3, "%DLQ%billing": 2, "rmq_sys_x": 1}
OFFSETS = Offsets({("billing", "orders"): {0: 2}, ("billing", "%RETRY%billing"): {0: 1}})


def samples_of(registry: CollectorRegistry) -> list[Sample]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return [sample for family in families for sample in family.samples]


@pytest.fixture(params=["file", "rocksdb"])
def scraped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Sample]]:
    """The second scrape: the first tells no rates."""
    registry = CollectorRegistry()
    with MessageStore.open(tmp_path, CONFIG, backend=request.param) as store:
        register(
            store, offsets={store: OFFSETS}, brokers={store: BROKER}, topics=5, registry=registry
        )
        samples_of(registry)
        for topic, count in PUT.items():
            for _ in range(count):
                assert store.put_message(Message(topic, b"x")).ok
            if topic == "orders":
                store.flush()  # a part of the log alone
        assert store.max_offset("orders", 0) == 6
        store.get_message("orders", 0, 0)
        yield samples_of(registry)


def found(samples: list[Sample], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(each.labels[label] for label in labels): each.value
        for each in samples
        if each.name == name
    }


def test_each_query_of_the_dashboard_finds_its_metrics_and_labels(scraped: list[Sample]) -> None:
    labels: dict[str, set[str]] = {}
    for sample in scraped:
        labels.setdefault(sample.name, {*sample.labels}).intersection_update(sample.labels)
    for query in filter(None, DASHBOARD.splitlines()):
        names = _METRIC.findall(query)
        requested = {*_LABEL.findall(query)}
        if len(names) == 1:
            requested |= {each.strip() for by in _BY.findall(query) for each in by.split(",")}
        for name in names:
            assert name in labels, query
            assert requested <= labels[name], query


def test_offsets_are_those_of_the_queues_by_the_kind_of_topic(scraped: list[Sample]) -> None:
    where = ("MQCluster", "broker-a")
    names = ("cluster", "broker", "topic")
    assert found(scraped, "rocketmq_producer_offset", *names) == {
        (*where, "orders"): 6, (*where, "rmq_sys_x"): 1,
    }  # fmt: skip
    retries = found(scraped, "rocketmq_topic_retry_offset", *names)
    assert retries == {(*where, "%RETRY%billing"): 3}
    dead = found(scraped, "rocketmq_topic_dlq_offset", "cluster", "broker", "group")
    assert dead == {(*where, "billing"): 2}
    system = found(scraped, "rocketmq_messages_in_total", "topic", "is_system", "node_id")
    assert system["rmq_sys_x", "true", "broker-a"] == 1
    assert system["orders", "false", "broker-a"] == 6


def test_the_accumulation_is_the_difference_that_the_rule_makes(scraped: list[Sample]) -> None:
    put = found(scraped, "rocketmq_producer_offset", "topic")
    consumed = found(scraped, "rocketmq_consumer_offset", "topic", "group")
    accumulated = found(scraped, "rocketmq_message_accumulation", "topic", "group")
    assert accumulated["orders", "billing"] == put["orders",] - consumed["orders", "billing"] == 4
    assert found(scraped, "rocketmq_group_diff", "topic", "msgModel") == {("orders", "1"): 4}
    assert found(scraped, "rocketmq_group_retrydiff", "group") == {("billing",): 2}
    lag = found(scraped, "rocketmq_consumer_lag_messages", "consumer_group", "topic", "is_retry")
    assert lag == {("billing", "orders", "false"): 4, ("billing", "%RETRY%billing", "true"): 2}


def test_rates_of_topics_and_others_sum_up_to_the_brokers(scraped: list[Sample]) -> None:
    rates = found(scraped, "rocketmq_producer_tps", "topic")
    ((whole,),) = [[*found(scraped, "rocketmq_broker_tps", "broker").values()]]
    seconds = sum(PUT.values()) / whole
    assert {topic: round(rate * seconds) for (topic,), rate in rates.items()} == {
        "orders": 6, "rmq_sys_x": 1, "(others)": 0
    }  # fmt: skip
    ours = found(scraped, "cqstore_topic_puts_per_second", "topic")
    assert sum(ours.values()) * seconds == pytest.approx(sum(PUT.values()))
    assert found(scraped, "cqstore_group_lag", "topic", "group") == {
        ("orders", "billing"): 4, ("%RETRY%billing", "billing"): 2
    }  # fmt: skip
    ((pulled,),) = [[*found(scraped, "rocketmq_broker_qps", "broker").values()]]
    assert round(pulled * seconds) == 6


def test_the_names_are_rocketmqs(scraped: list[Sample]) -> None:
    reported = {
        each.name.removesuffix("_total") for each in scraped if each.name[:9] == "rocketmq_"
    }
    assert reported == {*ROCKETMQ}


def test_figures_of_the_broker_are_the_stores(scraped: list[Sample]) -> None:
    def ours(name: str) -> float:
        (value,) = found(scraped, f"cqstore_{name}").values()
        return value

    end, flushed = ours("log_max_phy_offset_bytes"), ours("log_flushed_phy_offset_bytes")
    for name, value in {
        "brokeruntime_commitlog_maxoffset": end,
        "brokeruntime_commitlog_minoffset": ours("log_min_phy_offset_bytes"),
        "brokeruntime_dispatch_behind_bytes": ours("dispatch_lag_bytes"),
        "brokeruntime_remain_howmanydata_toflush": end - flushed,
        "storage_flush_behind_bytes": end - flushed,
        "storage_dispatch_behind_bytes": ours("dispatch_lag_bytes"),
    }.items():
        assert [*found(scraped, f"rocketmq_{name}").values()] == [value], name


def test_the_age_of_a_lag_is_that_of_its_next_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = CollectorRegistry()
    rows = Offsets({("g", "t"): {0: 1}, ("h", "t"): {0: 2}})
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_messages([Message("t", b"x")] * 3)
        stored = store.get_message("t", 0, 2).messages()[0].store_timestamp
        monkeypatch.setattr(
            topic_families, "time", SimpleNamespace(time_ns=lambda: (stored + 1234) * 1_000_000)
        )
        register(store, offsets={store: rows}, brokers={store: BROKER}, topics=1, registry=registry)
        samples = samples_of(registry)
    assert found(samples, "cqstore_group_lag", "topic", "group") == {
        ("t", "g"): 2, ("(others)", "(others)"): 1
    }  # fmt: skip
    assert [*found(samples, "cqstore_group_lag_seconds").values()] == [1.234]
    assert [*found(samples, "rocketmq_group_get_latency_by_storetime").values()] == [1234]


def test_series_are_bounded_and_not_there_unless_wanted(tmp_path: Path) -> None:
    bounded, none = CollectorRegistry(), CollectorRegistry()
    with MessageStore.open(tmp_path, CONFIG) as store:
        register(store, topics=3, registry=bounded)
        register(store, topics=0, registry=none)
        for number in range(50):
            store.put_message(Message(f"t{number}", b"x"))
        store.max_offset("t0", 0)
        samples_of(bounded)
        topics = found(samples_of(bounded), "cqstore_topic_puts_per_second", "topic")
        assert len(topics) == 3 + 1
        names = {each.name for each in samples_of(none)}
        assert not [name for name in names if "topic" in name or "rocketmq_" in name]
        with pytest.raises(StoreConfigError, match="topics must be at least 1"):
            register(store, brokers={store: BROKER}, topics=0, registry=CollectorRegistry())
