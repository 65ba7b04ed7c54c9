"""The one pass over all queues, and what its checks are.

Every queue is looked at once and shown to each check in turn; a check keeps counts and capped
names, so memory does not grow with the number of queues.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.store.errors import StoreError
from cqstore.store.progress import noop
from cqstore.store.queue.bulk import QueueTotals
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore

Told = Callable[[int, int | None], object]
"""Called with how many queues were examined, and about how many there are, where known."""


class UnitRange(NamedTuple):
    """One queue: the units from ``low`` up to, not including, ``high``."""

    topic: str
    queue_id: int
    low: int
    high: int

    @property
    def units(self) -> int:
        """Return how many units there are to move."""
        return self.high - self.low

    @property
    def name(self) -> str:
        """Return topic and queue id as commands print them."""
        return f"{self.topic}/{self.queue_id}"


class QueueCheck(ABC):
    """A check that looks at every queue. The queues of one topic come one after the other."""

    @abstractmethod
    def check(self, queue: UnitRange) -> None:
        """Look at one queue.

        Raises:
            StoreError: the queue cannot be read; the pass names it and goes on.
        """

    @abstractmethod
    def findings(self) -> Iterator[PreflightFinding]:
        """Yield what was found, after the last queue."""


class Totals(QueueCheck):
    """Counts topics, queues, units and files of what is to be moved."""

    def __init__(self, units_per_file: int) -> None:
        self.units_per_file = units_per_file
        self._topic: str | None = None
        self.topics = self.queues = self.units = 0
        self.files = 0
        """Queue files that hold these units, at least one a queue."""
        self.key_bytes = 0
        """UTF-8 bytes of the topics' names, once a queue."""
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
        """Return what a backend estimates from."""
        return QueueTotals(
            self.topics, self.queues, self.units, self.files, self.units_per_file, self.key_bytes
        )

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield the sums as one finding, which refuses nothing."""
        yield PreflightFinding(
            code="totals",
            severity=Severity.INFO,
            sentence="Amount of data to move.",
            figures={
                "topics": self.topics,
                "queues": self.queues,
                "units": self.units,
                "emptyQueues": self.empty,
                "queuesFromOffset0": self.from_zero,
                "unitsOfLargestQueue": self.longest,
            },
        )


class QueueSurvey:
    """One pass over the queues of a backend, which asks all checks of each."""

    def __init__(
        self, queues: ConsumeQueueStore, checks: Sequence[QueueCheck], progress: Told = noop
    ) -> None:
        """``progress`` is called with how many queues were examined, of about how many."""
        self._progress = progress
        self._queues = queues
        self._checks = checks
        self._unreadable = NameCount()

    def run(self) -> Iterator[PreflightFinding]:
        """Look at every queue, then yield what the checks found."""
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
        yield from self._unreadable.finding(
            "unreadable-queues",
            Severity.REFUSE,
            "Queues cannot be read: rebuild them first (cqstore rebuild DIR --topic T).",
        )
        for check in self._checks:
            yield from check.findings()
