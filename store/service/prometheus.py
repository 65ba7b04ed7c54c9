"""The figures of open stores for Prometheus, in the process that has them open.

Needs ``prometheus_client`` (``pip install cqstore[metrics]``); nothing else imports this module.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from store.errors import StoreConfigError, StoreError
from store.service.figures.metrics import MetricsSnapshot
from store.service.message_store import MessageStore
from store.service.mirroring.mirror import MirrorSnapshot
from store.service.running.meters import BOUNDS, HistogramSnapshot

_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_put_seconds": (
        "Calls that put; of those of one message a sample, under SYNC_FLUSH every one",
        ("call",),
    ),
    "cqstore_get_seconds": ("Pulls", ()),
    "cqstore_flush_seconds": ("Flushes of the commit log", ()),
    "cqstore_ab_seconds": (
        "Reads of a backend: served, or mirrored to both of them",
        ("op", "side", "way"),
    ),
}
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_put_messages": ("Messages stored", ()),
    "cqstore_put_bytes": ("Bytes of the records stored", ()),
    "cqstore_put_not_ok": ("Messages refused, or stored but flushed late, by status", ("status",)),
    "cqstore_gets": ("Pulls by status", ("status",)),
    "cqstore_get_messages": ("Messages that pulls returned", ()),
    "cqstore_get_bytes": ("Bytes of the records that pulls returned", ()),
    "cqstore_ab_reads": ("Mirrored reads by what became of them", ("op", "outcome")),
    "cqstore_ab_dropped": ("Reads that came faster than they could be mirrored", ()),
}
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cqstore_up": ("1: the store is open and answers", ()),
    "cqstore_failed": ("1: a write or flush failed, the store takes no more writes", ()),
    "cqstore_dispatch_lag_bytes": ("Bytes of the log that may not be in the queues yet", ()),
    "cqstore_dispatch_lag_seconds": ("Since when the first record of them waits", ()),
    "cqstore_append_seconds": ("Since when the append that is under way runs, 0: none is", ()),
    "cqstore_page_cache_busy": ("1: an append has run for more than a second", ()),
    "cqstore_log_min_phy_offset_bytes": ("Start of the commit log", ()),
    "cqstore_log_max_phy_offset_bytes": ("End of the commit log", ()),
    "cqstore_log_flushed_phy_offset_bytes": ("Up to where the log is surely on disk", ()),
    "cqstore_ab_failed": ("1: the mirror ended by a failure, reads are not mirrored", ()),
    "cqstore_ab_waiting": ("Reads that wait to be mirrored", ()),
    "cqstore_disk_used_ratio": ("How full the file system of a folder is, 0 to 1", ("folder",)),
}


class StoreCollector(Collector):
    """Collects from some stores, each by the label ``store``, its root.

    A store that is closed, or cannot be asked, has ``cqstore_up`` 0 and nothing else.
    """

    def __init__(self, stores: Sequence[MessageStore]) -> None:
        self._stores = list(stores)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics that every store has, without samples; asks no store."""
        return _Families().metrics()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics of now; the registry calls this, from any thread."""
        families = _Families()
        for store in self._stores:
            root = str(store.paths.root)
            try:
                snapshot = store.metrics.snapshot()
            except StoreError:
                families.gauge("cqstore_up", root, 0)
                continue
            families.add(root, snapshot)
        return families.metrics()


def register(*stores: MessageStore, registry: CollectorRegistry = REGISTRY) -> StoreCollector:
    """Register one collector for ``stores`` in the registry that the embedder serves.

    ``registry.unregister`` of what is returned ends it.

    Raises:
        StoreConfigError: the registry has one already: name all stores of a process at once.
    """
    collector = StoreCollector(stores)
    try:
        registry.register(collector)
    except ValueError as exc:
        raise StoreConfigError(
            f"the registry has these metrics already, name all stores at once: {exc}"
        ) from exc
    return collector


class _Families:
    """One set of metric families, being filled."""

    def __init__(self) -> None:
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

    def metrics(self) -> list[Metric]:
        """Return all of them."""
        families = (self._gauges, self._counters, self._histograms)
        return [metric for family in families for metric in family.values()]

    def gauge(self, name: str, root: str, value: float, *labels: str) -> None:
        """Add one sample."""
        self._gauges[name].add_metric((root, *labels), value)

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
        if of.mirror is not None:
            self._add_mirror(root, of.mirror)
        for name, part, value in of.queue_stats:
            known_as = f"cqstore_{name}"
            if known_as not in self._gauges:
                text = "What a queue backend tells of itself"
                self._gauges[known_as] = GaugeMetricFamily(known_as, text, labels=("store", "part"))
            self.gauge(known_as, root, value, part)

    def _add_mirror(self, root: str, of: MirrorSnapshot) -> None:
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
    yield "cqstore_up", (), 1
    yield "cqstore_failed", (), of.failed
    yield "cqstore_dispatch_lag_bytes", (), of.dispatch_lag_bytes
    yield "cqstore_dispatch_lag_seconds", (), of.dispatch_lag_ms / 1000
    yield "cqstore_append_seconds", (), of.append_ms / 1000
    yield "cqstore_page_cache_busy", (), of.page_cache_busy
    yield "cqstore_log_min_phy_offset_bytes", (), of.min_phy_offset
    yield "cqstore_log_max_phy_offset_bytes", (), of.max_phy_offset
    yield "cqstore_log_flushed_phy_offset_bytes", (), of.flushed_phy_offset
    yield "cqstore_disk_used_ratio", ("log",), of.log_disk_used_ratio
    yield "cqstore_disk_used_ratio", ("queues",), of.queue_disk_used_ratio


def _counter_samples(of: MetricsSnapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "cqstore_put_messages", (), of.put_messages
    yield "cqstore_put_bytes", (), of.put_bytes
    for refused, count in of.put_not_ok.items():
        yield "cqstore_put_not_ok", (refused.name,), count
    for pulled, count in of.gets.statuses.items():
        yield "cqstore_gets", (pulled.name,), count
    yield "cqstore_get_messages", (), of.gets.messages
    yield "cqstore_get_bytes", (), of.gets.total_bytes


def _buckets(histogram: HistogramSnapshot) -> Iterator[tuple[str, float]]:
    """Yield upper bound and count of all that was at most that, the last bound infinite."""
    total = 0
    for bound, count in zip((*BOUNDS, float("inf")), histogram.counts, strict=True):
        total += count
        yield "+Inf" if bound == float("inf") else str(bound), total
