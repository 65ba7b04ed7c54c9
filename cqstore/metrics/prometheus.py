"""Metrics of open stores for Prometheus, exported by the process that has them open.

Needs ``prometheus_client`` (``pip install cqstore[metrics]``); nothing else imports this module.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as exc:
    raise ImportError("this needs prometheus-client: pip install 'cqstore[metrics]'") from exc

from cqstore.ab.mirror.mirror import MirrorSnapshot
from cqstore.metrics.topic_families import BrokerLabels, TopicFamilies
from cqstore.store.errors import StoreConfigError, StoreError
from cqstore.store.journals.following import Following
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.by_group import GroupOffsets
from cqstore.store.service.metrics.by_topic import LIMIT, FiguresByTopic, TopicSnapshot
from cqstore.store.service.metrics.cleaning import CleaningFigures
from cqstore.store.service.metrics.metrics import MetricsSnapshot
from cqstore.store.service.runtime.histogram_snapshot import HistogramSnapshot
from cqstore.store.service.scheduling.level_delivery import DelayLevelFigures

_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_put_seconds": (
        "Duration of put calls in seconds (single-message calls are sampled unless SYNC_FLUSH)",
        ("call",),
    ),
    "cqstore_get_seconds": ("Duration of pulls in seconds", ()),
    "cqstore_flush_seconds": ("Duration of commit log flushes in seconds", ()),
    "cqstore_delay_late_seconds": (
        "Time between the due time and the delivery of delayed messages in seconds",
        (),
    ),
    "cqstore_ab_seconds": (
        "Duration of reads on one backend in seconds: served, or repeated by the mirror",
        ("op", "side", "way"),
    ),
}
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_put_messages": ("Messages stored", ()),
    "cqstore_put_bytes": ("Bytes of stored records", ()),
    "cqstore_put_fallbacks": ("Messages stored without the fast path", ()),
    "cqstore_reput_batches": ("Batches dispatched by the dispatch thread", ()),
    "cqstore_listener_failures": ("Arrival listener calls that raised an exception", ()),
    "cqstore_arrivals_dropped": ("Units not reported to arrival listeners that were too slow", ()),
    "cqstore_put_hooked": ("Messages passed to put hooks", ()),
    "cqstore_put_hook_refusals": ("Messages rejected by put hooks", ()),
    "cqstore_put_hook_failures": ("Put hook calls that failed", ()),
    "cqstore_dispatcher_records": ("Records processed by every dispatcher", ()),
    "cqstore_dispatcher_failures": ("Dispatcher calls that failed", ()),
    "cqstore_delay_delivered": ("Delayed messages delivered to their topics", ("level",)),
    "cqstore_delay_failures": ("Delayed messages that were skipped", ("level",)),
    "cqstore_put_not_ok": (
        "Messages rejected, or stored but not flushed in time, by status",
        ("status",),
    ),
    "cqstore_gets": ("Pulls by status", ("status",)),
    "cqstore_get_messages": ("Messages returned by pulls", ()),
    "cqstore_get_bytes": ("Bytes of the records returned by pulls", ()),
    "cqstore_read_fallbacks": (
        "Pulls, time searches and key queries answered without the fast path",
        ("kind", "reason"),
    ),
    "cqstore_cleaned_topics": ("Topics deleted by the cleaning service", ("rule",)),
    "cqstore_cleaned_queue_bytes": ("Size of the queues of the topics deleted by it", ()),
    "cqstore_clean_rounds": ("Rounds of the cleaning service, also failed ones", ()),
    "cqstore_clean_failures": ("Rounds of the cleaning service that failed", ()),
    "cqstore_ab_reads": ("Mirrored reads by outcome", ("op", "outcome")),
    "cqstore_ab_dropped": ("Reads not mirrored because the queue of the mirror was full", ()),
}
_FOLLOWER_COUNTERS = {
    "cqstore_follow_connections": "Connections established to the master",
    "cqstore_follow_body_bytes": "Log bytes received, including bytes that were already stored",
}
_FOLLOWER_GAUGES = {
    "cqstore_follow_connected": "1 if the master is connected",
    "cqstore_follow_verified": "1 if the master has sent the bytes at the end of the local log",
    "cqstore_follow_caught_up": "1 if the local log has all bytes of the master's log",
    "cqstore_follow_phy_offset_bytes": "Max phy offset of the local log",
    "cqstore_follow_reported_phy_offset_bytes": "Phy offset last reported to the master",
    "cqstore_follow_lag_bytes": "Bytes of the master's log that are missing, if known",
    "cqstore_follow_last_stored_seconds": "Last record's store time in seconds since the epoch",
    "cqstore_follow_metadata_seconds": "Last transfer of all tables in seconds since the epoch",
}
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_up": ("1 if the store is open and responds", ()),
    "cqstore_failed": ("1 if a write or flush failed and the store rejects writes", ()),
    "cqstore_dispatch_stalled": (
        "1 if the disk has no space for units or keys, and puts are rejected until it has",
        (),
    ),
    "cqstore_dispatch_lag_bytes": ("Log bytes that are possibly not dispatched yet", ()),
    "cqstore_dispatch_lag_seconds": ("Age of the oldest undispatched record in seconds", ()),
    "cqstore_reput_active": ("1 if the dispatch thread dispatches full batches", ()),
    "cqstore_append_seconds": ("Duration of the append in progress in seconds, 0 if none", ()),
    "cqstore_page_cache_busy": ("1 if the append in progress has taken more than one second", ()),
    "cqstore_log_min_phy_offset_bytes": ("Min phy offset of the commit log", ()),
    "cqstore_log_max_phy_offset_bytes": ("Max phy offset of the commit log", ()),
    "cqstore_log_flushed_phy_offset_bytes": ("Phy offset up to which the log is flushed", ()),
    "cqstore_delay_waiting": ("Delayed messages not delivered yet, due or not", ("level",)),
    "cqstore_delay_lag_seconds": (
        "How long the next delayed message is overdue in seconds",
        ("level",),
    ),
    "cqstore_clean_selected": ("Topics to delete in the last round, deleted unless a dry run", ()),
    "cqstore_clean_kept": ("Topics that a rule selected and the last round kept", ("reason",)),
    "cqstore_clean_last_seconds": ("End of the last round in seconds since the epoch", ()),
    "cqstore_ab_failed": ("1 if the mirror failed and reads are no longer mirrored", ()),
    "cqstore_ab_waiting": ("Reads waiting to be mirrored", ()),
    "cqstore_disk_used_ratio": ("Used share of the file system of a folder, 0 to 1", ("folder",)),
}


class Followed(Protocol):
    """A follower that reports its progress: ``cqstore.replication.follow.follower.Follower``."""

    @property
    def root(self) -> Path:
        """Return the root of the follower's store."""

    def figures(self) -> Following:
        """Return the follower's progress; any thread may call this."""


class StoreCollector(Collector):
    """Collector for stores and followers; the label ``store`` is the root of each.

    A store that is closed or cannot be read has ``cqstore_up`` 0 and no other sample.
    """

    def __init__(
        self,
        stores: Sequence[MessageStore],
        followers: Sequence[Followed] = (),
        topics: int = 0,
        offsets: Mapping[MessageStore, GroupOffsets] | None = None,
        brokers: Mapping[MessageStore, BrokerLabels] | None = None,
    ) -> None:
        """See ``register``."""
        self._stores, self._followers = list(stores), list(followers)
        self._brokers, given = brokers or {}, offsets or {}
        self._by_topic = {
            store: store.metrics.by_topic(topics, given.get(store))
            for store in self._stores
            if topics > 0
        }

    def describe(self) -> Iterable[Metric]:
        """Return the metrics of every store without samples; reads no store."""
        return [*self._families().metrics(), *self._topic_families().metrics()]

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics; the registry calls this from any thread."""
        families, by_topic = self._families(), self._topic_families()
        for follower in self._followers:
            families.add_follower(str(follower.root), follower.figures())
        for store in self._stores:
            root = str(store.root)
            try:
                snapshot = store.metrics.snapshot()
            except StoreError:
                families.gauge("cqstore_up", root, 0)
                continue
            families.add(root, snapshot)
            if (found := _looked(self._by_topic.get(store))) is not None:
                by_topic.add(root, found)
                if (labels := self._brokers.get(store)) is not None:
                    by_topic.add_rocketmq(labels, snapshot, found)
        return [*families.metrics(), *by_topic.metrics()]

    def _families(self) -> "_Families":
        return _Families(follow=bool(self._followers))

    def _topic_families(self) -> TopicFamilies:
        return TopicFamilies(rocketmq=bool(self._brokers))


def _looked(figures: FiguresByTopic | None) -> TopicSnapshot | None:
    """Return the figures by topic; ``None`` if not requested, or if a queue cannot be read."""
    try:
        return None if figures is None else figures.sample()
    except StoreError:
        return None


def register(
    *stores: MessageStore,
    followers: Sequence[Followed] = (),
    topics: int = LIMIT,
    offsets: Mapping[MessageStore, GroupOffsets] | None = None,
    brokers: Mapping[MessageStore, BrokerLabels] | None = None,
    registry: CollectorRegistry = REGISTRY,
) -> StoreCollector:
    """Register one collector for ``stores`` in the registry that the embedder serves.

    ``followers`` run in this process and get their own series. ``topics`` is the number of busiest
    topics per store that get their own series, and the number of rows of groups for stores in
    ``offsets``, which maps a store to the owner of its group offsets; 0 for no such series. Stores
    in ``brokers`` are also exported under RocketMQ's metric names, for existing dashboards.

    Pass the result to ``registry.unregister`` to stop the export.

    Raises:
        StoreConfigError: the registry already has such a collector: register all stores of a
            process in one call. Or ``brokers`` is given and ``topics`` is 0.
    """
    if brokers and topics < 1:
        raise StoreConfigError("brokers needs figures by topic: topics must be at least 1")
    collector = StoreCollector(stores, followers, topics, offsets, brokers)
    try:
        registry.register(collector)
    except ValueError as exc:
        raise StoreConfigError(
            f"cannot register the stores: {exc}. Register all stores of a process in one call"
        ) from exc
    return collector


class _Families:
    """Metric families of one scrape with figures of whole stores and followers."""

    def __init__(self, *, follow: bool) -> None:
        self._gauges = {
            name: GaugeMetricFamily(name, text, labels=("store", *labels))
            for name, (text, labels) in _GAUGES.items()
        }
        self._counters = {
            name: CounterMetricFamily(name, text, labels=("store", *labels))
            for name, (text, labels) in _COUNTERS.items()
        }
        self._histograms = {
            name: HistogramMetricFamily(name, text, labels=("store", *labels))
            for name, (text, labels) in _HISTOGRAMS.items()
        }
        if follow:
            for name, text in _FOLLOWER_GAUGES.items():
                self._gauges[name] = GaugeMetricFamily(name, text, labels=("store",))
            for name, text in _FOLLOWER_COUNTERS.items():
                self._counters[name] = CounterMetricFamily(name, text, labels=("store",))

    def metrics(self) -> list[Metric]:
        """Return the metric families with the samples added so far."""
        families = (self._gauges, self._counters, self._histograms)
        return [metric for family in families for metric in family.values()]

    def gauge(self, name: str, root: str, value: float, *labels: str) -> None:
        """Add one sample to the gauge ``name``."""
        self._gauges[name].add_metric((root, *labels), value)

    def add_follower(self, root: str, of: Following) -> None:
        """Add all samples of one follower."""
        self.gauge("cqstore_follow_connected", root, of.connected)
        self.gauge("cqstore_follow_verified", root, of.verified)
        self.gauge("cqstore_follow_caught_up", root, of.caught_up)
        self.gauge("cqstore_follow_phy_offset_bytes", root, of.end)
        for name, value in (
            ("cqstore_follow_reported_phy_offset_bytes", of.reported),
            ("cqstore_follow_lag_bytes", -1 if of.lag_bytes is None else of.lag_bytes),
            ("cqstore_follow_last_stored_seconds", of.last_stored_ms / 1000 or -1),
            ("cqstore_follow_metadata_seconds", of.metadata_time or -1),
        ):
            if value >= 0:  # a negative value means unknown
                self.gauge(name, root, value)
        self._counters["cqstore_follow_connections"].add_metric((root,), of.connections)
        self._counters["cqstore_follow_body_bytes"].add_metric((root,), of.body_bytes)

    def add(self, root: str, of: MetricsSnapshot) -> None:
        """Add all samples of one store."""
        for name, labels, value in _gauge_samples(of):
            self.gauge(name, root, value, *labels)
        for name, labels, value in _counter_samples(of):
            self._counters[name].add_metric((root, *labels), value)
        for name, labels, histogram in (
            ("cqstore_put_seconds", ("one",), of.put_seconds),
            ("cqstore_put_seconds", ("list",), of.put_list_seconds),
            ("cqstore_get_seconds", (), of.get_seconds),
            ("cqstore_flush_seconds", (), of.flush_seconds),
        ):
            self._histograms[name].add_metric(
                (root, *labels), list(_buckets(histogram)), histogram.total_seconds
            )
        if of.delay_late_seconds is not None:
            self._add_delays(root, of.delay_levels, of.delay_late_seconds)
        if of.cleaning is not None:
            self._add_cleaning(root, of.cleaning)
        if isinstance(of.interceptor, MirrorSnapshot):
            self._add_mirror(root, of.interceptor)
        for name, part, value in of.queue_stats:
            known_as = f"cqstore_{name}"
            if known_as not in self._gauges:
                text = "Statistic reported by a queue backend"
                self._gauges[known_as] = GaugeMetricFamily(known_as, text, labels=("store", "part"))
            self.gauge(known_as, root, value, part)

    def _add_delays(
        self, root: str, levels: Iterable[DelayLevelFigures], late: HistogramSnapshot
    ) -> None:
        """Add the samples of the delay levels."""
        for each in levels:
            level = str(each.level)
            self._counters["cqstore_delay_delivered"].add_metric((root, level), each.delivered)
            self._counters["cqstore_delay_failures"].add_metric((root, level), each.failures)
            self.gauge("cqstore_delay_waiting", root, each.waiting, level)
            if each.lag_ms is not None:
                self.gauge("cqstore_delay_lag_seconds", root, each.lag_ms / 1000, level)
        self._histograms["cqstore_delay_late_seconds"].add_metric(
            (root,), list(_buckets(late)), late.total_seconds
        )

    def _add_cleaning(self, root: str, of: CleaningFigures) -> None:
        """Add the samples of the service that deletes topics."""
        self._counters["cqstore_clean_rounds"].add_metric((root,), of.rounds)
        self._counters["cqstore_clean_failures"].add_metric((root,), of.failures)
        self._counters["cqstore_cleaned_queue_bytes"].add_metric((root,), of.queue_bytes)
        for rule, count in of.topics.items():
            self._counters["cqstore_cleaned_topics"].add_metric((root, rule), count)
        self.gauge("cqstore_clean_selected", root, of.selected)
        for reason, count in of.kept.items():
            self.gauge("cqstore_clean_kept", root, count, reason)
        if of.last_ended:
            self.gauge("cqstore_clean_last_seconds", root, of.last_ended)

    def _add_mirror(self, root: str, of: MirrorSnapshot) -> None:
        """Add the samples of the mirror."""
        self.gauge("cqstore_ab_failed", root, bool(of.failure))
        self.gauge("cqstore_ab_waiting", root, of.waiting)
        self._counters["cqstore_ab_dropped"].add_metric((root,), of.figures.dropped)
        for each in of.figures.reads:
            labels = (root, each.op, each.outcome.value)
            self._counters["cqstore_ab_reads"].add_metric(labels, each.reads)
        for taken in of.figures.seconds:
            self._histograms["cqstore_ab_seconds"].add_metric(
                (root, taken.op, taken.side, taken.way.value),
                list(_buckets(taken.coarse)),
                taken.total_seconds,
            )


def _gauge_samples(of: MetricsSnapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield name, labels and value of each gauge of a store."""
    yield "cqstore_up", (), 1
    yield "cqstore_failed", (), of.failed
    yield "cqstore_dispatch_stalled", (), of.dispatch_stalled
    yield "cqstore_dispatch_lag_bytes", (), of.dispatch_lag_bytes
    yield "cqstore_dispatch_lag_seconds", (), of.dispatch_lag_ms / 1000
    yield "cqstore_reput_active", (), of.reput_active
    yield "cqstore_append_seconds", (), of.append_ms / 1000
    yield "cqstore_page_cache_busy", (), of.is_page_cache_busy
    yield "cqstore_log_min_phy_offset_bytes", (), of.min_phy_offset
    yield "cqstore_log_max_phy_offset_bytes", (), of.max_phy_offset
    yield "cqstore_log_flushed_phy_offset_bytes", (), of.flushed_phy_offset
    yield "cqstore_disk_used_ratio", ("log",), of.log_disk_used_ratio
    yield "cqstore_disk_used_ratio", ("queues",), of.queue_disk_used_ratio


def _counter_samples(of: MetricsSnapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield name, labels and value of each counter of a store."""
    yield "cqstore_put_messages", (), of.put_messages
    yield "cqstore_put_bytes", (), of.put_bytes
    yield "cqstore_put_fallbacks", (), of.put_fallbacks
    yield "cqstore_reput_batches", (), of.reput_batches
    yield "cqstore_listener_failures", (), of.listener_failures
    yield "cqstore_arrivals_dropped", (), of.arrivals_dropped
    yield "cqstore_put_hooked", (), of.put_hooked
    yield "cqstore_put_hook_refusals", (), of.put_hook_refusals
    yield "cqstore_put_hook_failures", (), of.put_hook_failures
    yield "cqstore_dispatcher_records", (), of.dispatcher_records
    yield "cqstore_dispatcher_failures", (), of.dispatcher_failures
    for refused, count in of.put_not_ok.items():
        yield "cqstore_put_not_ok", (refused.name,), count
    for fallback, count in of.read_fallbacks.items():
        yield "cqstore_read_fallbacks", (fallback.kind, fallback.reason), count
    for pulled, count in of.gets.statuses.items():
        yield "cqstore_gets", (pulled.name,), count
    yield "cqstore_get_messages", (), of.gets.messages
    yield "cqstore_get_bytes", (), of.gets.total_bytes


def _buckets(histogram: HistogramSnapshot) -> Iterator[tuple[str, float]]:
    """Yield each upper bound and the count of values up to it; the last bound is infinite."""
    total = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        yield "+Inf" if bound == float("inf") else str(bound), total
