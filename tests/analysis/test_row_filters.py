"""Filters as data: spans and sets of whole numbers against a list of the numbers that they hold."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.analysis.columns import EARLIEST_MS, LATEST_MS, time_array
from cqstore.analysis.filters import INT64_MAX, INT64_MIN, RowFilter, Span
from tests.analysis.oracle import COMPARED

EDGES = [
    INT64_MIN - 1, INT64_MIN, INT64_MIN + 1, -1, 0, 1, 7, INT64_MAX - 1, INT64_MAX, INT64_MAX + 1,
    1 << 70, -(1 << 70),
]  # fmt: skip
NUMBERS = st.sampled_from(EDGES)
SPANS = st.builds(Span, NUMBERS, NUMBERS, st.none() | st.frozensets(NUMBERS, max_size=4))
HELD = np.array([one for one in EDGES if INT64_MIN <= one <= INT64_MAX], np.int64)
KINDS = sorted(set(COMPARED) - {"In", "IsNotNull", "StringStartsWith"})


@given(SPANS, SPANS)
def test_two_spans_hold_what_each_of_them_holds(one: Span, other: Span) -> None:
    def held(value: int) -> bool:
        return all(
            span.low <= value <= span.high and (span.among is None or value in span.among)
            for span in (one, other)
        )

    both = one.both(other)
    assert [value for value in EDGES if both.holds(value)] == [*filter(held, EDGES)]
    found = both.mask(HELD)
    assert found.dtype == np.bool_
    assert found.tolist() == [held(value) for value in HELD.tolist()]
    assert both.mask(HELD[:0]).tolist() == []


@given(st.sampled_from(KINDS), NUMBERS)
def test_a_number_is_compared_as_it_is_however_large(kind: str, value: int) -> None:
    rows = RowFilter().taking(kind, "size", value)
    assert rows is not None
    found = rows.mask({"size": HELD})
    assert found is not None
    assert found.tolist() == [COMPARED[kind](one, value) for one in HELD.tolist()]


TIMES = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
         for at in (-2001, -2000, -1999, -1, 0, 1, 999, 1000, 1001)]  # fmt: skip


@given(st.sampled_from(KINDS), st.sampled_from(TIMES), st.integers(-12, 12))
def test_a_time_is_compared_to_the_microsecond_in_any_zone(
    kind: str, value: datetime, hours: int
) -> None:
    stamps = np.arange(-4, 4)
    expected = [
        COMPARED[kind](datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=one), value)
        for one in stamps.tolist()
    ]
    zone = timezone(timedelta(hours=hours))
    for given_time in (value, value.astimezone(zone), value.replace(tzinfo=None)):
        for reported in (kind, "In") if kind == "EqualTo" else (kind,):
            rows = RowFilter().taking(
                reported, "store_time", [given_time] if reported == "In" else given_time
            )
            assert rows is not None
            found = rows.mask({"store_timestamp": stamps})
            assert found is not None
            assert found.tolist() == expected


def test_a_time_outside_the_years_that_can_be_shown_is_null() -> None:
    """And equals, precedes and follows nothing."""
    stamps = np.array(
        [INT64_MIN, EARLIEST_MS - 1, EARLIEST_MS, -1, 0, LATEST_MS, LATEST_MS + 1, INT64_MAX]
    )
    shown = [None if not EARLIEST_MS <= one <= LATEST_MS else one for one in stamps.tolist()]
    assert [one and one.year for one in time_array(stamps).to_pylist()] == [
        None, None, 1, 1969, 1970, 9999, None, None
    ]  # fmt: skip
    assert time_array(stamps).cast("int64").to_pylist() == [
        None if one is None else one * 1000 for one in shown
    ]
    for kind, value in [("IsNotNull", None), ("LessThanOrEqual", datetime.max.replace(tzinfo=UTC))]:
        for first_stamp in (INT64_MIN, 0, -5):
            rows = RowFilter(first_stamp=first_stamp).taking(kind, "store_time", value)
            assert rows is not None
            found = rows.mask({"store_timestamp": stamps})
            assert found is not None
            assert found.tolist() == [one is not None and one >= first_stamp for one in shown]


@pytest.mark.parametrize("first_stamp", [INT64_MIN, INT64_MIN + 1, 0])
def test_a_missing_time_is_null_where_there_may_be_one(first_stamp: int) -> None:
    rows = RowFilter(first_stamp=first_stamp).taking("IsNotNull", "store_timestamp", None)
    assert rows is not None
    found = rows.mask({"store_timestamp": HELD})
    if first_stamp == INT64_MIN:
        assert found is None, "no time is null: nothing is asked"
    else:
        assert found is not None
        assert found.tolist() == (first_stamp <= HELD).tolist()
    numbers = RowFilter(first_stamp=first_stamp).taking("IsNotNull", "phy_offset", None)
    assert numbers == RowFilter(first_stamp=first_stamp)


def test_every_condition_on_a_topic_counts() -> None:
    rows: RowFilter | None = RowFilter()
    conditions: list[tuple[str, Any]] = [
        ("In", ["ab", "abc", "b", None]), ("StringStartsWith", "a"), ("StringStartsWith", "abc"),
    ]  # fmt: skip
    left = [["ab", "abc", "b"], ["ab", "abc"], ["abc"]]
    for (kind, value), topics in zip(conditions, left, strict=True):
        assert rows is not None
        rows = rows.taking(kind, "topic", value)
        assert rows is not None
        assert [one for one in ("a", "ab", "abc", "b") if rows.accepts_topic(one)] == topics
    assert rows is not None
    rows = rows.taking("EqualTo", "topic", "ab")
    assert rows is not None
    assert not any(map(rows.accepts_topic, ("a", "ab", "abc", "b")))
    assert RowFilter().accepts_topic("any")
    assert RowFilter().mask({}) is None


@pytest.mark.parametrize(
    "condition",
    [
        ("In", "size", [1, "2"]), ("In", "size", 1), ("In", "store_time", [TIMES[0], 3]),
        ("In", "topic", ["a", 1]), ("EqualTo", "size", None), ("EqualTo", "topic", None),
        ("StringStartsWith", "topic", 1), ("StringStartsWith", "size", "1"),
        ("LessThan", "size", True), ("IsNotNull", "keys", None), ("EqualTo", "store_time", None),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_column_is_left_to_spark(condition: tuple[str, str, Any]) -> None:
    assert RowFilter().taking(*condition) is None
