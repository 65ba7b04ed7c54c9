"""One sentence per side and workload: which side, by how much, with what confidence."""

from typing import NamedTuple

from cqstore.ab.judging.intervals import Interval
from cqstore.ab.judging.judgement import (
    DECIDED,
    AnswersJudgement,
    ComparedFigure,
    Outcome,
    Sentence,
)
from cqstore.ab.judging.side_figures import FIGURES, OF_THE_SIDE
from cqstore.ab.judging.words import percent_text, ratio_text, span_text
from cqstore.ab.results.result import Result, WorkloadFigures


class Phrases(NamedTuple):
    """Templates for a ratio; each has one placeholder for it. More is always better."""

    fast: str
    """For a throughput, and, inverted, for a latency."""
    figure: str
    """For any other figure."""

    def sentence(
        self, outcome: Outcome, found: Interval, figure: str, workload: str, confidence: float,
        nothing: str = "difference",
    ) -> str:  # fmt: skip
        """Return the sentence of an outcome that has an interval."""
        sure, place = percent_text(confidence), f"at {workload}"
        of = FIGURES[figure]
        is_time = of.more_is_better or of.key.startswith(("service", "intended"))
        way = self.fast if is_time else self.figure
        if not of.more_is_better:
            place += f" by {of.label}" if is_time else ""
        if is_time and not of.more_is_better:
            found = found.turned
        ratio, low, high = found
        if outcome is Outcome.NOISY:
            return f"Too noisy to tell {place}: {way.format(span_text(low, high))} ({sure})."
        if outcome is Outcome.SAME:
            return f"No {nothing} shown {place}: {way.format(span_text(low, high))} ({sure})."
        text = f"{way.format(ratio_text(ratio))} {place} ({sure}: {span_text(low, high)})."
        return text if is_time else f"T{text.removeprefix('t')}"  # a side's name stays as it is


def sentence(
    result: Result, workload: WorkloadFigures, answers: AnswersJudgement, headline: str,
    comparisons: list[ComparedFigure], side: str,
) -> Sentence:  # fmt: skip
    """Return the sentence about ``side``, from the comparisons of a workload."""
    mine = [each for each in comparisons if each.side == side]
    first = next((each for each in mine if each.figure == headline), None)
    if first is not None and first.outcome is Outcome.NOISY:
        first = next((each for each in mine if _is_firm(each)), first)
    outcome, text = _sentence(result, workload, answers, first, side)
    if first is not None and first.figure != headline:
        text += f" Its {FIGURES[headline].label} is too noisy to tell."
    also = [
        _also(each)
        for each in mine
        if each.outcome in DECIDED and each is not first and each.figure not in OF_THE_SIDE
    ]
    judged = answers.status == "same"
    return Sentence(
        side=side, outcome=outcome, figure=headline if first is None else first.figure, text=text,
        also=also if judged else [],
    )  # fmt: skip


def _is_firm(comparison: ComparedFigure) -> bool:
    """Return whether it is a percentile that differs; it decides if the headline is noisy."""
    times = comparison.figure.startswith(("service", "intended"))
    return times and comparison.outcome in DECIDED


def _sentence(
    result: Result, workload: WorkloadFigures, answers: AnswersJudgement,
    first: ComparedFigure | None, side: str,
) -> tuple[Outcome, str]:  # fmt: skip
    """Return the outcome of a workload for a side, and its sentence."""
    if workload.not_measured:
        return Outcome.ABSENT, f"Not measured: {workload.name}: {workload.not_measured}."
    if answers.status != "same":
        why = {
            "different": "the answers differ",
            "too few": "too few answers were compared",
            "none": "no answer was compared",
        }[answers.status]
        return Outcome.NO_VERDICT, f"No verdict at {workload.name}: {why}."
    if first is None or first.ratio is None:
        why = first.why if first is not None and first.why else "nothing was measured in rounds"
        outcome = first.outcome if first is not None else Outcome.ABSENT
        return outcome, f"No conclusion about {side} at {workload.name}: {why}."
    return first.outcome, _judged(result, workload, first)


def _judged(result: Result, workload: WorkloadFigures, first: ComparedFigure) -> str:
    """Return the sentence of a comparison that has an interval."""
    reference, side = result.sides[0].name, first.side
    claim = Phrases(
        f"{side} is {{}} times as fast as {reference}",
        f"the {first.label} of {side} is {{}} times that of {reference}",
    )
    found = Interval(first.ratio or 1.0, first.low or 1.0, first.high or 1.0)
    text = claim.sentence(
        first.outcome, found, first.figure, workload.name, result.method.confidence
    )
    if first.outcome is Outcome.SAME:
        text = text.removesuffix(".") + f"{_in_spite(result, first)}."
    return text


def _in_spite(result: Result, first: ComparedFigure) -> str:
    """Return why there is no difference although the interval excludes 1."""
    if (first.low or 0) <= 1 <= (first.high or 1):
        return ""
    reference, minimum = result.sides[0].name, result.method.min_ratio
    if (first.floor or 1) > minimum:
        return (
            f", but a repeat of {reference} differs from it by up to {ratio_text(first.floor or 1)}"
        )
    return f", and less than {ratio_text(minimum)} does not count as a difference"


def _also(comparison: ComparedFigure) -> str:
    ratio, low, high = comparison.as_good or Interval(1.0, 1.0, 1.0)
    return f"{comparison.label} {ratio_text(ratio)} times as good ({span_text(low, high)})"
