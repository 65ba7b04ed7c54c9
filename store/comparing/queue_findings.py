"""QueueFindings: the faults of one queue, counted completely and listed up to a limit."""

from dataclasses import dataclass, field

from cqstore.store.comparing.sums import Sum
from cqstore.store.comparing.tally import (
    MAX_FINDINGS,
    ComparedQueue,
    ComparisonFinding,
    ComparisonSums,
    DifferenceKind,
)
from cqstore.store.queue.units import QueueKey


@dataclass(slots=True)
class QueueFindings:
    """The sums of one queue on both sides, and its findings."""

    queue: QueueKey
    source: Sum = field(default_factory=Sum)
    target: Sum = field(default_factory=Sum)
    counts: dict[DifferenceKind, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    listed: list[ComparisonFinding] = field(default_factory=list)
    more: int = 0

    def add(
        self,
        kind: DifferenceKind,
        first: int | None = None,
        last: int | None = None,
        *,
        units: int = 0,
        field_name: str | None = None,
        source: int | str | None = None,
        target: int | str | None = None,
    ) -> None:
        """List adjacent units, or a fault of the queue; does not count them."""
        for known in reversed(self.listed):
            same = known.kind is kind and known.field == field_name
            if same and first is not None and known.last == first - 1:
                known.last = last
                known.units += units
                return
        if len(self.listed) >= MAX_FINDINGS:
            self.more += 1
            return
        self.listed.append(
            ComparisonFinding(
                kind=kind, units=units, first=first, last=last, field=field_name,
                source=source, target=target,
            )
        )  # fmt: skip

    def count(self, kind: DifferenceKind, number: int) -> None:
        """Count units, or the queue itself."""
        self.counts[kind] = self.counts.get(kind, 0) + number

    def count_field(self, name: str, number: int) -> None:
        """Count units in which one field differs."""
        self.fields[name] = self.fields.get(name, 0) + number

    def of_queue(
        self, kind: DifferenceKind, source: int | str | None = None, target: int | str | None = None
    ) -> None:
        """Count and list a fault of the queue itself."""
        self.count(kind, 1)
        self.add(kind, source=source, target=target)

    def report(self) -> ComparedQueue:
        """Return the queue as the report lists it."""
        self.listed.sort(key=lambda each: -1 if each.first is None else each.first)
        return ComparedQueue(
            topic=printable(self.queue.topic), queue_id=self.queue.queue_id, counts=self.counts,
            fields=self.fields, source=sums(self.source), target=sums(self.target),
            findings=self.listed, more_findings=self.more,
        )  # fmt: skip


def sums(one: Sum) -> ComparisonSums:
    """Return the sum of one side in the form of the report."""
    return ComparisonSums(units=one.units, bytes=one.bytes, checksum=f"{one.checksum:016x}")


def printable(topic: str) -> str:
    """Return a topic's name for a report; invalid UTF-8 is shown as escapes."""
    return topic.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
