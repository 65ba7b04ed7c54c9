"""Whether the sides gave the same answers; judged before any figure."""

from cqstore.ab.judging.judgement import AnswersJudgement
from cqstore.ab.judging.words import count_text
from cqstore.ab.results.result import Result, WorkloadFigures


def judge_answers(result: Result) -> AnswersJudgement:
    """Return the judgement of all answers of a comparison."""
    compared = sum(workload.answers.compared for workload in result.workloads)
    different = sum(workload.answers.different for workload in result.workloads)
    digests = [each for workload in result.workloads for each in _digests(workload)]
    first = [each for workload in result.workloads for each in workload.answers.first]
    min_compared = result.method.min_compared
    operations = count_text(compared, "operation")
    if different or digests or first:
        status = "different"
        counts = (
            f"{different:,} of {count_text(compared, 'compared operation')}"
            if different
            else f"the digests of {count_text(len(digests), 'round')} differ"
        )
        sentence = f"The sides gave different answers: {counts}. No figure is judged."
        if result.kind == "clients":
            sentence = (
                f"The load differed from the reference's in {count_text(different, 'run')}: the"
                " client must send and receive the same messages in each run. No figure is judged."
            )
    elif not compared:
        status, sentence = "none", "No operation was compared: there is no verdict."
    elif compared < min_compared:
        status = "too few"
        sentence = (
            f"Only {operations} compared, at least {min_compared:,} required: there is no verdict."
        )
    else:
        what = "The load was the same" if result.kind == "clients" else "All answers were the same"
        status, sentence = "same", f"{what}: {operations} compared."
    return AnswersJudgement(
        status=status, sentence=sentence, compared=compared, different=different,
        min_compared=min_compared, digests=digests, first=first,
    )  # fmt: skip


def _digests(workload: WorkloadFigures) -> list[str]:
    """Return the rounds in which the digests of two sides differ, in any order of their turns."""
    found: dict[int, dict[str, list[str]]] = {}
    for turn in workload.rounds:
        if turn.answers:
            found.setdefault(turn.number, {}).setdefault(turn.side, []).append(turn.answers)
    differing = (
        number
        for number, sides in found.items()
        if len({tuple(sorted(digests)) for digests in sides.values()}) > 1
    )
    return [
        f"{workload.name}, round {number}: the digests of the answers differ"
        for number in differing
    ]
