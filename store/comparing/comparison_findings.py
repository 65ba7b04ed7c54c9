"""ComparisonFindings: the result of comparing some queues; results can be added."""

import json
from dataclasses import dataclass, field
from typing import Self

from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.tally import ComparisonTally, DifferenceKind
from cqstore.store.comparing.verified_queues import FACTS_BYTES

_TARGET_LACKS = (DifferenceKind.MISSING_HEAD, DifferenceKind.MISSING_TAIL, DifferenceKind.HOLE)


@dataclass(slots=True)
class ComparisonFindings:
    """The result of a comparison: the tally of the report, and sums that no report shows."""

    tally: ComparisonTally = field(default_factory=ComparisonTally)
    lacking: list[int] = field(default_factory=lambda: [0, 0])
    """Units that source and target lack, or have with other values; for queues their ends."""
    differing: int = 0
    """Number of these units, each counted once."""
    passed_over: int = 0
    """Queues that were not compared because their files are known."""
    facts: list[bytes] = field(default_factory=list)
    """Facts of the source's queues that were compared to their end, see ``QueueFacts``."""

    def count_lacking(self, found: QueueFindings) -> None:
        """Count the units of one queue that either side lacks."""
        counts = found.counts
        target = sum(counts.get(kind, 0) for kind in _TARGET_LACKS)
        source = counts.get(DifferenceKind.EXTRA, 0)
        if DifferenceKind.ONLY_SOURCE in counts:
            target = max(found.source.units, 1)
        if DifferenceKind.ONLY_TARGET in counts:
            source = max(found.target.units, 1)
        both = counts.get(DifferenceKind.DIFFERENT, 0) + counts.get(DifferenceKind.UNREADABLE, 0)
        if not source and not target:
            both += counts.get(DifferenceKind.NEXT_OFFSET, 0)
        self.lacking[0] += source + both
        self.lacking[1] += target + both
        self.differing += source + target + both

    def add(self, other: "ComparisonFindings") -> None:
        """Add the findings of the queues that follow."""
        self.tally.add(other.tally)
        self.lacking = [sum(each) for each in zip(self.lacking, other.lacking, strict=True)]
        self.differing += other.differing
        self.passed_over += other.passed_over
        self.facts += other.facts

    def text(self) -> str:
        """Return the findings as JSON, for another process to read."""
        return json.dumps({
            "tally": self.tally.model_dump(mode="json"), "lacking": self.lacking,
            "differing": self.differing, "passed_over": self.passed_over,
            "facts": b"".join(self.facts).hex(),
        })  # fmt: skip

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the findings from the result of ``text``."""
        given = json.loads(text)
        facts = bytes.fromhex(given["facts"])
        each = [facts[at : at + FACTS_BYTES] for at in range(0, len(facts), FACTS_BYTES)]
        tally = ComparisonTally.model_validate(given["tally"])
        return cls(tally, given["lacking"], given["differing"], given["passed_over"], each)
