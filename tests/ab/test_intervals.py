"""Intervals hold what they promise: asked of data whose truth is known."""

import math

import numpy as np
import pytest

from cqstore.ab.judging.intervals import Interval, centre, interval


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "heavy"),
    [
        (8, True), (14, False),
        *(pytest.param(*case, marks=pytest.mark.long)
          for case in [(8, False), (10, False), (10, True), (14, True)]),
    ],
)  # fmt: skip
def test_an_interval_holds_the_truth_as_often_as_it_says(rounds: int, *, heavy: bool) -> None:
    rng = np.random.default_rng(rounds)
    draws = rng.standard_t(3, (400, rounds)) if heavy else rng.standard_normal((400, rounds))
    made = [interval(np.exp(0.05 * draw + math.log(1.3)).tolist(), 0.95) for draw in draws]
    missed = sum(not each.low <= 1.3 <= each.high for each in made)
    assert missed / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_more_confidence_and_fewer_rounds_make_an_interval_wider() -> None:
    logs = np.random.default_rng(3).normal(0.1, 0.04, 16)
    ratios = np.exp(logs).tolist()
    assert interval(ratios, 0.99).width > interval(ratios, 0.95).width
    assert interval(ratios[:8], 0.95).width > interval(ratios, 0.95).width


def test_turning_the_ratio_round_turns_the_interval_round() -> None:
    ratios = np.exp(np.random.default_rng(4).normal(0.2, 0.05, 10)).tolist()
    there, back = interval(ratios, 0.95), interval([1 / ratio for ratio in ratios], 0.95)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high, rel=0.01)
    assert there.high == pytest.approx(1 / back.low, rel=0.01)


def test_rounds_that_agree_make_a_point() -> None:
    assert interval([2.0] * 8, 0.99) == pytest.approx(Interval(2.0, 2.0, 2.0))


def test_rounds_that_agree_but_for_one_make_an_interval_all_the_same() -> None:
    found = interval([1.0] * 9 + [3.0], 0.99)
    assert (found.ratio, found.low) == (1.0, 1.0)
    assert found.high > 1


def test_one_round_has_no_say_in_the_centre() -> None:
    assert centre([10.0] * 9 + [1000.0]) == pytest.approx(10.0)
    assert centre([10.0] * 9 + [0.1]) == pytest.approx(10.0)


def test_an_interval_reaches_as_far_as_its_farther_end() -> None:
    assert Interval(1.0, 0.8, 1.1).farthest == pytest.approx(1.25)
    assert Interval(1.0, 0.9, 1.3).farthest == pytest.approx(1.3)
    assert Interval(1.0, 0.9, 1.2).width == pytest.approx(4 / 3)
