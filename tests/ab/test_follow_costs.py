"""Costs of sides that follow one master, from samples made by hand."""

import random
from collections.abc import Mapping

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Judgement, Outcome
from cqstore.ab.judging.result_changes import compare_results
from cqstore.ab.live.follow_costs import WHAT, FollowCosts
from cqstore.ab.live.follower_worker import Usage
from cqstore.ab.results.result import Answers, Cache, Method, Result, Side
from tests.ab.made_result import made_machine, made_shape

SAMPLES = 4


def usage(records: int, **given: int | float | Mapping[str, int]) -> Usage:
    fields: dict[str, object] = {
        "records": records, "begin": 0, "end": records * 100, "newest_ms": 1_000, "now_ms": 1_050,
        "cpu_seconds": records * 1e-5, "read_bytes": 0, "written_bytes": records * 500,
        "backend_written": {}, "pss_bytes": 1 << 20, "disk_bytes": 4096,
    }  # fmt: skip
    return Usage.model_validate(fields | given)


def result(costs: FollowCosts, compared: int = 5_000) -> Result:
    names = ["file", "rocksdb"]
    return Result(
        kind="follow", made="2026-11-29T00:00:00+00:00", command=["x"], machine=made_machine(),
        store=made_shape(), workloads=list(costs.workloads(Answers(compared=compared))),
        sides=[
            Side(name=name, given=name, backend=name, options={}, log_shared_by="", build_seconds=0)
            for name in names
        ],
        method=Method.today(seed=0, rounds=costs.rounds, warm_up="", cache=Cache.WARM),
        samples=costs.samples, seconds=100,
    )  # fmt: skip


def followed(
    rounds: int, *, cpu: float = 1.0, memory: float = 1.0, lag: float = 1.0
) -> FollowCosts:
    """The second side takes so many times as much as the first."""
    draw, costs, records = random.Random(1), FollowCosts(), 0
    for number in range(rounds):
        costs.begin({name: usage(records, cpu_seconds=records * 1e-5 * times)
                     for name, times in (("file", 1.0), ("rocksdb", cpu))})  # fmt: skip
        for sample in range(SAMPLES):
            records += draw.randint(900, 1100)
            now = {
                name: usage(
                    records, cpu_seconds=records * 1e-5 * times,
                    pss_bytes=int((50 + number) * 1e6 * size), now_ms=1_000 + int(50 * late),
                )
                for name, times, size, late in (
                    ("file", 1.0, 1.0, 1.0), ("rocksdb", cpu, memory, lag),
                )
            }  # fmt: skip
            costs.add(now, number * 10 + sample)
        costs.end()
    return costs


def outcomes(judged: Judgement) -> dict[str, Outcome]:
    return {work.name: work.sentences[0].outcome for work in judged.workloads}


def test_each_cost_is_judged_by_its_own_figure() -> None:
    judged = judge(result(followed(12, cpu=0.5, memory=2.0)))
    assert outcomes(judged) == {
        "cpu": Outcome.BETTER, "memory": Outcome.WORSE, "written": Outcome.SAME,
        "lag": Outcome.SAME,
    }  # fmt: skip
    assert [each.headline for each in judged.workloads] == [
        "cpu", "memory", "written", "service_p50",
    ]  # fmt: skip
    ratios = [
        found.ratio for work in judged.workloads for found in work.comparisons
        if found.figure == work.headline
    ]  # fmt: skip
    assert ratios == pytest.approx([0.5, 2.0, 1.0, 1.0], rel=0.01)
    assert judged.banner.text.startswith("It depends on the workloads that matter to you")


def test_the_page_answers_which_backend_for_this_broker() -> None:
    judged = judge(result(followed(12, cpu=0.5, lag=0.5)))
    assert judged.banner.text.startswith("Recommended for this broker: rocksdb. It is better")
    assert judged.banner.side == "rocksdb"


def test_too_few_rounds_decide_nothing() -> None:
    judged = judge(result(followed(8, cpu=0.5)))
    assert set(outcomes(judged).values()) == {Outcome.FEW}, "seven count, eight are needed"


def test_the_first_round_does_not_count_and_memory_is_the_peak() -> None:
    found = {work.name: work for work in result(followed(9)).workloads}
    assert found.keys() == WHAT.keys()
    for work in found.values():
        assert [turn.warm_up for turn in work.rounds] == [True] * 2 + [False] * 16
        assert [turn.turn for turn in work.rounds] == list(range(18))
    assert [turn.pss_bytes for turn in found["memory"].rounds][::2] == [
        int((50 + number) * 1e6) for number in range(9)
    ]
    lags = found["lag"].rounds[0]
    assert lags.service_ns == {"p50": 50_000_000, "max": 50_000_000}
    assert lags.operations == SAMPLES


def test_a_round_in_which_a_side_received_nothing_is_left_out_for_all() -> None:
    costs = FollowCosts()
    for number in range(3):
        idle = number == 1
        costs.begin({"file": usage(10 * number), "rocksdb": usage(10 * number)})
        after = {"file": usage(10 * number + 10), "rocksdb": usage(10 * (number + (not idle)))}
        costs.add(after, number)
        costs.add(after, number + 0.5)
        costs.end()
    found = {work.name: work for work in costs.workloads(Answers())}
    assert [turn.number for turn in found["cpu"].rounds] == [0, 0, 2, 2]
    assert [turn.number for turn in found["written"].rounds] == [0, 0, 2, 2]
    assert [turn.number for turn in found["memory"].rounds] == [0, 0, 1, 1, 2, 2]
    assert costs.rounds == 3
    assert found["lag"].rounds == [], "one sample has no median"
    assert found["lag"].not_measured


def test_bytes_are_counted_by_their_cause() -> None:
    costs = FollowCosts()
    begin = usage(10, backend_written={"flush": 5}, written_bytes=100)
    end = usage(30, backend_written={"flush": 25, "wal": 7}, written_bytes=900)
    costs.begin({"file": begin, "rocksdb": begin})
    costs.add({"file": end, "rocksdb": end}, 1.0)
    costs.end()
    written = list(costs.workloads(Answers()))[2].rounds[0]
    assert (written.items, written.written_bytes) == (20, 800)
    assert written.backend_written == {"flush": 20, "wal": 7}


def test_two_days_of_a_broker_are_compared() -> None:
    monday, friday = result(followed(14)), result(followed(14, cpu=2.0))
    changes = compare_results(monday, friday)
    assert changes.cannot == []
    found = {(each.workload, each.side): each for each in changes.changes}
    assert found["cpu", "rocksdb"].outcome is Outcome.WORSE
    assert found["cpu", "rocksdb"].ratio == pytest.approx(2.0, rel=0.01)
    assert found["cpu", "file"].outcome is Outcome.SAME
    assert {workload for workload, _ in found} == set(WHAT)
