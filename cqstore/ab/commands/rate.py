"""The rate of an open loop as a user writes it: operations per second, or the trace's own times."""

import re
from typing import NamedTuple

import typer

from cqstore.cli.options import bounded

REAL = "real"
_NUMBER = r"\d+(?:\.\d+)?"
_RATE = re.compile(_NUMBER, re.ASCII)
_TIMES = re.compile(rf"[x\u00d7]({_NUMBER})", re.ASCII)
_MIN_RATE, _MIN_SPEED = 0.1, 0.001


class GivenRate(NamedTuple):
    """A rate: one of both, or none for a closed loop."""

    rate: float | None = None
    """Operations per second."""
    speed: float | None = None
    """How many times as fast as recorded."""


def rate_of(text: str | None) -> GivenRate:
    """Return the rate that ``--rate`` describes.

    Raises:
        typer.BadParameter: ``text`` is not a rate.
    """
    if text is None:
        return GivenRate()
    word = text.strip()
    if word == REAL:
        return GivenRate(speed=1.0)
    if found := _TIMES.fullmatch(word):
        speed = bounded(float(found[1])) or 0.0
        if speed >= _MIN_SPEED:
            return GivenRate(speed=speed)
    elif _RATE.fullmatch(word) and (rate := bounded(float(word)) or 0.0) >= _MIN_RATE:
        return GivenRate(rate=rate)
    raise typer.BadParameter(
        f"invalid rate {text!r}: expected operations per second (at least {_MIN_RATE}), real, or x2"
        " for twice as fast",
        param_hint="--rate",
    )
