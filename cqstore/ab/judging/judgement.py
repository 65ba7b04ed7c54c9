"""The judgement of a result: what a report prints, as a table, JSON or a page."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from cqstore.ab.judging.intervals import Interval
from cqstore.ab.judging.side_figures import as_good
from cqstore.ab.judging.words import Measure
from cqstore.ab.results.result import Difference


class _JudgementModel(BaseModel):
    """A part of a judgement: unchangeable, with the declared fields and no other."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcome(StrEnum):
    """What is said of one figure of a side, measured by the reference."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference shown"
    NOISY = "too noisy to tell"
    FEW = "too few rounds"
    SHOWN = "shown, not judged"
    FLOOR = "noise floor"
    """Of a twin: it is what the others are measured by."""
    WITHHELD = "withheld"
    NO_VERDICT = "no verdict"
    ABSENT = "not measured"


DECIDED = frozenset({Outcome.BETTER, Outcome.WORSE})


class AnswersJudgement(_JudgementModel):
    """Did the sides answer the same? This is shown before every figure."""

    status: Literal["same", "different", "too few", "none"]
    sentence: str
    compared: NonNegativeInt
    different: NonNegativeInt
    min_compared: NonNegativeInt = Field(description="Below it there is no verdict.")
    digests: list[str] = Field(description="Rounds whose digests differ, sentences.")
    first: list[Difference]


class ComparedFigure(_JudgementModel):
    """One figure of one side beside the reference's."""

    side: str
    figure: str
    label: str
    unit: Measure
    value: float | None
    reference: float | None
    ratio: float | None = Field(default=None, description="Side by reference.")
    low: float | None = None
    high: float | None = None
    floor: float | None = Field(
        default=None, description="Ratio that the reference and its twin may reach, above 1."
    )
    rounds: NonNegativeInt = Field(default=0, description="That the interval rests on.")
    left_out: NonNegativeInt = Field(default=0, description="Rounds that were disturbed.")
    outcome: Outcome
    why: str = ""

    @property
    def as_good(self) -> Interval | None:
        """Return how many times as good it is as the reference's; its ends may be the ratio."""
        return as_good(self.figure, self.ratio, self.low, self.high)


class Sentence(_JudgementModel):
    """What is said of a side at a workload, for people."""

    side: str
    outcome: Outcome
    figure: str = Field(description="Key of the figure that decides it.")
    text: str
    also: list[str] = Field(description="Further figures that differ.")


class WorkloadJudgement(_JudgementModel):
    """One workload: a sentence a side, and all its figures."""

    name: str
    headline: str = Field(description="Key of the figure that the sentences are about.")
    sentences: list[Sentence]
    comparisons: list[ComparedFigure]
    withheld: dict[str, str] = Field(
        description="Side → why its percentiles from the due time are not shown."
    )

    def of(self, side: str, figure: str) -> ComparedFigure | None:
        """Return how ``side`` compares by ``figure``; ``None``: it was not compared."""
        return next(
            (each for each in self.comparisons if (each.side, each.figure) == (side, figure)), None
        )

    def deciding(self) -> Iterator[ComparedFigure]:
        """Yield the figure that each side's sentence is about: what tables and plots show."""
        for said in self.sentences:
            if (found := self.of(said.side, said.figure)) is not None:
                yield found


class Projection(_JudgementModel):
    """A figure of a side at another number of queues, by a line through measured points."""

    side: str
    figure: str
    label: str
    unit: Measure
    points: list[tuple[int, float]] = Field(description="Queues and value, as measured.")
    base: float = Field(description="Of the line, at no queue.")
    a_queue: float
    queues: NonNegativeInt
    value: float
    misses_by: float | None = Field(
        description="Farthest point from the line, as a share of it; none of two points."
    )
    beyond: float = Field(description="Times the most queues that were measured.")


class Banner(_JudgementModel):
    """Which backend for this store, and how sure that is."""

    text: str = Field(description="The answer, a sentence.")
    sure: str = Field(default="", description="How sure it is, a sentence.")
    side: str | None = Field(default=None, description="The recommended side; none is no answer.")
    busy: str = Field(
        default="", description="That the machine was busy, a sentence to be said first."
    )
    missing: str = Field(
        default="", description="That workloads which count were not measured, a sentence."
    )
    matters: list[str] = Field(default=[], description="Workloads that were named; none: all.")

    @property
    def is_firm(self) -> bool:
        """Return whether it names a side by calm rounds of all workloads that count."""
        return bool(self.side) and not (self.busy or self.missing)


class Judgement(_JudgementModel):
    """All that is said of a result."""

    reference: str
    sides: list[str] = Field(description="Those compared with it; no twins.")
    banner: Banner
    answers: AnswersJudgement
    confidence: float = Field(description="That all intervals hold at once.")
    headline_confidence: float = Field(description="Of a headline's interval by itself.")
    further_confidence: float = Field(description="Of any other interval by itself.")
    workloads: list[WorkloadJudgement]
    footprint: list[ComparedFigure]
    projections: list[Projection]
    notes: list[str] = Field(description="What weakens the judgement, sentences.")
