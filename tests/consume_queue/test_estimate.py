"""Estimates of how many units a filter lets through: exact until a bound is passed."""

from collections.abc import Iterator

import pytest

from store.queue.estimate import estimate
from store.queue.units import CqUnit


def units(codes: str) -> Iterator[CqUnit]:
    """Yield a unit for each digit, its tags code."""
    for at, code in enumerate(codes):
        yield CqUnit(at, 100 * at, 100, int(code), 1)


@pytest.mark.parametrize(
    ("codes", "total", "most_scanned", "most_matches", "expected"),
    [
        ("", 5, 100, 100, 0),
        ("1011", 4, 100, 100, 3),
        ("101111", 4, 100, 100, 3),  # what lies behind the range does not count
        ("1011", 4, 4, 100, 3),  # all of them were scanned: exact
        ("10110000", 8, 4, 100, 6),  # three of four, so six of eight
        ("10110000", 8, 3, 100, 5),  # two of three, rounded down
        ("01111000", 8, 100, 4, 4),  # as many as may match: exact
        ("01111000", 8, 100, 3, 6),  # one more: four of five
        ("01110000", 8, 100, 3, 3),
    ],
)
def test_an_estimate_is_exact_until_a_bound_is_passed(
    codes: str, total: int, most_scanned: int, most_matches: int, expected: int
) -> None:
    found = estimate(units(codes), total, lambda code: code == 1, most_scanned, most_matches)
    assert found == expected


@pytest.mark.parametrize(
    ("total", "most_scanned", "expected"), [(50, 100, 3), (31, 100, 2), (30, 100, 2), (50, 2, 25)]
)
def test_a_unit_of_a_batch_counts_once(total: int, most_scanned: int, expected: int) -> None:
    """Five units of ten messages; of each as RocketMQ counts."""
    batches = (CqUnit(10 * at, 100 * at, 100, code, 10) for at, code in enumerate([1, 0, 1, 0, 1]))
    assert estimate(batches, total, lambda code: code == 1, most_scanned, 100) == expected
