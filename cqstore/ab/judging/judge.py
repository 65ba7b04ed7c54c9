"""Computes the judgement of a result."""

from collections.abc import Iterator

from cqstore.ab.extras import need_extras
from cqstore.ab.judging.answers import judge_answers
from cqstore.ab.judging.banner import make_banner
from cqstore.ab.judging.judgement import ComparedFigure, Judgement, Outcome, WorkloadJudgement
from cqstore.ab.judging.latencies import withheld
from cqstore.ab.judging.paired_rounds import pairs
from cqstore.ab.judging.projection import project
from cqstore.ab.judging.side_figures import FIGURES, SIDE_FIGURES
from cqstore.ab.judging.verdict_sentences import sentence
from cqstore.ab.judging.verdicts import compare, compared_sides, headline, levels, twin
from cqstore.ab.results.result import Result


def judge(result: Result) -> Judgement:
    """Return the judgement of a result; the same each time.

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
        reference=result.sides[0].name, sides=compared_sides(result),
        banner=make_banner(result, answers, workloads), answers=answers,
        confidence=result.method.confidence, headline_confidence=given.headline,
        further_confidence=given.further, workloads=workloads,
        footprint=list(_footprint(result)), projections=list(project(result)),
        notes=list(_notes(result)),
    )  # fmt: skip


def _unjudged(comparison: ComparedFigure) -> ComparedFigure:
    """Remove the outcome: if answers differ, no figure is judged."""
    if comparison.outcome in {Outcome.FLOOR, Outcome.WITHHELD}:
        return comparison
    return comparison.model_copy(update={"outcome": Outcome.NO_VERDICT})


def _footprint(result: Result) -> Iterator[ComparedFigure]:
    """Yield the resources of each side's queues; measured once, so shown and not judged."""
    reference, *others = result.sides
    for figure in SIDE_FIGURES:
        for side in others:
            if side.footprint is None or reference.footprint is None:
                continue
            value = figure.of(side.footprint, result.store)
            by = figure.of(reference.footprint, result.store)
            yield ComparedFigure(
                side=side.name, figure=figure.key, label=figure.label, unit=figure.unit,
                value=value, reference=by, ratio=value / by if value and by else None,
                outcome=Outcome.FLOOR if side.twin_of else Outcome.SHOWN, why="measured once",
            )  # fmt: skip


def _notes(result: Result) -> Iterator[str]:
    """Yield sentences about what weakens the judgement."""
    if twin(result) is None:
        yield (
            "No noise floor was measured: the reference was not compared with a repeat of itself."
        )
    if not result.method.new_processes:
        yield (
            "Each side was one process. One of two equal processes can be several per cent faster"
            " for as long as it runs, and the rounds do not show that."
        )
    found = {
        (workload.name, side): pairs(
            workload, FIGURES[headline(result, workload)], side, result.sides[0].name
        )
        for workload in result.workloads
        for side in compared_sides(result)
    }
    for label, field in (
        ("Disturbed rounds that are excluded", "left_out"),
        ("Disturbed rounds that count, because too few would remain", "disturbed"),
    ):
        counts = dict[str, int]()
        for (name, _), pair in found.items():
            counts[name] = max(counts.get(name, 0), getattr(pair, field))
        if any(counts.values()):
            yield f"{label}: {', '.join(f'{n} at {name}' for name, n in counts.items() if n)}."
