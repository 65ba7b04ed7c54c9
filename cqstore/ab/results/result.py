"""The result of a comparison: all that was measured, and nothing that follows from it.

``cqstore.ab.judging`` computes ratios, intervals and sentences from this, so a report can be made
again, elsewhere and later. Its JSON schema lies beside this module, ``result.schema.json``.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, model_validator

FORMAT: Literal[1] = 1
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
"""Of a turn's latencies that are kept; merged histograms give all others."""


class _ResultModel(BaseModel):
    """A part of a result: with the declared fields and no other, and numbers that are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Machine(_ResultModel):
    """What the figures were taken on."""

    name: str = Field(description="Host name.")
    processor: str
    cores: NonNegativeInt = Field(description="That the process may use.")
    memory_bytes: NonNegativeInt
    kernel: str
    file_system: str = Field(description="Of the folder the sides lay in.")
    mount_options: str
    disk: str
    versions: dict[str, str] = Field(description="Python, cqstore, and what the sides load.")


class Shape(_ResultModel):
    """What the data is like."""

    root: str
    topics: NonNegativeInt
    queues: NonNegativeInt
    units: NonNegativeInt
    log_bytes: NonNegativeInt
    log_files: NonNegativeInt
    units_of_queue: dict[str, NonNegativeInt] = Field(
        description="Units of a queue: min, p50, p90, p99, max."
    )
    share_of_hottest: dict[str, NonNegativeFloat] = Field(
        description="Share of all units that the fullest 1 and 10 percent of queues hold."
    )


class Footprint(_ResultModel):
    """What a side's queues take closed and open, before anything is timed."""

    disk_bytes: NonNegativeInt = Field(description="Allocated, of the queues alone.")
    files: NonNegativeInt
    maps: NonNegativeInt = Field(description="Memory maps of the open process.")
    descriptors: NonNegativeInt
    pss_bytes: NonNegativeInt = Field(description="Proportional set size of the open process.")
    open_seconds: NonNegativeFloat


class Side(_ResultModel):
    """One thing that is compared; the first of them is the reference."""

    name: str = Field(description="As named in the report; names are unique.")
    given: str = Field(description="As the operator gave it, such as rocksdb,engine=rocksdict.")
    backend: str
    options: dict[str, str] = Field(description="Settings that differ from the defaults.")
    twin_of: str | None = Field(
        default=None, description="The side that this one repeats, to measure the noise."
    )
    log_shared_by: str = Field(description="hard links, reflinks or copies.")
    build_seconds: NonNegativeFloat = Field(description="Making its queues from the log.")
    footprint: Footprint | None = None


class Cache(StrEnum):
    """How the page cache was treated before a round."""

    WARM = "warm"
    DROPPED = "dropped"


class Method(_ResultModel):
    """How a comparison was measured: rounds, turns, caches."""

    seed: int
    rounds: NonNegativeInt = Field(description="Per side and workload, those of warm-up included.")
    warm_up: str = Field(description="The rule by which rounds were dropped, a sentence.")
    cache: Cache
    confidence: Annotated[float, Field(gt=0, lt=1)]
    min_compared: NonNegativeInt = Field(
        description="Operations below which there is no verdict on answers."
    )
    max_width: Annotated[float, Field(gt=1)] = Field(
        description="Upper end of an interval by its lower end: above it is too noisy to tell."
    )
    min_ratio: Annotated[float, Field(gt=1)] = Field(
        description="A smaller difference is not called one."
    )

    @classmethod
    def today(cls, *, seed: int, rounds: int, warm_up: str, cache: Cache) -> Self:
        """Return how today's version measures, with the bounds by which it judges."""
        return cls(
            seed=seed, rounds=rounds, warm_up=warm_up, cache=cache,
            confidence=0.95, min_compared=1_000, max_width=1.5, min_ratio=1.03,
        )  # fmt: skip


class TraceFacts(_ResultModel):
    """Which operations were run."""

    origin: Literal["derived", "given", "recorded"] = Field(
        description="Derived from the store, recorded by one, or made elsewhere."
    )
    operations: NonNegativeInt
    digest: str = Field(description="SHA-256 of the operations, as they were run.")
    loop: Literal["closed", "open"]
    rate: NonNegativeFloat | None = Field(
        default=None, description="Open loop: operations a second that were offered."
    )


class Round(_ResultModel):
    """One side's turn in one round of one workload.

    A round may give every side several turns, all the same number of them (ABBA: two): a side's
    figures of a round are the sums over its turns, its disturbance that of any of them.
    """

    number: NonNegativeInt = Field(description="Of the round; a round is what is replicated.")
    turn: NonNegativeInt = Field(description="Its place among all turns of the workload.")
    side: str
    warm_up: bool
    operations: NonNegativeInt
    items: NonNegativeInt = Field(description="What the operations gave: messages, units, queues.")
    seconds: NonNegativeFloat
    cpu_seconds: NonNegativeFloat
    written_bytes: NonNegativeInt = Field(description="By /proc/PID/io: pages made dirty.")
    backend_written: dict[str, NonNegativeInt] = Field(
        default={},
        description="Cause (flush, compaction, wal) → bytes that the backend has written by its own"
        " count. Empty if it counts none.",
    )
    read_bytes: NonNegativeInt
    pss_bytes: NonNegativeInt
    steal: NonNegativeFloat = Field(description="Share of CPU time that other guests took.")
    others: NonNegativeFloat = Field(description="CPU seconds a second of other processes.")
    service_ns: dict[str, NonNegativeInt] = Field(
        default={}, description="Of this turn's operations: p50, p99, p99.9, max, in nanoseconds."
    )
    intended_ns: dict[str, NonNegativeInt] = Field(
        default={}, description="The same, from when an operation was due; open loop only."
    )
    disturbed: str = Field(default="", description="Why it counts as disturbed, if it does.")
    answers: str = Field(description="Digest of all answers, or of the state afterwards.")


class Difference(_ResultModel):
    """One operation that two sides answered differently."""

    workload: str
    operation: dict[str, int | str | float | bool | None]
    answers: dict[str, str] = Field(description="Side → its answer.")


class Answers(_ResultModel):
    """Whether the sides answered a workload alike."""

    compared: NonNegativeInt = 0
    different: NonNegativeInt = 0
    first: list[Difference] = []


class WorkloadFigures(_ResultModel):
    """One workload's figures."""

    name: str
    what: str = Field(description="What one operation is, a sentence.")
    item: str = Field(description="What items are: messages, units, queues.")
    mode: Literal["closed", "open"] = "closed"
    offered: NonNegativeFloat | None = Field(
        default=None, description="Open loop: operations a second that were due."
    )
    rounds: list[Round] = []
    service: dict[str, str] = Field(
        default={},
        description="Side → HdrHistogram V2 of nanoseconds from an operation's begin to its end.",
    )
    intended: dict[str, str] = Field(
        default={}, description="The same, from when it was due; open loop only."
    )
    answers: Answers = Answers()
    not_measured: str = Field(
        default="", description="Why there are no figures, if there are none."
    )


class Proof(_ResultModel):
    """That the sides' queues were alike before anything was timed."""

    queues: NonNegativeInt
    units: NonNegativeInt
    digest: str = Field(description="Over offsets and units of all queues, the same on every side.")


class Point(_ResultModel):
    """What a side costs at one number of queues; two and more of them carry a projection."""

    side: str
    queues: NonNegativeInt
    units: NonNegativeInt
    footprint: Footprint


class Result(_ResultModel):
    """One comparison, whole."""

    format: Literal[1] = FORMAT
    kind: Literal["run", "live"]
    made: str = Field(description="When it began, ISO 8601 in UTC.")
    command: list[str] = Field(description="What repeats it.")
    machine: Machine
    store: Shape
    sides: Annotated[list[Side], Field(min_length=1)]
    method: Method
    trace: TraceFacts | None = None
    workloads: list[WorkloadFigures]
    proof: Proof | None = Field(
        default=None, description="None if the queues were not alike; then nothing was timed."
    )
    points: list[Point] = Field(default=[], description="For projections, see --project.")
    project_to: NonNegativeInt | None = None
    matters: list[str] = Field(
        default=[], description="Workloads that decide the backend, see --matters; none: all."
    )
    not_measured: list[str] = Field(default=[], description="What this does not show, sentences.")
    seconds: NonNegativeFloat = Field(description="The whole run.")

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        """Refuse names that come twice, or that no side or workload has.

        Raises:
            ValueError: there is one.
        """
        names = [side.name for side in self.sides]
        works = [workload.name for workload in self.workloads]
        for kind, given in (("sides", names), ("workloads", works)):
            if len(set(given)) < len(given):
                raise ValueError(f"two {kind} have one name")
        told = {side.twin_of for side in self.sides if side.twin_of is not None}
        if strange := sorted(set(self.matters) - set(works)):
            raise ValueError(f"no such workload: {strange[0]}")
        told |= {turn.side for workload in self.workloads for turn in workload.rounds}
        told |= {name for work in self.workloads for name in (*work.service, *work.intended)}
        if unknown := sorted((told | {point.side for point in self.points}) - set(names)):
            raise ValueError(f"no such side: {unknown[0]}")
        return self
