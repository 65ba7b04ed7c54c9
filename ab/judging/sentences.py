"""One plain sentence a side and workload: which, by how much, how sure."""

from ab.judging.figures import FIGURES
from ab.judging.judgement import DECIDED, AnswersJudgement, Comparison, Outcome, Sentence
from ab.judging.words import percent_text, ratio_text, span_text
from ab.result import Result, Workload


def sentence(
    result: Result, workload: Workload, answers: AnswersJudgement, headline: str,
    comparisons: list[Comparison], side: str,
) -> Sentence:  # fmt: skip
    """Return what is said of ``side``, from the comparisons of a workload."""
    mine = [each for each in comparisons if each.side == side]
    first = next((each for each in mine if each.figure == headline), None)
    outcome, text = _told(result, workload, answers, first, side)
    also = [_also(each) for each in mine if each.outcome in DECIDED and each is not first]
    judged = answers.status == "same"
    return Sentence(side=side, outcome=outcome, text=text, also=also if judged else [])


def _told(
    result: Result, workload: Workload, answers: AnswersJudgement,
    first: Comparison | None, side: str,
) -> tuple[Outcome, str]:  # fmt: skip
    if workload.not_measured:
        return Outcome.ABSENT, f"not measured: {workload.name}: {workload.not_measured}."
    if answers.status != "same":
        why = {
            "different": "the answers differ",
            "too few": "too few answers were compared",
            "none": "no answer was compared",
        }[answers.status]
        return Outcome.NO_VERDICT, f"no verdict at {workload.name}: {why}."
    if first is None or first.ratio is None:
        why = first.why if first is not None and first.why else "nothing was measured by rounds"
        outcome = first.outcome if first is not None else Outcome.ABSENT
        return outcome, f"too little to tell about {side} at {workload.name}: {why}."
    return first.outcome, _judged(result, workload, first)


def _judged(result: Result, workload: Workload, first: Comparison) -> str:
    """Return the sentence of a comparison that has an interval."""
    reference, place = result.sides[0].name, f"at {workload.name}"
    sure = percent_text(result.method.confidence)
    ratio, low, high = first.ratio or 1.0, first.low or 1.0, first.high or 1.0
    if first.outcome is Outcome.NOISY:
        told = _phrase(first, reference, span_text(low, high))
        return f"too noisy to tell {place}: {told} ({sure})."
    if first.outcome is Outcome.SAME:
        told = _phrase(first, reference, span_text(low, high))
        return f"no difference shown {place}: {told} ({sure}){_in_spite(result, first)}."
    if FIGURES[first.figure].more_is_better and ratio < 1:
        told = f"{first.side} takes {ratio_text(1 / ratio)} times as long as {reference}"
        low, high = 1 / high, 1 / low
    else:
        told = _phrase(first, reference, ratio_text(ratio))
    return f"{told} {place} ({sure}: {span_text(low, high)})."


def _phrase(first: Comparison, reference: str, times: str) -> str:
    if FIGURES[first.figure].more_is_better:
        return f"{first.side} is {times} times as fast as {reference}"
    return f"the {first.label} of {first.side} is {times} times that of {reference}"


def _in_spite(result: Result, first: Comparison) -> str:
    """Say why it is called no difference though the interval excludes 1."""
    if (first.low or 0) <= 1 <= (first.high or 1):
        return ""
    reference, least = result.sides[0].name, result.method.least_ratio
    if (first.floor or 1) > least:
        return f", but a repeat of {reference} may differ from it by {ratio_text(first.floor or 1)}"
    return f", and less than {ratio_text(least)} is not called a difference"


def _also(comparison: Comparison) -> str:
    ratio, low, high = comparison.ratio or 1.0, comparison.low or 1.0, comparison.high or 1.0
    return f"{comparison.label} {ratio_text(ratio)} times ({span_text(low, high)})"
