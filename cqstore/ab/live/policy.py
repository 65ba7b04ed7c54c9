"""Policy: counts what classes of topics write, to estimate the cost of a policy in advance.

The counts are taken from the last hours of the log: the records of each class and the units that
they produce. So the figures before and after a change are comparable.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.backends import backend, backend_names
from cqstore.store.queue.facts import HANDED_BYTES, WRITTEN_BYTES
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.record.message import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

CLASSES = (f"{LMQ_PREFIX}*", f"{RETRY_PREFIX}*", f"{DLQ_PREFIX}*", "*")
"""Classes shown for every store after the requested ones: light, retry, dead-letter, all others."""
_HOUR_MS = 3_600_000
_HOT = "hot: "


@dataclass(slots=True)
class ClassTotals:
    """Totals of the topics of one class."""

    topics: set[str] = field(default_factory=set)
    queues: set[QueueKey] = field(default_factory=set)
    units: int = 0
    record_bytes: int = 0
    """Bytes of the records of the units; a record in several queues counts in each."""


@dataclass(slots=True)
class PolicyCost:
    """Totals of each class over a time range."""

    seconds: float
    classes: dict[str, ClassTotals]
    """By class, the first matching class counts; then the busiest topics once more."""
    units: int
    topics: int
    """All that wrote something, the hottest or not."""

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield one row per class; a unit counts 28 bytes, its size when a backend receives it."""
        for name, written in self.classes.items():
            yield {
                "class": name,
                "topics": len(written.topics),
                "queues": len(written.queues),
                "units": written.units,
                "unitsPerSecond": round(written.units / self.seconds, 3),
                "unitBytesPerSecond": round(written.units * QUEUE_UNIT.size / self.seconds, 1),
                "recordBytesPerSecond": round(written.record_bytes / self.seconds, 1),
                "shareOfUnits": round(written.units / self.units, 4) if self.units else 0.0,
            }


def policy_cost(
    store: MessageStore,
    classes: Sequence[str] = (),
    *,
    hours: float = 1.0,
    hottest: int = 10,
    progress: Progress = noop,
) -> PolicyCost:
    """Count what was put in the last ``hours`` before the log's last record.

    ``classes``: classes of topics as in ``doubleWriteTopics``, matched before those of ``CLASSES``.
    ``hottest``: number of topics with most units that get their own row. ``progress`` is called
    with phy offsets.

    Raises:
        CorruptionError: the log is damaged in this range.
    """
    names = [*classes, *(each for each in CLASSES if each not in classes)]
    found = {name: ClassTotals() for name in names}
    topics: dict[str, ClassTotals] = {}
    of: dict[str, ClassTotals] = {}

    def add(
        key: tuple[str, int], queue_offset: int, phy_offset: int, size: int, code: int, stamp: int
    ) -> None:
        topic = key[0]
        if topic not in of:
            of[topic] = found[next(name for name in names if selects(name, topic))]
        for written in (of[topic], topics.setdefault(topic, ClassTotals())):
            written.topics.add(topic)
            written.queues.add(QueueKey(*key))
            written.units += 1
            written.record_bytes += size

    seconds = _walk(store, hours, add, progress)
    ranked = sorted(topics, key=lambda topic: (-topics[topic].units, topic))
    by_topic = {_HOT + topic: topics[topic] for topic in ranked[:hottest]}
    units = sum(written.units for written in found.values())
    return PolicyCost(seconds, found | by_topic, units, len(topics))


def written_notes(paths: StorePaths) -> Iterator[str]:
    """Yield sentences about the bytes that each backend wrote for the bytes that it received.

    They cover whole backends since they were opened, from the backends' own notes: the store may be
    open elsewhere. No backend counts by topic.

    Raises:
        StoreIOError: a backend's notes cannot be read.
    """
    yield (
        "unit bytes are the bytes that a backend receives, not the bytes that it writes: no backend"
        " counts its writes by topic"
    )
    for name in backend_names():
        stats = backend(name).watch(paths)
        written = [stat for stat in stats if stat.name.endswith(WRITTEN_BYTES)]
        handed = sum(stat.value for stat in stats if stat.name.endswith(HANDED_BYTES))
        if written and handed:
            times = sum(stat.value for stat in written) / handed
            causes = ", ".join(
                f"{stat.name.removesuffix(WRITTEN_BYTES).removeprefix(f'{name}_')} {stat.value:,}"
                for stat in written
            )
            yield (
                f"{name} wrote {times:.2f} times the {handed:,} bytes that it received, including"
                f" keys, {written[0].part} ({causes})"
            )


def _walk(
    store: MessageStore, hours: float, add: Callable[..., None], progress: Callable[[int], object]
) -> float:
    """Pass the units of the last hours to ``add``; return the seconds that they cover."""
    components = components_of(store)
    queues, log = components.queues, components.log
    units = RecordUnits(
        store.config, components.deleted, queues.queue_type, check_topic=queues.check_topic,
        lmq_needs_multi_dispatch=queues.lmq_needs_multi_dispatch,
        takes_batches=queues.takes_batches,
    )  # fmt: skip
    last = max(components_of(store).checkpoint.fields.physic_msg_timestamp, 0)
    for record in log.scan_kept(start=max(log.file_offset_by_timestamp(last), 0)):
        last = max(last, record.store_timestamp)
    since = last - int(hours * _HOUR_MS)
    first = last
    for count, record in enumerate(log.scan_kept(start=log.file_offset_by_timestamp(since))):
        if record.store_timestamp <= since:
            continue
        first = min(first, record.store_timestamp)
        units.add(add, record, dispatch_properties(record.properties))
        if not count % 65536:
            progress(record.phy_offset)
    whole = hours * _HOUR_MS / 1000
    return whole if log_is_older(store, since) else max((last - first) / 1000, 1.0)


def log_is_older(store: MessageStore, timestamp: int) -> bool:
    """Return whether the first record of the log was stored at or before ``timestamp``."""
    log = components_of(store).log
    first = next(log.scan_kept(), None)
    return first is not None and first.store_timestamp <= timestamp
