"""Durations as a user writes them: 90s, 10m, 2h, 1d."""

import re

import typer

from cqstore.cli.options import bounded

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of a duration, more than 0.

    Raises:
        typer.BadParameter: ``text`` is not a duration.
    """
    found = _FORM.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise typer.BadParameter(
            f"invalid duration {text!r}: expected a number and s, m, h or d, such as 10m",
            param_hint=option,
        )
    return bounded(seconds) or seconds
