"""Numbers as people read them."""

import pytest

from cqstore.ab.judging.words import (
    Measure,
    count_text,
    percent_text,
    ratio_text,
    short_text,
    span_text,
    value_text,
    within_text,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, Measure.SECONDS, ""),
        (0.0, Measure.SECONDS, "0 ns"),
        (2.5, Measure.SECONDS, "2.5 s"),
        (1.0, Measure.SECONDS, "1 s"),
        (1e-9, Measure.SECONDS, "1 ns"),
        (3e-10, Measure.SECONDS, "0.3 ns"),
        (0.01234, Measure.SECONDS, "12.3 ms"),
        (4.2e-5, Measure.SECONDS, "42 µs"),
        (1e-7, Measure.SECONDS, "100 ns"),
        (0.0, Measure.BYTES, "0 B"),
        (640.0, Measure.BYTES, "640 B"),
        (28.24, Measure.BYTES, "28.2 B"),
        (1024.0, Measure.BYTES, "1 KiB"),
        (3.5 * (1 << 30), Measure.BYTES, "3.5 GiB"),
        (123_456.7, Measure.A_SECOND, "123,457/s"),
        (123.7, Measure.COUNT, "124"),
        (0.01, Measure.COUNT, "0.01"),
        (0.0001, Measure.COUNT, "<0.01"),
        (2_000.0, "count", "2,000"),
        (2_048.0, "bytes", "2 KiB"),
    ],
)
def test_a_figure_has_its_unit_and_three_digits(
    value: float | None, unit: Measure | str, text: str
) -> None:
    assert value_text(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "1.00"),
        (1.046, "1.05"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (0.5, "0.50"),
        (0.0333, "0.033"),
        (100.0, "100"),
        (10.0, "10.0"),
        (0.1, "0.10"),
    ],
)
def test_ratios_near_one_are_told_apart(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_other_numbers() -> None:
    assert span_text(0.973, 12.0) == "0.97 to 12.0"
    assert percent_text(0.95) == "95 %"
    assert percent_text(0.99791) == "99.79 %"
    assert [percent_text(share) for share in (0, 3e-7, 0.0001, 1.5, 9.999, 10, 200)] == [
        "0 %", "<0.01 %", "0.01 %", "150 %", "999.9 %", "1,000 %", "20,000 %",
    ]  # fmt: skip
    assert [within_text(share) for share in (0, 8e-16, 0.0123, 0.1, 0.6, 120)] == [
        "within 0.1 %", "within 0.1 %", "within 1.2 %", "within 10 %", "within 60 %",
        "within 12,000 %",
    ]  # fmt: skip
    assert [count_text(count, "round") for count in (0, 1, 2_000)] == [
        "0 rounds", "1 round", "2,000 rounds",
    ]  # fmt: skip
    assert [short_text(count) for count in (500, 1_000, 2_000, 1e6)] == ["500", "1 k", "2 k", "1 M"]
