"""Estimates of how many messages a filter lets through: exact until a bound is passed."""

from collections.abc import Iterator

import pytest

from cqstore.store.queue._estimate import estimate
from cqstore.store.queue.units import CqUnit


def units(codes: str) -> Iterator[CqUnit]:
    """Yield a unit for each digit, its tags code."""
    for at, code in enumerate(codes):
        yield CqUnit(at, 100 * at, 100, int(code), 1)


@pytest.mark.parametrize(
    ("codes", "total", "max_scanned", "max_matches", "expected"),
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
    codes: str, total: int, max_scanned: int, max_matches: int, expected: int
) -> None:
    found = estimate(units(codes), 0, total, lambda code: code == 1, max_scanned, max_matches)
    assert found == expected


@pytest.mark.parametrize(
    ("start", "end", "max_scanned", "max_matches", "expected"),
    [
        (0, 50, 100, 100, 30),
        (0, 30, 100, 100, 20),
        (10, 50, 100, 100, 20),
        (0, 50, 2, 100, 25),  # ten of twenty messages, of fifty
        (0, 50, 100, 1, 33),  # more than one unit matches: twenty of thirty
        (0, 50, 100, 2, 30),  # three units match, and none is behind them
        (4, 45, 100, 100, 21),  # what the range has of its first and last unit
    ],
)
def test_messages_of_a_batch_are_counted_and_units_are_bounded(
    start: int, end: int, max_scanned: int, max_matches: int, expected: int
) -> None:
    """Five units of ten messages; on the bounds of units as RocketMQ counts."""
    batches = (
        CqUnit(10 * at, 100 * at, 100, code, 10)
        for at, code in enumerate([1, 0, 1, 0, 1])
        if 10 * at + 10 > start
    )
    found = estimate(batches, start, end, lambda code: code == 1, max_scanned, max_matches)
    assert found == expected
