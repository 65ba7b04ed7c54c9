"""The comparison of two results: two machines, or two days of one machine."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

from cqstore.ab.extras import need_extras
from cqstore.ab.judging.comparable import (
    Pair,
    circumstances,
    left_out,
    obstacles,
    sides_of_both,
    workloads_of_both,
)
from cqstore.ab.judging.intervals import MIN_WITHOUT_FLOOR, Interval, unpaired
from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import ComparedFigure, Judgement, Outcome
from cqstore.ab.judging.paired_rounds import values
from cqstore.ab.judging.side_figures import FIGURES, as_good
from cqstore.ab.judging.verdict_sentences import Phrases
from cqstore.ab.judging.verdicts import decide
from cqstore.ab.judging.words import Measure, ratio_text, span_text
from cqstore.ab.results.result import Result, WorkloadFigures


class Change(BaseModel):
    """Change of a side at a workload from A to B."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload: str
    side: str
    figure: str
    label: str
    unit: Measure
    a: float
    b: float
    ratio: float | None = Field(default=None, description="B divided by A.")
    low: float | None = None
    high: float | None = None
    outcome: Outcome
    text: str
    beside_a: str = Field(
        default="", description="How many times as good as the reference the side was in A."
    )
    beside_b: str = ""

    @property
    def as_good(self) -> Interval | None:
        """Return how many times as good B is as A."""
        return as_good(self.figure, self.ratio, self.low, self.high)


class ResultChanges(BaseModel):
    """The comparison of two results."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cannot: list[str] = Field(
        description="Reasons why no figure can be compared; empty if some can."
    )
    left_out: list[str] = Field(
        description="Sides and workloads that cannot be compared, with the reason."
    )
    circumstances: list[str] = Field(
        description="Other differences that may be the cause of a change."
    )
    confidence: float = Field(description="Confidence that all intervals hold together.")
    changes: list[Change]


def compare_results(before: Result, after: Result) -> ResultChanges:
    """Return what changed from A to B for each side that is in both.

    Rounds of two runs are independent, so they are not paired. There is no noise floor between two
    runs: a change is one of the side, the machine and the day together.

    Raises:
        StoreConfigError: a library of the extra ``ab`` is missing, or a histogram cannot be read.
    """
    need_extras()
    pair = Pair(before, after)
    cannot = list(obstacles(pair))
    confidence = min(result.method.confidence for result in pair)
    return ResultChanges(
        cannot=cannot, left_out=list(left_out(pair)), circumstances=list(circumstances(pair)),
        confidence=confidence, changes=[] if cannot else list(_changes(pair, confidence)),
    )  # fmt: skip


def _changes(pair: Pair, confidence: float) -> Iterator[Change]:
    """Yield the change of each workload and side that both results have."""
    judged = judge(pair.before), judge(pair.after)
    sides, workloads = sides_of_both(pair), workloads_of_both(pair)
    wrong = (1 - confidence) / max(1, len(sides) * len(workloads))
    for one, other in workloads:
        key = _headline(judged, one.name)
        for side in sides:
            found = [values(workload, FIGURES[key], side) for workload in (one, other)]
            if all(found):
                change = _change(pair, one, side, key, found, 1 - wrong, confidence)
                beside = [_beside(each, one.name, side, key) for each in judged]
                yield change.model_copy(update={"beside_a": beside[0], "beside_b": beside[1]})


def _headline(judged: tuple[Judgement, Judgement], name: str) -> str:
    """Return the common headline of both results, else the throughput."""
    keys = {
        each.headline for judgement in judged for each in judgement.workloads if each.name == name
    }
    return keys.pop() if len(keys) == 1 else "throughput"


def _change(
    pair: Pair, workload: WorkloadFigures, side: str, key: str, found: list[list[float]],
    single: float, confidence: float,
) -> Change:  # fmt: skip
    """Return the change of a side's figure between both results, from unpaired rounds."""
    figure = FIGURES[key]
    centres = [sorted(each)[len(each) // 2] for each in found]
    made = None
    if all(0 not in each and len(each) >= MIN_WITHOUT_FLOOR for each in found):
        made = unpaired(found[1], found[0], single)
    outcome = _outcome(pair, made, more=figure.more_is_better)
    ends = {"ratio": made.ratio, "low": made.low, "high": made.high} if made else {}
    return Change(
        workload=workload.name, side=side, figure=key, label=figure.label, unit=figure.unit,
        a=centres[0], b=centres[1], outcome=outcome,
        text=_text(outcome, made, workload.name, side, key, confidence), **ends,
    )  # fmt: skip


def _outcome(pair: Pair, made: Interval | None, *, more: bool) -> Outcome:
    if made is None:
        return Outcome.FEW
    strict = max((result.method for result in pair), key=lambda method: method.min_ratio)
    found = decide(made, None, strict)
    if found is not None:
        return found
    return Outcome.BETTER if (made.ratio > 1) is more else Outcome.WORSE


def _text(
    outcome: Outcome, made: Interval | None, workload: str, side: str, key: str, confidence: float
) -> str:
    if made is None:
        return f"Too few rounds to compare {side} at {workload}."
    claim = Phrases(
        f"{side} is {{}} times as fast in B as in A",
        f"the {FIGURES[key].label} of {side} in B is {{}} times that in A",
    )
    return claim.sentence(outcome, made, key, workload, confidence, "change")


def _beside(judged: Judgement, workload: str, side: str, key: str) -> str:
    found = next(each for each in judged.workloads if each.name == workload).of(side, key)
    return _times(found) if found is not None else ""


def _times(found: ComparedFigure) -> str:
    if found.as_good is None or found.low is None:
        return ""
    ratio, low, high = found.as_good
    return f"{ratio_text(ratio)} ({span_text(low, high)})"
