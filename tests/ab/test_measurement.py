"""Rounds of sides whose turns are written down: their order, their number, what they answered."""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from cqstore.ab.results.result import Cache, Method
from cqstore.ab.results.result import WorkloadFigures as Figures
from cqstore.ab.run.rounds import Effort, Measurement
from cqstore.ab.stores.store_survey import survey
from cqstore.ab.workloads import workloads
from cqstore.ab.workloads.base import Setting
from tests.ab.made_store import CONFIG, make_varied_store
from tests.ab.near import Answers, WrittenDown

METHOD = Method(
    seed=1, rounds=1, warm_up="", cache=Cache.WARM, confidence=0.9, min_compared=1, max_width=2,
    min_ratio=1.1,
)  # fmt: skip


def same(number: int, count: int) -> list[str]:
    return [f"answer {at}" for at in range(count)]


def measured(
    name: str, effort: Effort, *answers: Answers, setting: Setting | None = None,
    cache: Cache = Cache.WARM, costs: tuple[float, ...] = (1e-4, 3e-4, 2e-4),
) -> tuple[Figures, list[tuple[Any, ...]]]:  # fmt: skip
    """Return the figures of three sides, and what they were asked."""
    log: list[tuple[Any, ...]] = []
    given = (*answers, same, same, same)[:3]
    sides = [
        WrittenDown(side, log, answer, cost)
        for side, answer, cost in zip("abc", given, costs, strict=True)
    ]
    found = Measurement(
        sides, workloads()[name], setting or Setting(), METHOD.model_copy(update={"cache": cache}),
        effort, np.random.default_rng(3),
    ).run(lambda: log.append(("", "tick", ())))  # fmt: skip
    return found, log


def turns_of(log: list[tuple[Any, ...]]) -> list[tuple[str, int, int, bool]]:
    return [(side, *reported) for side, request, reported in log if request == "turn"]


def test_short_turns_come_in_a_random_order_and_its_reverse() -> None:
    found, log = measured("offsets", Effort(6, 0.03))
    # One turn to see that it is quick, one of 256 to see how quick: 6e-4 s an operation in all.
    turns = turns_of(log)
    tried = [(side, at, count, False) for at, count in ((0, 1), (1, 256)) for side in "abc"]
    assert turns[:6] == tried
    assert {count for *_, count, _ in turns[6:]} == {int(0.03 * 3 / 6e-4)} == {150}
    passes = 2 + 5 * 3  # the first round has no turn to warm a new process up
    assert [number for _, number, *_ in turns[6:]] == [
        at for at in range(2, 2 + passes) for _ in "abc"
    ]
    orders = ["".join(side for side, *_ in each) for _, each in groupby(turns[6:], lambda t: t[1])]
    rounds = [orders[:2], *(orders[at:][:3] for at in range(2, passes, 3))]
    assert all(each[-1] == each[-2][::-1] for each in rounds)
    assert len({each[-2] for each in rounds}) > 2, "the order is drawn anew"
    assert len({each[0] for each in rounds[1:]}) > 2, "also that of the turns that do not count"
    assert [request for _, request, _ in log].count("tick") == 6
    begun = [(side, reported) for side, request, reported in log[:3] if request == "begin_workload"]
    assert [side for side, _ in begun] == ["a", "b", "c"]
    assert begun[0][1] == {"name": "offsets", "setting": Setting().model_dump(mode="json")}
    assert [each[:2] for each in log[-3:]] == [(side, "end_workload") for side in "abc"]
    assert [turn.turn for turn in found.rounds] == list(range(3 * passes))
    assert [(turn.side, turn.number) for turn in found.rounds] == [
        (side, number) for number, each in enumerate(rounds) for order in each for side in order
    ]
    assert [turn.warm_up for turn in found.rounds] == [True] * 6 + 5 * ([True] * 3 + [False] * 6)
    assert found.answers.compared == 1 + 256 + passes * 150
    assert (found.answers.different, found.answers.first) == (0, [])


def test_each_round_of_short_turns_has_new_processes() -> None:
    _, log = measured("offsets", Effort(3, 0.03))
    started = [
        "end_workload", "end_workload", "end_workload", *["close", "stop"] * 3,
        *["start"] * 3, *["begin"] * 3, *["begin_workload"] * 3,
    ]  # fmt: skip
    requests = [request for _, request, _ in log]
    first = requests.index("start") - 9
    assert requests[first : first + len(started)] == started
    assert requests[first - 1] == "tick", "after the first round"
    assert requests.count("start") == 6, "before each round but the first"
    _, log = measured("restart", Effort(3, 0.03))
    assert "start" not in [request for _, request, _ in log], "a long turn opens a store itself"
    found, log = measured("offsets", Effort(3, 0.03, new_processes=False))
    assert "start" not in [request for _, request, _ in log], "not requested"
    assert [turn.warm_up for turn in found.rounds] == [True] * 6 + [False] * 12


def test_a_round_has_what_its_side_has_told() -> None:
    found, _ = measured("offsets", Effort(3, 0.03))
    assert (found.name, found.item, found.mode) == ("offsets", "offsets", "closed")
    assert found.offered == pytest.approx(50)
    turn = found.rounds[0]
    assert (turn.operations, turn.items, turn.cpu_seconds) == (150, 300, 3.0)
    assert (turn.read_bytes, turn.written_bytes, turn.pss_bytes) == (4, 5, 6)
    assert (turn.service_ns, turn.intended_ns) == ({"p50": 7}, {"p50": 8})
    assert {each.seconds for each in found.rounds} == {150 * 1e-4, 150 * 3e-4, 150 * 2e-4}
    assert found.intended == {}
    for text in found.service.values():  # of turns 5, 6, 8 and 9: those of warm-up are left out
        merged = HdrHistogram.decode(text)
        values = [merged.get_value_at_percentile(share) for share in (0, 100)]
        assert (merged.get_total_count(), values) == (4, [1005, 1009])


def test_long_turns_come_one_a_round_and_every_other_order_is_the_mirror() -> None:
    found, log = measured("restart", Effort(99, 1.0), cache=Cache.DROPPED)
    turns = turns_of(log)
    assert {(count, drop) for *_, count, drop in turns} == {(2, True)}
    orders = ["".join(side for side, *_ in each) for _, each in groupby(turns, lambda t: t[1])]
    assert len(orders) == workloads()["restart"].max_rounds == 8
    assert [orders[at + 1] for at in range(0, 8, 2)] == [orders[at][::-1] for at in range(0, 8, 2)]
    assert len(set(orders)) > 2
    assert [turn.warm_up for turn in found.rounds] == [True] * 3 + [False] * 21
    assert set(found.intended) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("setting", "costs", "expected"),
    [
        (Setting(), (0.05, 0.01, 0.01), int(0.08 * 3 / 0.07)),  # one tells enough: no turn of 256
        (Setting(), (0.0499, 0.0, 0.0), int(0.08 * 3 / 0.0499)),
        (Setting(), (9.0, 9.0, 9.0), 1),
        (Setting(), (0.0, 0.0, 0.0), int(0.08 * 3 / 1e-9)),
        (Setting(rate=250.0), (1.0, 1.0, 1.0), 250),
        (Setting(rate=0.5), (1.0, 1.0, 1.0), 1),
        (Setting(speed=10.0, trace_rate=30.0), (1.0, 1.0, 1.0), 300),
    ],
)
def test_a_turn_has_as_many_operations_as_fit_its_time(
    setting: Setting, costs: tuple[float, ...], expected: int
) -> None:
    def nothing(number: int, count: int) -> list[str]:
        return []

    found, log = measured(
        "offsets", Effort(1, 0.08), nothing, nothing, nothing, setting=setting, costs=costs
    )
    requested = [(number, count) for side, number, count, _ in turns_of(log) if side == "a"]
    is_open = setting.offered is not None
    quick = not is_open and max(costs) < 0.05
    tried = [] if is_open else [(0, 1), (1, 256)] if quick else [(0, 1)]
    assert requested == [*tried, *((len(tried) + at, expected) for at in range(2))]
    assert found.mode == ("open" if is_open else "closed")
    assert found.offered is None, "nothing but warm-up was measured"


def test_an_open_loop_of_long_turns_fills_them() -> None:
    _, log = measured("offsets", Effort(1, 2.5), setting=Setting(rate=10.0))
    assert {count for *_, count, _ in turns_of(log)} == {25}


def test_what_differs_is_named_and_nothing_more_is_measured() -> None:
    def wrong(number: int, count: int) -> list[str]:
        reported = same(number, count)
        for at in range(250, 262) if number == 5 else ():  # of two blocks
            reported[at] = "no"
        return reported

    costs = (1e-4, 1e-4, 1e-4)
    found, log = measured("offsets", Effort(9, 0.03), same, wrong, wrong, costs=costs)
    assert found.answers.different == 2 * 12
    assert [dict(each.operation) for each in found.answers.first] == [
        {"op": "o", "at": at} for at in range(250, 255)
    ]
    assert found.answers.first[0].answers == {"a": "answer 250", "b": "no"}
    assert found.answers.first[0].workload == "offsets"
    requested = [
        (side, reported["block"]) for side, request, reported in log if request == "answers"
    ]
    assert requested == [(side, at) for other in "bc" for at in (0, 1) for side in ("a", other)]
    assert [turn.number for turn in found.rounds] == [at for at in (0, 0, 1, 1, 1) for _ in "abc"]
    assert [each[1] for each in log[-3:]] == ["end_workload"] * 3


def test_a_side_that_answers_less_is_named() -> None:
    def fewer(number: int, count: int) -> list[str]:
        return same(number, count)[: -1 if number == 5 else count]

    found, _ = measured("offsets", Effort(9, 0.03), same, fewer, costs=(1e-4, 1e-4, 1e-4))
    assert found.answers.different == 1
    (first,) = found.answers.first
    assert first.answers == {"a": f"answer {first.operation['at']}", "b": "no answer"}


def test_a_workload_says_what_it_lacks_of_a_store(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 1_600)
    found = survey(tmp_path / "s", CONFIG, 1)
    assert found.tags
    assert {each.unsupported_reason(found) for each in workloads().values()} == {""}
    found.tags, found.tags_share = "", 0.3
    reported = {
        name: each.unsupported_reason(found)
        for name, each in workloads().items()
        if each.unsupported_reason(found)
    }
    assert reported.keys() == {"filtered-pull"}
    assert reported["filtered-pull"].endswith(
        "matches about 1 % of the store's messages (closest: 30.0%)"
    )
    found.keys = []
    no_message = "no queue of the store has a message in the log"
    reported = {name: each.unsupported_reason(found) for name, each in workloads().items()}
    without = {"expiry", "restart", "restart-after-kill", "topic-create", "topic-delete", "trace"}
    assert reported == {name: "" if name in without else no_message for name in reported}
