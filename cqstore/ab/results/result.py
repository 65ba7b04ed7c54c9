"""The result of a comparison: all measurements, and nothing computed from them.

``cqstore.ab.judging`` computes ratios, intervals and sentences from this, so a report can be made
again, elsewhere and later. Its JSON schema is ``result.schema.json`` next to this module.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, model_validator

FORMAT: Literal[1] = 1
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
"""Percentiles kept per turn; merged histograms give all others."""


class _ResultModel(BaseModel):
    """A part of a result: with the declared fields and no other, and numbers that are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Machine(_ResultModel):
    """Machine on which the figures were measured."""

    name: str = Field(description="Host name.")
    processor: str
    cores: NonNegativeInt = Field(description="Cores that the process may use.")
    memory_bytes: NonNegativeInt
    kernel: str
    file_system: str = Field(description="File system of the work folder.")
    mount_options: str
    disk: str
    versions: dict[str, str] = Field(
        description="Versions of Python, cqstore and the sides' libraries."
    )


class Shape(_ResultModel):
    """Size and shape of the data."""

    root: str
    topics: NonNegativeInt
    queues: NonNegativeInt
    units: NonNegativeInt
    log_bytes: NonNegativeInt
    log_files: NonNegativeInt
    units_of_queue: dict[str, NonNegativeInt] = Field(
        description="Units per queue: min, p50, p90, p99, max."
    )
    share_of_hottest: dict[str, NonNegativeFloat] = Field(
        description="Share of all units that the fullest 1 and 10 percent of queues hold."
    )


class Footprint(_ResultModel):
    """Resources of a side's queues, on disk and after opening, measured before the workloads."""

    disk_bytes: NonNegativeInt = Field(description="Bytes allocated on disk for the queues.")
    files: NonNegativeInt
    maps: NonNegativeInt = Field(description="Memory maps of the open process.")
    descriptors: NonNegativeInt
    pss_bytes: NonNegativeInt = Field(description="Proportional set size of the open process.")
    open_seconds: NonNegativeFloat


class Side(_ResultModel):
    """One side of the comparison; the first side is the reference."""

    name: str = Field(description="Unique name in the report.")
    given: str = Field(
        description="Side as given on the command line, such as rocksdb,engine=rocksdict."
    )
    backend: str
    options: dict[str, str] = Field(description="Settings that differ from the defaults.")
    twin_of: str | None = Field(
        default=None, description="Side that this side repeats to measure the noise."
    )
    log_shared_by: str = Field(
        description="How log files were shared: hard links, reflinks or copies."
    )
    build_seconds: NonNegativeFloat = Field(description="Seconds to build the queues from the log.")
    footprint: Footprint | None = None


class Cache(StrEnum):
    """State of the page cache before a round."""

    WARM = "warm"
    DROPPED = "dropped"


class Method(_ResultModel):
    """How a comparison was measured: rounds, turns, caches."""

    seed: int
    rounds: NonNegativeInt = Field(description="Rounds per side and workload, including warm-up.")
    warm_up: str = Field(description="Sentence about the rounds that do not count.")
    new_processes: bool = Field(
        default=False, description="Whether each round of short turns has new processes."
    )
    cache: Cache
    confidence: Annotated[float, Field(gt=0, lt=1)]
    min_compared: NonNegativeInt = Field(
        description="Minimum number of compared operations for a verdict."
    )
    max_width: Annotated[float, Field(gt=1)] = Field(
        description="Maximum ratio of an interval's ends; wider intervals are too noisy to tell."
    )
    min_ratio: Annotated[float, Field(gt=1)] = Field(
        description="Minimum ratio that counts as a difference."
    )

    @classmethod
    def today(
        cls, *, seed: int, rounds: int, warm_up: str, cache: Cache, new_processes: bool = False
    ) -> Self:
        """Return how today's version measures, with the bounds by which it judges."""
        return cls(
            seed=seed, rounds=rounds, warm_up=warm_up, cache=cache, new_processes=new_processes,
            confidence=0.95, min_compared=1_000, max_width=1.5, min_ratio=1.03,
        )  # fmt: skip


class TraceFacts(_ResultModel):
    """The operations of the comparison."""

    origin: Literal["derived", "given", "recorded"] = Field(
        description="Derived from the store, given by the user, or recorded."
    )
    operations: NonNegativeInt
    digest: str = Field(description="SHA-256 of the operations in the order in which they ran.")
    loop: Literal["closed", "open"]
    rate: NonNegativeFloat | None = Field(
        default=None, description="Open loop: offered operations per second."
    )
    speed: NonNegativeFloat | None = Field(
        default=None, description="Open loop: how many times as fast as recorded the trace is run."
    )


class Round(_ResultModel):
    """One side's turn in one round of one workload.

    Each side may have several turns in a round, all sides the same number (ABBA: two). A side's
    figures of a round are sums over its turns; it is disturbed if any of its turns is.
    """

    number: NonNegativeInt = Field(description="Number of the round; rounds are the sample.")
    turn: NonNegativeInt = Field(description="Position among all turns of the workload.")
    side: str
    warm_up: bool
    operations: NonNegativeInt
    items: NonNegativeInt = Field(description="Number of returned messages, units or queues.")
    seconds: NonNegativeFloat
    cpu_seconds: NonNegativeFloat
    written_bytes: NonNegativeInt = Field(description="Bytes of dirty pages, from /proc/PID/io.")
    backend_written: dict[str, NonNegativeInt] = Field(
        default={},
        description="Cause (flush, compaction, wal) → bytes that the backend counted as written."
        " Empty if it does not count.",
    )
    read_bytes: NonNegativeInt
    disk_bytes: NonNegativeInt = Field(
        default=0, description="Growth of the queues on disk; 0: not measured."
    )
    pss_bytes: NonNegativeInt
    steal: NonNegativeFloat = Field(description="Share of CPU time that other guests took.")
    others: NonNegativeFloat = Field(description="CPU seconds per second of other processes.")
    service_ns: dict[str, NonNegativeInt] = Field(
        default={}, description="p50, p99, p99.9 and max of this turn's operations in nanoseconds."
    )
    intended_ns: dict[str, NonNegativeInt] = Field(
        default={}, description="The same percentiles measured from the due time; open loop only."
    )
    disturbed: str = Field(default="", description="Why the turn is disturbed; empty if it is not.")
    answers: str = Field(description="Digest of all answers, or of the state after the turn.")


class Difference(_ResultModel):
    """One operation that two sides answered differently."""

    workload: str
    operation: dict[str, int | str | float | bool | None]
    answers: dict[str, str] = Field(description="Side → its answer.")


class Answers(_ResultModel):
    """Whether the sides gave the same answers to a workload."""

    compared: NonNegativeInt = 0
    different: NonNegativeInt = 0
    first: list[Difference] = []


class WorkloadFigures(_ResultModel):
    """One workload's figures."""

    name: str
    what: str = Field(description="Sentence about one operation.")
    item: str = Field(description="Unit of items: messages, units or queues.")
    mode: Literal["closed", "open"] = "closed"
    offered: NonNegativeFloat | None = Field(
        default=None, description="Open loop: operations per second that were due."
    )
    rounds: list[Round] = []
    service: dict[str, str] = Field(
        default={},
        description="Side → HdrHistogram V2 of the nanoseconds from start to end of an operation.",
    )
    intended: dict[str, str] = Field(
        default={}, description="The same histograms measured from the due time; open loop only."
    )
    answers: Answers = Answers()
    not_measured: str = Field(
        default="", description="Why there are no figures; empty if there are."
    )


class Proof(_ResultModel):
    """Proof that the sides had the same queues before the measurement."""

    queues: NonNegativeInt
    units: NonNegativeInt
    digest: str = Field(
        description="Digest of offsets and units of all queues, the same on every side."
    )


class Point(_ResultModel):
    """Resources of a side at one number of queues; a projection needs at least two points."""

    side: str
    queues: NonNegativeInt
    units: NonNegativeInt
    footprint: Footprint


class Sample(_ResultModel):
    """Memory and disk of a side at one moment."""

    side: str
    at: NonNegativeFloat = Field(description="Seconds since the start of the whole run.")
    pss_bytes: NonNegativeInt = Field(description="Proportional set size of the side's process.")
    disk_bytes: NonNegativeInt = Field(description="Bytes allocated on disk for the queues.")


class Result(_ResultModel):
    """One complete comparison."""

    format: Literal[1] = FORMAT
    kind: Literal["run", "live", "follow", "clients"]
    made: str = Field(description="Start time, ISO 8601 in UTC.")
    command: list[str] = Field(description="Command that repeats the comparison.")
    machine: Machine
    store: Shape
    sides: Annotated[list[Side], Field(min_length=1)]
    method: Method
    trace: TraceFacts | None = None
    workloads: list[WorkloadFigures]
    proof: Proof | None = Field(
        default=None, description="None if the queues differed; then nothing was measured."
    )
    points: list[Point] = Field(
        default=[], description="Measured points for projections, see --project."
    )
    project_to: NonNegativeInt | None = None
    samples: list[Sample] = Field(default=[], description="Memory and disk over time, in order.")
    matters: list[str] = Field(
        default=[],
        description="Workloads that decide the recommendation, see --matters; empty: all.",
    )
    not_measured: list[str] = Field(
        default=[], description="Sentences about what the result does not show."
    )
    seconds: NonNegativeFloat = Field(description="Duration of the whole run in seconds.")

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        """Refuse duplicate names, and names that no side or workload has.

        Raises:
            ValueError: there is one.
        """
        names = [side.name for side in self.sides]
        works = [workload.name for workload in self.workloads]
        for kind, given in (("sides", names), ("workloads", works)):
            if len(set(given)) < len(given):
                raise ValueError(f"two {kind} have the same name")
        named = {side.twin_of for side in self.sides if side.twin_of is not None}
        if strange := sorted(set(self.matters) - set(works)):
            raise ValueError(f"no such workload: {strange[0]}")
        named |= {turn.side for workload in self.workloads for turn in workload.rounds}
        named |= {name for work in self.workloads for name in (*work.service, *work.intended)}
        named |= {point.side for point in self.points} | {each.side for each in self.samples}
        if unknown := sorted(named - set(names)):
            raise ValueError(f"no such side: {unknown[0]}")
        return self
