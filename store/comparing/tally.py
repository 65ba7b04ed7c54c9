"""The tally: the counts of a comparison, and the differences that it lists.

Reports and their JSON schema consist of these classes: renaming a field changes a public format.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

_K = TypeVar("_K", bound=str)
MAX_QUEUES = 1000
"""Queues with differences that a report lists; all are counted."""
MAX_FINDINGS = 12
"""Findings that a report lists per queue."""


class DifferenceKind(StrEnum):
    """Kinds of differences. The target is compared with the source, both with the log.

    ``next_offset``, ``only_source``, ``only_target`` and ``unreadable`` count queues, others units.
    """

    MISSING_HEAD = "missing_head"
    """In the source, not in the target, which has no earlier units, or no units at all."""
    MISSING_TAIL = "missing_tail"
    """In the source, not in the target, which has no later units."""
    HOLE = "hole"
    """In the source, not in the target, which has earlier and later units."""
    EXTRA = "extra"
    """In the target, not in the source."""
    BEHIND_END = "behind_end"
    """In files of the target, after the queue's end; RocketMQ reads them at its next start."""
    DIFFERENT = "different"
    """On both sides, but a field differs, or the target's store timestamp is not the record's."""
    NEXT_OFFSET = "next_offset"
    """The queue continues at another offset."""
    ONLY_SOURCE = "only_source"
    """The target has no such queue."""
    ONLY_TARGET = "only_target"
    """The source has no such queue."""
    NO_RECORD = "no_record"
    """Both sides are equal, but the log has no record of that size at the unit's phy offset."""
    OTHER_QUEUE = "other_queue"
    """Both sides are equal, but the record is of another queue, or of none."""
    OTHER_TAGS = "other_tags"
    """Both sides are equal, but the tags code is not the record's (deep comparison)."""
    UNREADABLE = "unreadable"
    """A side cannot be read; the queue was not compared completely."""


class TallyModel(BaseModel):
    """A part of a report: the declared fields and no other."""

    model_config = ConfigDict(extra="forbid")


class ComparisonFinding(TallyModel):
    """Adjacent units with the same fault, or one fault of a queue."""

    kind: DifferenceKind
    units: NonNegativeInt
    first: int | None = Field(default=None, description="Queue offset of the first unit.")
    last: int | None = Field(default=None, description="Queue offset of the last unit.")
    field: str | None = Field(default=None, description="Name of the field that differs.")
    source: int | str | None = Field(default=None, description="Source value of the first unit.")
    target: int | str | None = Field(default=None, description="Target value of the first unit.")


class ComparisonSums(TallyModel):
    """Sums over the units of one side."""

    units: NonNegativeInt = 0
    bytes: int = Field(default=0, description="Size of the records according to the units.")
    checksum: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] = "0" * 16


class ComparedQueue(TallyModel):
    """One queue that differs."""

    topic: str
    queue_id: int
    counts: dict[DifferenceKind, NonNegativeInt]
    fields: dict[str, NonNegativeInt] = Field(description="Differing units per field.")
    source: ComparisonSums
    target: ComparisonSums
    findings: list[ComparisonFinding]
    more_findings: NonNegativeInt = Field(description="Findings that are not listed.")


class ComparisonNotes(TallyModel):
    """Counts of facts that are worth knowing but are not differences."""

    later: NonNegativeInt = Field(0, description="Units after the end of the plan.")
    expired_source: NonNegativeInt = Field(0, description="Units of expired records.")
    expired_target: NonNegativeInt = 0
    unreachable: NonNegativeInt = Field(0, description="Source units after the queue's end.")
    behind_end: NonNegativeInt = Field(
        0, description="Rows after the end of source queues that RocketMQ would read as units."
    )
    shifted: NonNegativeInt = Field(0, description="Records with another queue offset.")
    empty: NonNegativeInt = Field(0, description="Queues that never had a unit.")


class ComparisonTally(TallyModel):
    """The counts of a comparison; tasks return theirs, the report has their sum."""

    queues: NonNegativeInt = Field(0, description="Non-empty queues on either side.")
    differing: NonNegativeInt = Field(0, description="Queues that differ.")
    topics_only_source: NonNegativeInt = 0
    topics_only_target: NonNegativeInt = 0
    counts: dict[DifferenceKind, NonNegativeInt] = {}
    fields: dict[str, NonNegativeInt] = Field({}, description="Differing units per field.")
    units_only_source: NonNegativeInt = Field(0, description="Units of queues only in the source.")
    units_only_target: NonNegativeInt = Field(0, description="Units of queues only in the target.")
    source: ComparisonSums = ComparisonSums()
    target: ComparisonSums = ComparisonSums()
    notes: ComparisonNotes = ComparisonNotes()
    listed: list[ComparedQueue] = Field([], description="The first queues that differ.")

    def add(self, other: "ComparisonTally") -> None:
        """Add the counts of the next range's task."""
        for name in ("queues", "differing", "topics_only_source", "topics_only_target"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.units_only_source += other.units_only_source
        self.units_only_target += other.units_only_target
        self.counts = add_counts(self.counts, other.counts)
        self.fields = add_counts(self.fields, other.fields)
        self.source, self.target = _sum(self.source, other.source), _sum(self.target, other.target)
        mine, theirs = self.notes.model_dump(), other.notes.model_dump()
        self.notes = ComparisonNotes(**{name: mine[name] + theirs[name] for name in mine})
        self.listed = (self.listed + other.listed)[:MAX_QUEUES]


def add_counts(one: dict[_K, int], other: dict[_K, int]) -> dict[_K, int]:
    """Return the sum of two counts, in the order of their first keys."""
    names = dict.fromkeys([*one, *other])
    return {name: one.get(name, 0) + other.get(name, 0) for name in names}


def _sum(one: ComparisonSums, other: ComparisonSums) -> ComparisonSums:
    checksum = int(one.checksum, 16) ^ int(other.checksum, 16)
    return ComparisonSums(
        units=one.units + other.units, bytes=one.bytes + other.bytes, checksum=f"{checksum:016x}"
    )
