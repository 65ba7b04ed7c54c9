"""The judgement of a result: what a report prints as a table, as JSON or as HTML."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from cqstore.ab.judging.intervals import Interval
from cqstore.ab.judging.side_figures import as_good
from cqstore.ab.judging.words import Measure
from cqstore.ab.results.result import Difference


class _JudgementModel(BaseModel):
    """Part of a judgement: immutable, without extra fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcome(StrEnum):
    """Outcome of one figure of a side compared with the reference."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference shown"
    NOISY = "too noisy to tell"
    FEW = "too few rounds"
    SHOWN = "shown, not judged"
    FLOOR = "noise floor"
    """Of a twin: other differences must exceed it."""
    WITHHELD = "withheld"
    NO_VERDICT = "no verdict"
    ABSENT = "not measured"


DECIDED = frozenset({Outcome.BETTER, Outcome.WORSE})


class AnswersJudgement(_JudgementModel):
    """Whether the sides gave the same answers; shown before all figures."""

    status: Literal["same", "different", "too few", "none"]
    sentence: str
    compared: NonNegativeInt
    different: NonNegativeInt
    min_compared: NonNegativeInt = Field(
        description="Minimum number of compared operations for a verdict."
    )
    digests: list[str] = Field(description="Rounds whose digests differ, one sentence each.")
    first: list[Difference]


class ComparedFigure(_JudgementModel):
    """One figure of one side and of the reference."""

    side: str
    figure: str
    label: str
    unit: Measure
    value: float | None
    reference: float | None
    ratio: float | None = Field(default=None, description="Side divided by reference.")
    low: float | None = None
    high: float | None = None
    floor: float | None = Field(
        default=None,
        description="Noise floor: ratio, above 1, that the reference and its twin can reach.",
    )
    rounds: NonNegativeInt = Field(default=0, description="Number of rounds in the interval.")
    left_out: NonNegativeInt = Field(default=0, description="Disturbed rounds that are excluded.")
    outcome: Outcome
    why: str = ""

    @property
    def as_good(self) -> Interval | None:
        """Return how many times as good the figure is as the reference's, with its interval."""
        return as_good(self.figure, self.ratio, self.low, self.high)


class Sentence(_JudgementModel):
    """The sentence about a side at a workload."""

    side: str
    outcome: Outcome
    figure: str = Field(description="Key of the figure that decides it.")
    text: str
    also: list[str] = Field(description="Further figures that differ.")


class WorkloadJudgement(_JudgementModel):
    """One workload: a sentence per side, and all figures."""

    name: str
    headline: str = Field(description="Key of the figure that the sentences are about.")
    sentences: list[Sentence]
    comparisons: list[ComparedFigure]
    withheld: dict[str, str] = Field(
        description="Side → why its percentiles from the due time are withheld."
    )

    def of(self, side: str, figure: str) -> ComparedFigure | None:
        """Return the comparison of ``side`` by ``figure``; ``None`` if there is none."""
        return next(
            (each for each in self.comparisons if (each.side, each.figure) == (side, figure)), None
        )

    def deciding(self) -> Iterator[ComparedFigure]:
        """Yield the figure of each side's sentence, for tables and plots."""
        for sentence in self.sentences:
            if (found := self.of(sentence.side, sentence.figure)) is not None:
                yield found


class Projection(_JudgementModel):
    """A figure of a side at another number of queues, on a line through measured points."""

    side: str
    figure: str
    label: str
    unit: Measure
    points: list[tuple[int, float]] = Field(description="Queues and value, as measured.")
    base: float = Field(description="Value of the line at zero queues.")
    a_queue: float
    queues: NonNegativeInt
    value: float
    misses_by: float | None = Field(
        description="Largest relative deviation from the line; none with only two points."
    )
    beyond: float = Field(description="Queues divided by the largest number of queues measured.")


class Banner(_JudgementModel):
    """The recommended backend for this store, with its confidence."""

    text: str = Field(description="The answer, a sentence.")
    sure: str = Field(default="", description="Confidence of the answer, a sentence.")
    side: str | None = Field(
        default=None, description="The recommended side; none if there is no recommendation."
    )
    busy: str = Field(default="", description="Sentence shown first if the machine was busy.")
    missing: str = Field(
        default="", description="Sentence about deciding workloads that were not measured."
    )
    matters: list[str] = Field(
        default=[], description="Workloads named with --matters; empty: all."
    )

    @property
    def is_firm(self) -> bool:
        """Return whether it names a side from undisturbed rounds of all deciding workloads."""
        return bool(self.side) and not (self.busy or self.missing)


class Judgement(_JudgementModel):
    """The judgement of a result."""

    reference: str
    sides: list[str] = Field(description="Sides compared with the reference, without twins.")
    banner: Banner
    answers: AnswersJudgement
    confidence: float = Field(description="Confidence that all intervals hold together.")
    headline_confidence: float = Field(description="Confidence of a single headline interval.")
    further_confidence: float = Field(description="Confidence of any other single interval.")
    workloads: list[WorkloadJudgement]
    footprint: list[ComparedFigure]
    projections: list[Projection]
    notes: list[str] = Field(description="Sentences about what weakens the judgement.")
