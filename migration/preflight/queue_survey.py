"""The pass over all queues, and the interface of its checks.

Every queue is read once and passed to each check; a check keeps counts and a limited number of
names, so memory does not grow with the number of queues.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cqstore.migration.preflight.preflight_report import (
    NameCount,
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.store.errors import StoreError
from cqstore.store.progress import noop
from cqstore.store.queue.bulk import QueueTotals
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore

SurveyProgress = Callable[[int, int | None], object]
"""Called with the number of examined queues, and their approximate total if it is known."""


class UnitRange(NamedTuple):
    """One queue: the units from ``low`` up to, not including, ``high``."""

    topic: str
    queue_id: int
    low: int
    high: int

    @property
    def units(self) -> int:
        """Return the number of units to move."""
        return self.high - self.low

    @property
    def name(self) -> str:
        """Return topic and queue id as commands print them."""
        return f"{self.topic}/{self.queue_id}"


class QueueCheck(ABC):
    """A check of every queue. The queues of one topic are passed consecutively."""

    @abstractmethod
    def check(self, queue: UnitRange) -> None:
        """Check one queue.

        Raises:
            StoreError: the queue cannot be read; the pass reports it and continues.
        """

    @abstractmethod
    def findings(self) -> Iterator[PreflightFinding]:
        """Yield the findings, after the last queue."""


class Totals(QueueCheck):
    """Counter of the topics, queues, units and files to move."""

    def __init__(self, units_per_file: int) -> None:
        self.units_per_file = units_per_file
        self._topic: str | None = None
        self.topics = self.queues = self.units = 0
        self.files = 0
        """Queue files of these units, at least one per queue."""
        self.key_bytes = 0
        """UTF-8 bytes of the topic names, counted once per queue."""
        self.empty = self.from_zero = 0
        self.longest = 0

    def check(self, queue: UnitRange) -> None:
        """Add the units and files of one queue."""
        if queue.topic != self._topic:
            self._topic = queue.topic
            self.topics += 1
        self.queues += 1
        self.units += queue.units
        last = max(queue.high - 1, queue.low)
        self.files += last // self.units_per_file - queue.low // self.units_per_file + 1
        self.key_bytes += len(queue.topic.encode("utf-8", "surrogateescape"))
        self.empty += not queue.units
        self.from_zero += queue.low == 0
        self.longest = max(self.longest, queue.units)

    @property
    def sums(self) -> QueueTotals:
        """Return the totals from which a backend estimates its size."""
        return QueueTotals(
            self.topics, self.queues, self.units, self.files, self.units_per_file, self.key_bytes
        )

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield the totals as one finding of severity ``info``."""
        yield finding(
            "totals", Severity.INFO, "Amount of data to move.",
            topics=self.topics, queues=self.queues, units=self.units, emptyQueues=self.empty,
            queuesFromOffset0=self.from_zero, unitsOfLargestQueue=self.longest,
        )  # fmt: skip


class QueueSurvey:
    """One pass over the queues of a backend, with all checks."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        checks: Sequence[QueueCheck],
        progress: SurveyProgress = noop,
    ) -> None:
        """``progress``: see ``SurveyProgress``."""
        self._progress = progress
        self._queues = queues
        self._checks = checks
        self._unreadable = NameCount()

    def run(self) -> Iterator[PreflightFinding]:
        """Check every queue, then yield the findings."""
        queues = self._queues
        count = queues.queues_estimate()
        for number, (topic, queue_id) in enumerate(queues.queues()):
            self._progress(number, count)
            try:
                span = UnitRange(topic, queue_id, *queues.queue(topic, queue_id).ends())
                for check in self._checks:
                    check.check(span)
            except StoreError as exc:
                self._unreadable.add(f"{topic}/{queue_id}", reason=str(exc))
        yield from unreadable_queues(self._unreadable)
        for check in self._checks:
            yield from check.findings()


def unreadable_queues(names: NameCount) -> list[PreflightFinding]:
    """Return the finding about queues that cannot be read; empty if there are none."""
    return names.finding(
        "unreadable-queues",
        Severity.REFUSE,
        "Queues cannot be read: rebuild them first (cqstore rebuild DIR --topic T).",
    )
