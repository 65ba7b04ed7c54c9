"""Answers come first: what differs, or was hardly compared, leaves no figure a verdict."""

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import DECIDED, Judgement, Outcome
from cqstore.ab.results.result import Answers, Difference, Result
from tests.ab.made_result import Truth, made_result

DIFFERENCE = Difference(
    workload="tail-pull",
    operation={"op": "pull", "topic": "orders", "queueId": 3, "offset": 17, "count": 32},
    answers={"files": "FOUND next 49", "rocksdb": "FOUND next 48"},
)


def answered(answers: Answers) -> Result:
    """Return a result of a side that is far slower, with these answers."""
    result = made_result(1, Truth(speed={"rocksdb": 0.3}), workloads=["tail-pull"])
    (workload,) = result.workloads
    return result.model_copy(
        update={"workloads": [workload.model_copy(update={"answers": answers})]}
    )


def outcomes(judgement: Judgement) -> set[Outcome]:
    (workload,) = judgement.workloads
    reported = {each.outcome for each in workload.sentences}
    return reported | {each.outcome for each in workload.comparisons}


def test_an_answer_that_differs_leaves_no_figure_a_verdict() -> None:
    judgement = judge(answered(Answers(compared=90_000, different=1, first=[DIFFERENCE])))
    assert judgement.answers.status == "different"
    assert judgement.answers.first == [DIFFERENCE]
    assert "1 of 90,000 compared operations" in judgement.answers.sentence
    assert outcomes(judgement) == {Outcome.NO_VERDICT, Outcome.FLOOR}
    (said,) = judgement.workloads[0].sentences
    assert (said.text, said.also) == ("No verdict at tail-pull: the answers differ.", [])


@pytest.mark.parametrize(
    ("compared", "status", "reported"),
    [
        (0, "none", "No operation was compared"),
        (1, "too few", "Only 1 operation compared, at least 1,000 required"),
        (999, "too few", "Only 999 operations compared"),
        (1_000, "same", "All answers were the same: 1,000 operations compared."),
    ],
)
def test_too_few_answers_carry_no_verdict(compared: int, status: str, reported: str) -> None:
    judgement = judge(answered(Answers(compared=compared)))
    assert judgement.answers.status == status
    assert judgement.answers.sentence.startswith(reported)
    assert bool(outcomes(judgement) & DECIDED) is (status == "same")


def test_answers_count_over_all_workloads() -> None:
    result = made_result(1, workloads=["listing", "restart"], histograms=False)
    few = [each.model_copy(update={"answers": Answers(compared=600)}) for each in result.workloads]
    assert judge(result.model_copy(update={"workloads": few})).answers.compared == 1_200


def test_other_digests_are_different_answers() -> None:
    result = answered(Answers(compared=90_000))
    (workload,) = result.workloads
    turns = list(workload.rounds)
    at = next(
        place for place, turn in enumerate(turns) if turn.side == "rocksdb" and turn.number == 5
    )
    turns[at] = turns[at].model_copy(update={"answers": "another"})
    odd = result.model_copy(update={"workloads": [workload.model_copy(update={"rounds": turns})]})
    judgement = judge(odd)
    assert judgement.answers.status == "different"
    assert judgement.answers.digests == ["tail-pull, round 5: the digests of the answers differ"]
    assert not outcomes(judgement) & DECIDED


def test_a_turn_without_a_digest_answers_nothing_else() -> None:
    result = answered(Answers(compared=90_000))
    (workload,) = result.workloads
    turns = [
        turn.model_copy(update={"answers": ""}) if turn.side == "rocksdb" else turn
        for turn in workload.rounds
    ]
    silent = workload.model_copy(update={"rounds": turns})
    assert {turn.answers for turn in turns} > {""}
    judgement = judge(result.model_copy(update={"workloads": [silent]}))
    assert (judgement.answers.status, judgement.answers.digests) == ("same", [])


def test_turns_of_a_round_may_answer_other_operations_if_all_sides_do() -> None:
    result = answered(Answers(compared=90_000))
    (workload,) = result.workloads
    seen = dict[tuple[int, str], int]()
    turns = []
    for turn in workload.rounds:
        seen[turn.number, turn.side] = seen.get((turn.number, turn.side), 0) + 1
        pass_ = seen[turn.number, turn.side]
        turns.append(turn.model_copy(update={"answers": f"{turn.number}-{pass_}"}))
    other = result.model_copy(update={"workloads": [workload.model_copy(update={"rounds": turns})]})
    assert judge(other).answers.status == "same"
