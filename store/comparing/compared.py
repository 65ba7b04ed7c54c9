"""Compared: the result of comparing two backends of one store."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.tally import (
    ComparedQueue,
    ComparisonFinding,
    ComparisonTally,
    DifferenceKind,
)
from cqstore.store.queue.units import QueueKey


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing two backends: the first is the *reference*, the other the *copy*.

    In the tally they are source and target.
    """

    reference: str
    copy: str
    _found: ComparisonFindings
    timeless: frozenset[str]
    """Backends without store timestamps: those of the log are used instead."""
    skipped: list[QueueKey] = field(default_factory=list)
    """Queues of types that only one backend supports (BatchCQ); not compared."""

    @property
    def tally(self) -> ComparisonTally:
        """Return the counts, and the queues that differ."""
        return self._found.tally

    @property
    def queues(self) -> int:
        """Return the number of queues, without empty ones."""
        return self.tally.queues + self.passed_over + len(self.skipped)

    @property
    def units(self) -> int:
        """Return the number of units of the reference that were compared."""
        return self.tally.source.units

    @property
    def passed_over(self) -> int:
        """Return the number of queues that were not compared because they were verified before."""
        return self._found.passed_over

    @property
    def differing_queues(self) -> int:
        """Return the number of queues that differ."""
        return self._found.differing

    @property
    def is_clean(self) -> bool:
        """Return whether the compared queues are equal."""
        return not self.tally.differing

    def missing_units(self, name: str) -> int:
        """Return how many units backend ``name`` lacks, or has with another value."""
        return self._found.lacking[(self.reference, self.copy).index(name)]

    def differences(self) -> Iterator[tuple[ComparedQueue, ComparisonFinding]]:
        """Yield the listed differences; the tally has the limits and the complete counts."""
        for queue in self.tally.listed:
            for finding in queue.findings:
                yield queue, finding

    def incomplete_backend(self, finding: ComparisonFinding) -> str:
        """Return the backend that lacks the units; empty if both have them."""
        if finding.kind in {
            DifferenceKind.MISSING_HEAD,
            DifferenceKind.MISSING_TAIL,
            DifferenceKind.HOLE,
            DifferenceKind.ONLY_SOURCE,
        }:
            return self.copy
        return (
            self.reference
            if finding.kind in {DifferenceKind.EXTRA, DifferenceKind.ONLY_TARGET}
            else ""
        )

    def values(self, finding: ComparisonFinding) -> dict[str, int | str]:
        """Return the value of the first unit in each backend (or in the ``log``)."""
        sides = {self.reference: finding.source, self.copy: finding.target}
        if finding.field == "store_timestamp":
            sides = {"log" if side in self.timeless else side: sides[side] for side in sides}
        return {side: value for side, value in sides.items() if value is not None}

    def sentence(self, finding: ComparisonFinding) -> str:
        """Return a difference as a sentence, without the queue."""
        units = "" if finding.first is None else f"units {finding.first} to {finding.last}"
        values = ", ".join(f"{side} {value}" for side, value in self.values(finding).items())
        if lacking := self.incomplete_backend(finding):
            what = f"{units} are missing" if units else "the queue is missing"
            found = "" if units else f": {values}"
            return f"{what} in the {lacking} queues{found} ({finding.kind})"
        name = finding.field or finding.kind
        return f"{name} differs{f' in {units}' if units else ''}: {values}"
