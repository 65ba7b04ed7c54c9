"""Check that the target supports the topic names and queue ids.

Source: spec 1, 9.2, T24; field notes 24.
"""

from collections.abc import Iterator

from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.store.queue.bulk import BulkBackend, NameFault
from cqstore.store.settings.config import StoreConfig


class TopicNames(QueueCheck):
    """Check for topic names that the target backend does not support."""

    def __init__(self, target: BulkBackend, config: StoreConfig) -> None:
        self._target, self._config = target, config
        self._found: dict[NameFault, NameCount] = {}
        self._longest = 0

    def check(self, queue: UnitRange) -> None:
        """Check the topic name of one queue."""
        for fault in self._target.name_faults(queue.topic, self._config):
            size = len(queue.topic.encode("utf-8", "surrogateescape"))
            self._longest = max(self._longest, size)
            figures = {"bytes": size, "units": queue.units} if fault.by_length else {}
            self._found.setdefault(fault, NameCount()).add(queue.name, **figures)

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield one finding per kind of fault."""
        for fault, tally in self._found.items():
            figures = {}
            if fault.limit is not None:
                figures = {"maxBytes": fault.limit, "longestBytes": self._longest}
            yield from tally.finding(fault.code, Severity.REFUSE, fault.sentence, **figures)


class QueueIds(QueueCheck):
    """Check for negative queue ids: RocksDB's keys would sort them after all others."""

    def __init__(self) -> None:
        self._bad = NameCount()

    def check(self, queue: UnitRange) -> None:
        """Record a queue with a negative id."""
        if queue.queue_id < 0:
            self._bad.add(queue.name, units=queue.units)

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield one finding with these queues, if there are any."""
        yield from self._bad.finding(
            "negative-queue-id",
            Severity.REFUSE,
            "Queue ids are negative: no broker writes them, and they break RocksDB's key order.",
        )
