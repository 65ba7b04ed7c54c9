"""A difference is found where there is one, and only there; on results made with a known truth."""

import pytest

from cqstore.ab.judging.intervals import Interval
from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import DECIDED, ComparedFigure, Judgement, Outcome, Sentence
from cqstore.ab.judging.verdicts import decide
from cqstore.ab.results.result import Result, Round
from tests.ab.made_result import Truth, made_method, made_result


def decided(judgement: Judgement) -> list[tuple[str, str, str]]:
    return [
        (workload.name, each.side, each.figure)
        for workload in judgement.workloads
        for each in workload.comparisons
        if each.outcome in DECIDED
    ]


def throughput(judgement: Judgement, workload: str, side: str = "rocksdb") -> ComparedFigure:
    made = next(each for each in judgement.workloads if each.name == workload)
    found = made.of(side, "throughput")
    assert found is not None
    return found


# ---- equal sides


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.02, 0.04, 0.1])
def test_equal_sides_show_no_difference_in_nineteen_of_twenty_runs(noise: float) -> None:
    runs = [
        made_result(seed, Truth(noise=noise), sides=("files", "files-2"), histograms=False)
        for seed in range(20)
    ]
    assert sum(bool(decided(judge(run))) for run in runs) <= 1


@pytest.mark.slow
def test_equal_sides_show_no_difference() -> None:
    judgement = judge(made_result(7, sides=("files", "files-2", "files-3"), histograms=False))
    assert decided(judgement) == []
    reported = [each for workload in judgement.workloads for each in workload.sentences]
    assert {each.outcome for each in reported} == {Outcome.SAME}
    assert all(each.text.startswith("No difference shown at ") for each in reported)


# ---- a side that is slower


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_side_that_is_a_tenth_slower_is_found_and_named(seed: int) -> None:
    truth = Truth(at={("rocksdb", "catch-up-pull"): 0.9})
    judgement = judge(made_result(seed, truth, histograms=False))
    assert {workload for workload, _, _ in decided(judgement)} == {"catch-up-pull"}
    found = throughput(judgement, "catch-up-pull")
    assert found.outcome is Outcome.WORSE
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 0.9 <= found.high
    made = next(each for each in judgement.workloads if each.name == "catch-up-pull")
    assert made.sentences[0].text.startswith("rocksdb is 0.9")
    assert " times as fast as files at catch-up-pull (95 %: 0." in made.sentences[0].text


def test_a_side_that_is_faster_is_told_with_how_sure_it_is() -> None:
    truth = Truth(speed={"rocksdb": 1.8}, noise=0.01)
    judgement = judge(made_result(1, truth, workloads=["tail-pull"], histograms=False))
    (said,) = judgement.workloads[0].sentences
    assert said.outcome is Outcome.BETTER
    assert said.text.startswith("rocksdb is 1.8")
    assert " times as fast as files at tail-pull (95 %: 1.7" in said.text
    assert [each.split(" 1.")[0] for each in said.also] == [
        "p50",
        "p99",
        "p99.9",
        "CPU time per operation",
    ]


def test_of_several_sides_the_slow_one_is_named() -> None:
    truth = Truth(speed={"rocksdb-2": 0.7})
    result = made_result(
        2,
        truth,
        sides=("files", "rocksdb", "rocksdb-2"),
        workloads=["random-pull"],
        histograms=False,
    )
    judgement = judge(result)
    assert throughput(judgement, "random-pull", "rocksdb").outcome is Outcome.SAME
    assert throughput(judgement, "random-pull", "rocksdb-2").outcome is Outcome.WORSE


# ---- noise


def test_a_difference_within_the_noise_of_the_reference_itself_is_none() -> None:
    truth = Truth(speed={"rocksdb": 1.1, "files-again": 1.15}, noise=0.01)
    judgement = judge(made_result(3, truth, workloads=["tail-pull"], histograms=False))
    found = throughput(judgement, "tail-pull")
    assert found.low is not None
    assert found.low > 1
    assert found.outcome is Outcome.SAME
    assert (
        "a repeat of files differs from it by up to 1.1" in judgement.workloads[0].sentences[0].text
    )


def test_a_difference_too_small_to_matter_is_none() -> None:
    truth = Truth(speed={"rocksdb": 1.03}, noise=0.002)
    judgement = judge(made_result(3, truth, workloads=["tail-pull"], histograms=False))
    found = throughput(judgement, "tail-pull")
    assert found.low is not None
    assert found.low > 1
    assert found.outcome is Outcome.SAME
    assert "less than 1.05 does not count as a diff" in judgement.workloads[0].sentences[0].text


def test_what_is_too_noisy_is_said_to_be() -> None:
    judgement = judge(made_result(5, Truth(noise=0.5), workloads=["listing"], histograms=False))
    (said,) = judgement.workloads[0].sentences
    assert said.outcome is Outcome.NOISY
    assert said.text.startswith("Too noisy to tell at listing: rocksdb is ")


@pytest.mark.parametrize(
    ("found", "floor", "outcome"),
    [
        (Interval(1.2, 1.1, 1.3), None, None),
        (Interval(1.2, 1.1, 1.3), Interval(1.0, 0.97, 1.02), None),
        (Interval(0.8, 0.7, 0.9), Interval(1.0, 0.97, 1.02), None),
        (Interval(1.2, 0.99, 1.3), None, Outcome.SAME),
        (Interval(0.9, 0.8, 1.01), None, Outcome.SAME),
        (Interval(1.04, 1.02, 1.06), None, Outcome.SAME),
        (Interval(1.2, 1.1, 1.3), Interval(1.1, 0.95, 1.25), Outcome.SAME),
        (Interval(1.2, 1.1, 1.3), Interval(0.9, 0.8, 0.99), Outcome.SAME),
        (Interval(1.2, 1.1, 1.3), Interval(1.1, 0.8, 1.25), Outcome.NOISY),
        (Interval(1.2, 1.02, 1.6), None, Outcome.NOISY),
        (Interval(1.2, 0.9, 1.6), None, Outcome.NOISY),
        (Interval(10.0, 7.0, 14.0), Interval(1.1, 0.8, 1.25), None),
        (Interval(0.1, 0.07, 0.14), None, None),
    ],
)
def test_a_difference_must_pass_chance_and_worth_and_noise(
    found: Interval, floor: Interval | None, outcome: Outcome | None
) -> None:
    assert decide(found, floor, made_method(0, Truth())) is outcome


# ---- rounds that went wrong


@pytest.mark.parametrize("side", ["files", "rocksdb"])
def test_disturbed_rounds_are_left_out_and_told(side: str) -> None:
    truth = Truth(disturbed={(side, number): 2.0 for number in (1, 4, 8)})
    judgement = judge(made_result(6, truth, workloads=["tail-pull"], histograms=False))
    found = throughput(judgement, "tail-pull")
    assert (found.outcome, found.rounds, found.left_out) == (Outcome.SAME, 7, 3)
    assert judgement.notes == ["Disturbed rounds that are excluded: 3 at tail-pull."]


def test_where_most_rounds_were_disturbed_all_count_and_it_is_told() -> None:
    truth = Truth(disturbed={("rocksdb", number): 1.0 for number in range(7)})
    judgement = judge(made_result(6, truth, workloads=["tail-pull"], histograms=False))
    found = throughput(judgement, "tail-pull")
    assert (found.rounds, found.left_out) == (10, 0)
    (note,) = judgement.notes
    assert note == "Disturbed rounds that count, because too few would remain: 7 at tail-pull."


@pytest.mark.parametrize("times", [6.0, 1 / 6])
@pytest.mark.parametrize("side", ["files", "rocksdb", "files-again"])
def test_a_single_round_does_not_make_a_difference(side: str, times: float) -> None:
    truth = Truth(spoilt={(side, 4): times})
    judgement = judge(made_result(8, truth, workloads=["tail-pull", "listing"], histograms=False))
    assert decided(judgement) == []


def test_a_single_round_does_not_turn_a_difference_round() -> None:
    truth = Truth(speed={"rocksdb": 0.6}, spoilt={("rocksdb", 4): 1 / 20})
    judgement = judge(made_result(8, truth, workloads=["tail-pull"], histograms=False))
    found = throughput(judgement, "tail-pull")
    assert found.ratio == pytest.approx(0.6, rel=0.05)
    assert found.outcome is not Outcome.BETTER


def test_warm_up_rounds_do_not_count() -> None:
    result = made_result(9, workloads=["tail-pull"], histograms=False)
    (workload,) = result.workloads

    def spoil(turn: Round) -> Round:
        slow = turn.warm_up and turn.side == "rocksdb"
        return turn.model_copy(update={"seconds": turn.seconds * 50}) if slow else turn

    spoilt = workload.model_copy(update={"rounds": [spoil(turn) for turn in workload.rounds]})
    assert judge(result.model_copy(update={"workloads": [spoilt]})) == judge(result)


# ---- what is not judged


@pytest.mark.parametrize(("rounds", "twin", "least"), [(4, True, 5), (7, False, 8)])
def test_few_rounds_carry_no_verdict(rounds: int, *, twin: bool, least: int) -> None:
    def judged(rounds: int) -> Sentence:
        truth = Truth(speed={"rocksdb": 5}, rounds=rounds)
        result = made_result(1, truth, workloads=["tail-pull"], twin=twin, histograms=False)
        (said,) = judge(result).workloads[0].sentences
        return said

    assert judged(rounds).outcome is Outcome.FEW
    assert judged(rounds).text.endswith(f"{rounds} rounds, an interval requires {least}.")
    assert judged(least).outcome is Outcome.BETTER


def test_the_greatest_latency_is_shown_and_never_judged() -> None:
    judgement = judge(made_result(1, Truth(speed={"rocksdb": 4}), workloads=["tail-pull"]))
    found = judgement.workloads[0].of("rocksdb", "service_max")
    assert found is not None
    assert found.value is not None
    assert (found.outcome, found.ratio) == (Outcome.SHOWN, None)


def test_a_percentile_needs_operations_above_it() -> None:
    few = judge(made_result(1, workloads=["topic-create"])).workloads[0]
    assert few.of("rocksdb", "service_p99") is not None
    assert few.of("rocksdb", "service_p99.9") is None  # of 200 operations a turn


def test_what_nobody_wrote_is_not_compared() -> None:
    judgement = judge(made_result(1, workloads=["dispatch", "tail-pull"], histograms=False))
    assert [each.of("rocksdb", "written") is not None for each in judgement.workloads] == [
        True,
        False,
    ]


def test_a_workload_that_was_not_measured_says_why() -> None:
    result = made_result(1, workloads=["restart"])
    (workload,) = result.workloads
    none = workload.model_copy(
        update={"rounds": [], "service": {}, "not_measured": "the store has no clean stop"}
    )
    rest = made_result(1, workloads=["tail-pull"]).workloads
    (said, _) = judge(result.model_copy(update={"workloads": [none, *rest]})).workloads
    assert said.sentences[0].outcome is Outcome.ABSENT
    assert said.sentences[0].text == "Not measured: restart: the store has no clean stop."
    assert said.comparisons == []


def test_the_confidence_is_shared_by_all_that_is_compared() -> None:
    def at(*workloads: str, sides: tuple[str, ...] = ("files", "rocksdb")) -> Judgement:
        return judge(made_result(1, workloads=workloads, sides=sides, histograms=False))

    one, two, three = at("listing"), at("listing", "dispatch"), at("listing", sides=("a", "b", "c"))
    assert one.headline_confidence == pytest.approx(1 - 0.025)
    assert one.further_confidence == pytest.approx(1 - 0.025 / 3)  # p50, CPU, memory
    assert two.headline_confidence == pytest.approx(1 - 0.025 / 2)
    assert three.headline_confidence == pytest.approx(1 - 0.025 / 2)


def test_without_a_twin_it_is_said_that_there_is_no_floor() -> None:
    judgement = judge(made_result(1, workloads=["listing"], twin=False, histograms=False))
    assert throughput(judgement, "listing").floor is None
    assert judgement.notes[0].startswith("No noise floor was measured")


def test_the_same_result_is_judged_the_same_from_a_file() -> None:
    result = made_result(1, workloads=["listing", "tail-pull"])
    assert judge(Result.model_validate_json(result.model_dump_json())) == judge(result)
