"""Rates and durations as a user writes them."""

import pytest
import typer

from cqstore.ab.commands.rate import GivenRate, rate_of
from cqstore.cli.duration import seconds_of


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (None, GivenRate()),
        ("5000", GivenRate(rate=5000)),
        ("0.1", GivenRate(rate=0.1)),
        ("real", GivenRate(speed=1)),
        ("x2", GivenRate(speed=2)),
        (" \u00d70.5 ", GivenRate(speed=0.5)),
        ("x0.001", GivenRate(speed=0.001)),
    ],
)
def test_a_rate_is_operations_per_second_or_times_of_the_trace(
    text: str | None, rate: GivenRate
) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize(
    "text", ["", "0", "0.09", "x", "x0", "2x", "xx2", "-1", "x-1", "1e3", "inf", "nan", "REAL", "٣"]
)
def test_anything_else_is_no_rate(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected operations per second"):
        rate_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("1d", 86_400), (" 2s ", 2)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "0s", "-1s", "1 m", "1w", "infs", "٣s"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected a number and s, m, h or d"):
        seconds_of(text, "--for")


def test_numbers_that_clocks_cannot_hold_are_refused() -> None:
    for call in (
        lambda: rate_of("9" * 10), lambda: rate_of("x" + "9" * 10),
        lambda: seconds_of("9" * 9 + "d", "--for"),
    ):  # fmt: skip
        with pytest.raises(typer.BadParameter, match="more than 1000000000"):
            call()
