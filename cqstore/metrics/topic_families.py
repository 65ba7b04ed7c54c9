"""Prometheus metrics by topic and group, under cqstore's and RocketMQ's names.

Sources: RocketMQ ``BrokerMetricsConstant``, ``DefaultStoreMetricsConstant``, and the collector of
``rocketmq-exporter``, ``RMQMetricsCollector``. A label whose value is unknown here is empty.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cqstore.store.log.tail_topics import OTHERS
from cqstore.store.record.message import DLQ_PREFIX, RETRY_PREFIX
from cqstore.store.record.topic_names import is_system_topic
from cqstore.store.service.metrics.by_group import GroupFigures
from cqstore.store.service.metrics.by_topic import TopicFigures, TopicSnapshot
from cqstore.store.service.metrics.metrics import MetricsSnapshot

Sample = tuple[str, tuple[str, ...], float]
"""Metric name, label values, value."""
_OURS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_topic_offset": ("Messages ever put to a busy topic", ("topic",)),
    "cqstore_topic_messages": ("Messages of a busy topic still in the log", ("topic",)),
    "cqstore_topic_puts_per_second": (
        "Messages put per second since the last scrape",
        ("topic",),
    ),
    "cqstore_topic_bytes_per_second": (
        "Record bytes put per second since the last scrape, estimated from a sample",
        ("topic",),
    ),
    "cqstore_group_offset": (
        "Sum of the consumer offsets of a lagging group in a topic",
        ("topic", "group"),
    ),
    "cqstore_group_lag": ("Messages not consumed by a group", ("topic", "group")),
    "cqstore_group_lag_seconds": (
        "Age of the oldest message in the log not consumed by a group in seconds",
        ("topic", "group"),
    ),
}
_TOPIC, _GROUP = ("cluster", "broker", "topic"), ("cluster", "broker", "topic", "group")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_BROKER = ("cluster", "brokerIP", "broker")
_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_NODE = ("cluster", "node_type", "node_id")
_STORAGE = (*_NODE, "storage_type", "storage_medium")
_IN = (*_NODE, "topic", "message_type", "is_system")
_LAG = (*_NODE, "consumer_group", "topic", "is_retry", "is_system")
ROCKETMQ: dict[str, tuple[str, tuple[str, ...]]] = {
    "rocketmq_producer_offset": ("Sum of the max offsets of a topic", _TOPIC),
    "rocketmq_topic_retry_offset": ("Sum of the max offsets of a retry topic", _TOPIC),
    "rocketmq_topic_dlq_offset": (
        "Sum of the max offsets of a dead-letter topic",
        ("cluster", "broker", "group"),
    ),
    "rocketmq_producer_tps": ("Messages put to a topic per second", _TOPIC),
    "rocketmq_producer_message_size": ("Bytes put to a topic per second", _TOPIC),
    "rocketmq_consumer_offset": ("Sum of the consumer offsets of a group in a topic", _GROUP),
    "rocketmq_message_accumulation": ("Messages not consumed by a group", _GROUP),
    "rocketmq_group_diff": ("Messages not consumed by a group", _DIFF),
    "rocketmq_group_retrydiff": ("Messages of a retry topic not consumed by a group", _DIFF),
    "rocketmq_group_get_latency_by_storetime": (
        "Age of the oldest message not consumed by a group in ms",
        _GROUP,
    ),
    "rocketmq_broker_tps": ("Messages put per second", _BROKER),
    "rocketmq_broker_qps": ("Messages pulled per second", _BROKER),
    "rocketmq_brokeruntime_dispatch_behind_bytes": ("Log bytes not dispatched yet", _RUNTIME),
    "rocketmq_brokeruntime_commitlog_maxoffset": ("Max phy offset of the log", _RUNTIME),
    "rocketmq_brokeruntime_commitlog_minoffset": ("Min phy offset of the log", _RUNTIME),
    "rocketmq_brokeruntime_commitlog_disk_ratio": ("Used share of the log's disk", _RUNTIME),
    "rocketmq_brokeruntime_consumequeue_disk_ratio": ("Used share of the queues' disk", _RUNTIME),
    "rocketmq_brokeruntime_remain_howmanydata_toflush": ("Log bytes not flushed yet", _RUNTIME),
    "rocketmq_storage_flush_behind_bytes": ("Log bytes not flushed yet", _STORAGE),
    "rocketmq_storage_dispatch_behind_bytes": ("Log bytes not dispatched yet", _STORAGE),
    "rocketmq_messages_in": ("Messages ever put to a topic", _IN),
    "rocketmq_consumer_lag_messages": ("Messages not consumed by a group", _LAG),
    "rocketmq_consumer_lag_latency": (
        "Age of the oldest message not consumed by a group in ms",
        _LAG,
    ),
    "rocketmq_consumer_lag_latency_milliseconds": (
        "Age of the oldest message not consumed by a group in ms (name in newer brokers)",
        _LAG,
    ),
}
_COUNTERS = {"rocketmq_messages_in"}
_CLUSTERING = "1"
"""``MessageModel.CLUSTERING``, the model of a group that keeps offsets in a broker."""


class BrokerLabels(NamedTuple):
    """Labels of a store's metrics under RocketMQ's names."""

    broker: str
    """``brokerName``."""
    cluster: str = "DefaultCluster"
    """``brokerClusterName``."""


class TopicFamilies:
    """The metric families of one scrape that have figures by topic and group."""

    def __init__(self, *, rocketmq: bool) -> None:
        """``rocketmq``: also create the families under RocketMQ's names."""
        ours = {name: (text, ("store", *labels)) for name, (text, labels) in _OURS.items()}
        self._families = {
            name: (CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily)(
                name, text, labels=labels
            )
            for name, (text, labels) in (ours | (ROCKETMQ if rocketmq else {})).items()
        }

    def metrics(self) -> list[Metric]:
        """Return the metric families with the samples added so far."""
        return [*self._families.values()]

    def add(self, root: str, found: TopicSnapshot) -> None:
        """Add the figures of one store under cqstore's names."""
        for name, labels, value in _ours(found):
            self._families[name].add_metric((root, *labels), value)

    def add_rocketmq(self, of: BrokerLabels, store: MetricsSnapshot, found: TopicSnapshot) -> None:
        """Add the figures of one store under RocketMQ's names."""
        samples = (_of_broker(of, store, found), _of_topics(of, found), _of_groups(of, found))
        for name, labels, value in (sample for each in samples for sample in each):
            self._families[name].add_metric(labels, value)


def _ours(found: TopicSnapshot) -> Iterator[Sample]:
    """Yield the samples by topic and group under cqstore's names."""
    for each in found.topics:
        yield "cqstore_topic_offset", (each.topic,), each.offset
        yield "cqstore_topic_messages", (each.topic,), each.messages
    yield from _rates("cqstore_topic_puts_per_second", (), _puts(found))
    yield from _rates("cqstore_topic_bytes_per_second", (), _bytes(found))
    for group in found.groups.groups:
        labels = group.topic, group.group
        yield "cqstore_group_offset", labels, group.offset
        yield "cqstore_group_lag", labels, group.lag
        yield "cqstore_group_lag_seconds", labels, _age_ms(group) / 1000
    if found.groups.others_lag:
        yield "cqstore_group_lag", (OTHERS, OTHERS), found.groups.others_lag


def _puts(found: TopicSnapshot) -> Iterator[tuple[str, float | None]]:
    yield from ((each.topic, each.puts_per_second) for each in found.topics)
    yield OTHERS, found.others_per_second


def _bytes(found: TopicSnapshot) -> Iterator[tuple[str, float | None]]:
    yield from ((each.topic, each.bytes_per_second) for each in found.topics)
    yield OTHERS, found.others_bytes_per_second


def _rates(
    name: str, before: tuple[str, ...], rates: Iterable[tuple[str, float | None]]
) -> Iterator[Sample]:
    """Yield the known rates; the first sample has no rates."""
    yield from ((name, (*before, topic), rate) for topic, rate in rates if rate is not None)


def _of_broker(of: BrokerLabels, store: MetricsSnapshot, found: TopicSnapshot) -> Iterator[Sample]:
    """Yield the samples of the broker under RocketMQ's names."""
    if found.puts_per_second is not None and found.gets_per_second is not None:
        labels = of.cluster, "", of.broker
        yield "rocketmq_broker_tps", labels, found.puts_per_second
        yield "rocketmq_broker_qps", labels, found.gets_per_second
    runtime = of.cluster, "", of.broker, "", "", ""
    storage = of.cluster, "broker", of.broker, "local", "disk"
    unflushed = store.max_phy_offset - store.flushed_phy_offset
    for name, value in (
        ("dispatch_behind_bytes", store.dispatch_lag_bytes),
        ("commitlog_maxoffset", store.max_phy_offset),
        ("commitlog_minoffset", store.min_phy_offset),
        ("commitlog_disk_ratio", store.log_disk_used_ratio),
        ("consumequeue_disk_ratio", store.queue_disk_used_ratio),
        ("remain_howmanydata_toflush", unflushed),
    ):
        yield f"rocketmq_brokeruntime_{name}", runtime, value
    yield "rocketmq_storage_flush_behind_bytes", storage, unflushed
    yield "rocketmq_storage_dispatch_behind_bytes", storage, store.dispatch_lag_bytes


def _of_topics(of: BrokerLabels, found: TopicSnapshot) -> Iterator[Sample]:
    """Yield the samples of topics under RocketMQ's names."""
    where = of.cluster, of.broker
    for each in found.topics:
        yield _offset_of(each, where)
        node = of.cluster, "broker", of.broker
        labels = *node, each.topic, "", _is_system(each.topic)
        yield "rocketmq_messages_in", labels, each.offset
    puts = (each for each in _puts(found) if not _is_retry(each[0]))
    yield from _rates("rocketmq_producer_tps", where, puts)
    sizes = (each for each in _bytes(found) if not _is_retry(each[0]))
    yield from _rates("rocketmq_producer_message_size", where, sizes)


def _offset_of(each: TopicFigures, where: tuple[str, str]) -> Sample:
    """Return the sample of a topic's max offset; its name depends on the kind of topic."""
    if each.topic.startswith(DLQ_PREFIX):
        group = each.topic.removeprefix(DLQ_PREFIX)
        return "rocketmq_topic_dlq_offset", (*where, group), each.offset
    retry = each.topic.startswith(RETRY_PREFIX)
    name = "rocketmq_topic_retry_offset" if retry else "rocketmq_producer_offset"
    return name, (*where, each.topic), each.offset


def _of_groups(of: BrokerLabels, found: TopicSnapshot) -> Iterator[Sample]:
    """Yield the samples of consumer groups under RocketMQ's names."""
    for each in found.groups.groups:
        labels = of.cluster, of.broker, each.topic, each.group
        yield "rocketmq_consumer_offset", labels, each.offset
        yield "rocketmq_message_accumulation", labels, each.lag
        yield "rocketmq_group_get_latency_by_storetime", labels, _age_ms(each)
        is_retry = each.topic.startswith(RETRY_PREFIX)
        name = "rocketmq_group_retrydiff" if is_retry else "rocketmq_group_diff"
        yield name, (each.group, each.topic, "", _CLUSTERING), each.lag
        node = of.cluster, "broker", of.broker, each.group, each.topic
        kinds = str(is_retry).lower(), _is_system(each.topic)
        yield "rocketmq_consumer_lag_messages", (*node, *kinds), each.lag
        for latency in (
            "rocketmq_consumer_lag_latency",
            "rocketmq_consumer_lag_latency_milliseconds",
        ):
            yield latency, (*node, *kinds), _age_ms(each)


def _is_retry(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _is_system(topic: str) -> str:
    return str(is_system_topic(topic)).lower()


def _age_ms(group: GroupFigures) -> int:
    if group.next_timestamp is None:
        return 0
    return max(time.time_ns() // 1_000_000 - group.next_timestamp, 0)
