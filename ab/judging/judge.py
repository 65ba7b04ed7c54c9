"""From a result to its judgement."""

from collections.abc import Iterator

from ab.extras import need_extras
from ab.judging.answers import judge_answers
from ab.judging.figures import FIGURES, SIDE_FIGURES
from ab.judging.judgement import Comparison, Judgement, Outcome, WorkloadJudgement
from ab.judging.latencies import withheld
from ab.judging.projection import project
from ab.judging.rounds import pairs
from ab.judging.sentences import sentence
from ab.judging.verdicts import compare, compared_sides, headline, levels, twin
from ab.judging.words import count_text
from ab.result import Result, Workload


def judge(result: Result) -> Judgement:
    """Return all that follows from a result; the same each time.

    Raises:
        StoreConfigError: a library of the extra ``ab`` is missing, or a histogram cannot be read.
    """
    need_extras()
    answers = judge_answers(result)
    given = levels(result)
    workloads = []
    for workload in result.workloads:
        first = headline(result, workload)
        comparisons = list(compare(result, workload, given))
        if answers.status != "same":
            comparisons = [_unjudged(each) for each in comparisons]
        late = ((side.name, withheld(workload, side.name)) for side in result.sides)
        workloads.append(
            WorkloadJudgement(
                name=workload.name, headline=first, comparisons=comparisons,
                sentences=[
                    sentence(result, workload, answers, first, comparisons, side)
                    for side in compared_sides(result)
                ],
                withheld={side: why for side, why in late if why},
            )
        )  # fmt: skip
    return Judgement(
        reference=result.sides[0].name, sides=compared_sides(result), answers=answers,
        confidence=result.method.confidence, headline_confidence=given.headline,
        further_confidence=given.further, workloads=workloads,
        footprint=list(_footprint(result)), projections=list(project(result)),
        notes=list(_notes(result)),
    )  # fmt: skip


def _unjudged(comparison: Comparison) -> Comparison:
    """Take the outcome back: without equal answers no figure decides anything."""
    if comparison.outcome in {Outcome.FLOOR, Outcome.WITHHELD}:
        return comparison
    return comparison.model_copy(update={"outcome": Outcome.NO_VERDICT})


def _footprint(result: Result) -> Iterator[Comparison]:
    """Yield what each side's queues take; measured once, so it is shown and not judged."""
    reference, *others = result.sides
    for figure in SIDE_FIGURES:
        for side in others:
            if side.footprint is None or reference.footprint is None:
                continue
            value = figure.of(side.footprint, result.store)
            by = figure.of(reference.footprint, result.store)
            yield Comparison(
                side=side.name, figure=figure.key, label=figure.label, unit=figure.unit,
                value=value, reference=by, ratio=value / by if value and by else None,
                outcome=Outcome.FLOOR if side.twin_of else Outcome.SHOWN, why="measured once",
            )  # fmt: skip


def _notes(result: Result) -> Iterator[str]:
    """Yield what weakens the judgement."""
    if twin(result) is None:
        yield ("No noise floor was measured: the reference was not run against a repeat of itself.")
    for workload in result.workloads:
        yield from _disturbed(result, workload)


def _disturbed(result: Result, workload: Workload) -> Iterator[str]:
    reference = result.sides[0].name
    for side in compared_sides(result):
        found = pairs(workload, FIGURES[headline(result, workload)], side, reference)
        if found.disturbed:
            yield (
                f"{workload.name}: {count_text(found.disturbed, 'round')} of {len(found.mine)} with"
                f" {side} were disturbed and count all the same, for too few would remain."
            )
        elif found.left_out:
            yield (
                f"{workload.name}: {count_text(found.left_out, 'round')} with {side} left out, for"
                " they were disturbed."
            )
