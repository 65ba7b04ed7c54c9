"""The figures of open stores for Prometheus, in the process that has them open.

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
from cqstore.store.service.metrics.metrics import MetricsSnapshot
from cqstore.store.service.runtime.meters import HistogramSnapshot
from cqstore.store.service.scheduling.level_delivery import DelayLevelFigures

_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_put_seconds": (
        "Calls that put; of those of one message a sample, under SYNC_FLUSH every one",
        ("call",),
    ),
    "cqstore_get_seconds": ("Pulls", ()),
    "cqstore_flush_seconds": ("Flushes of the commit log", ()),
    "cqstore_delay_late_seconds": ("How late delayed messages came to their topics", ()),
    "cqstore_ab_seconds": (
        "Reads of a backend: served, or mirrored to both of them",
        ("op", "side", "way"),
    ),
}
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_put_messages": ("Messages stored", ()),
    "cqstore_put_bytes": ("Bytes of the records stored", ()),
    "cqstore_put_fallbacks": ("Messages stored that the compiled path did not take", ()),
    "cqstore_reput_batches": ("Batches that the dispatch thread brought to queues and index", ()),
    "cqstore_listener_failures": ("Calls of arrival listeners that raised something", ()),
    "cqstore_arrivals_dropped": ("Units that arrival listeners were too slow for", ()),
    "cqstore_put_hooked": ("Messages of which put hooks were asked", ()),
    "cqstore_put_hook_refusals": ("Messages that put hooks refused", ()),
    "cqstore_put_hook_failures": ("Calls of put hooks that failed", ()),
    "cqstore_dispatcher_records": ("Records that all dispatchers have taken", ()),
    "cqstore_dispatcher_failures": ("Calls of dispatchers that failed", ()),
    "cqstore_delay_delivered": ("Delayed messages that came to their topics", ("level",)),
    "cqstore_delay_failures": ("Delayed messages that were passed over", ("level",)),
    "cqstore_put_not_ok": ("Messages refused, or stored but flushed late, by status", ("status",)),
    "cqstore_gets": ("Pulls by status", ("status",)),
    "cqstore_get_messages": ("Messages that pulls returned", ()),
    "cqstore_get_bytes": ("Bytes of the records that pulls returned", ()),
    "cqstore_read_fallbacks": (
        "Pulls, searches by time and queries that the compiled path did not answer",
        ("kind", "reason"),
    ),
    "cqstore_ab_reads": ("Mirrored reads by what became of them", ("op", "outcome")),
    "cqstore_ab_dropped": ("Reads that came faster than they could be mirrored", ()),
}
_FOLLOWER_COUNTERS = {
    "cqstore_follow_connections": "Connections made to the master",
    "cqstore_follow_body_bytes": "Bytes of log that came, those among them that were here already",
}
_FOLLOWER_GAUGES = {
    "cqstore_follow_connected": "1: there is a connection to the master",
    "cqstore_follow_verified": "1: the master has sent what the log here ended with",
    "cqstore_follow_caught_up": "1: the master has no byte that is not here",
    "cqstore_follow_phy_offset_bytes": "End of the log here",
    "cqstore_follow_reported_phy_offset_bytes": "What was last reported to the master",
    "cqstore_follow_lag_bytes": "Bytes of the master's log that are not here, where that is known",
    "cqstore_follow_last_stored_seconds": "Store time of the last record, since the epoch",
    "cqstore_follow_metadata_seconds": "When all tables had come last, since the epoch",
}
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_up": ("1: the store is open and answers", ()),
    "cqstore_failed": ("1: a write or flush failed, the store takes no more writes", ()),
    "cqstore_dispatch_stalled": ("1: no room for units or keys, nothing is put until then", ()),
    "cqstore_dispatch_lag_bytes": ("Bytes of the log that may not be in the queues yet", ()),
    "cqstore_dispatch_lag_seconds": ("Since when the first record of them waits", ()),
    "cqstore_reput_active": ("1: full batches are left to the dispatch thread", ()),
    "cqstore_append_seconds": ("Since when the append that is under way runs, 0: none is", ()),
    "cqstore_page_cache_busy": ("1: an append has run for more than a second", ()),
    "cqstore_log_min_phy_offset_bytes": ("Start of the commit log", ()),
    "cqstore_log_max_phy_offset_bytes": ("End of the commit log", ()),
    "cqstore_log_flushed_phy_offset_bytes": ("Up to where the log is surely on disk", ()),
    "cqstore_delay_waiting": ("Delayed messages that wait, due or not", ("level",)),
    "cqstore_delay_lag_seconds": ("How long the first of them is overdue", ("level",)),
    "cqstore_ab_failed": ("1: the mirror ended by a failure, reads are not mirrored", ()),
    "cqstore_ab_waiting": ("Reads that wait to be mirrored", ()),
    "cqstore_disk_used_ratio": ("How full the file system of a folder is, 0 to 1", ("folder",)),
}


class Followed(Protocol):
    """A follower that reports its progress: ``cqstore.replication.follow.follower.Follower``."""

    @property
    def root(self) -> Path:
        """Return the root of its store."""

    def figures(self) -> Following:
        """Return how far it is; any thread may ask."""


class StoreCollector(Collector):
    """Collects from some stores and followers, each by the label ``store``, its root.

    A store that is closed, or cannot be asked, has ``cqstore_up`` 0 and nothing else.
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
        """Return the metrics that every store has, without samples; asks no store."""
        return [*self._families().metrics(), *self._topic_families().metrics()]

    def collect(self) -> Iterable[Metric]:
        """Return all metrics of now; the registry calls this, from any thread."""
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
    """Return the figures by topic; ``None``: none are wanted, or a queue cannot be read."""
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

    ``followers`` are those that run in this process, with figures of their own. ``topics`` is how
    many of the busiest topics of a store have series of their own, and how many rows of groups
    where ``offsets`` has who keeps the offsets of its groups; 0: none have. The series of stores in
    ``brokers`` are there under RocketMQ's names too, for dashboards that know these.

    ``registry.unregister`` of what is returned ends it.

    Raises:
        StoreConfigError: the registry has one already: name all stores of a process at once. Or
            ``brokers`` are given and no topics.
    """
    if brokers and topics < 1:
        raise StoreConfigError("RocketMQ's names are for figures by topic: topics is 1 at least")
    collector = StoreCollector(stores, followers, topics, offsets, brokers)
    try:
        registry.register(collector)
    except ValueError as exc:
        raise StoreConfigError(
            f"the registry has these metrics already, name all stores at once: {exc}"
        ) from exc
    return collector


class _Families:
    """The metric families of one scrape that have figures of whole stores and followers."""

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
        """Return the families of metrics, filled as far as they are."""
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
            if value >= 0:  # else it is not known
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
        if isinstance(of.interceptor, MirrorSnapshot):
            self._add_mirror(root, of.interceptor)
        for name, part, value in of.queue_stats:
            known_as = f"cqstore_{name}"
            if known_as not in self._gauges:
                text = "What a queue backend reports of itself"
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
    """Yield upper bound and count of all that was at most that, the last bound infinite."""
    total = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        yield "+Inf" if bound == float("inf") else str(bound), total
