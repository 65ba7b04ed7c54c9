"""Find queues that RocketMQ would reset at a start with double write.

RocketMQ compares the max offsets of every queue of the assigning store, by default the files, with
those of the other backend, and resets the other backend's queue if they differ: older units in
RocksDB are hidden, files are deleted.

Source: RocketMQ ``CombineConsumeQueueStore.verifyAndInitOffsetForAllStore``; field notes 6.
"""

from collections.abc import Iterator

from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore


class CombinedStart(QueueCheck):
    """Check for queues whose max or min offsets differ between the backends."""

    def __init__(self, surveyed: ConsumeQueueStore, other: ConsumeQueueStore) -> None:
        self._names = surveyed.name, other.name
        self._other = other
        self._reset, self._later = NameCount(), NameCount()
        self._hidden = self._units_lacking = 0

    def check(self, queue: UnitRange) -> None:
        """Compare the ends of one queue with those in the other backend."""
        low, high = self._other.queue(queue.topic, queue.queue_id).ends()
        mine, others = self._names
        if high != queue.high:
            self._reset.add(queue.name, **{f"{mine}Max": queue.high, f"{others}Max": high})
            self._hidden += high - low
        lacking = max(min(low, queue.high) - queue.low, 0) if high else queue.units
        if lacking:
            self._units_lacking += lacking
            self._later.add(queue.name, **{f"{mine}Min": queue.low, f"{others}Min": low})

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield a finding about different max offsets, and one about higher min offsets."""
        yield from self._reset.finding(
            "combined-start-resets",
            Severity.WARN,
            "The max offsets of queues differ between the backends: RocketMQ with double write "
            "resets these queues at startup and hides or deletes the units of the other backend.",
            unitsAtRisk=self._hidden,
        )
        yield from self._later.finding(
            "other-backend-lacks-history",
            Severity.WARN,
            f"Queues begin later in backend {self._names[1]!r} than in {self._names[0]!r}; "
            "RocketMQ's own check does not detect this.",
            unitsLacking=self._units_lacking,
        )
