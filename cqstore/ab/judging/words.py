"""Readable numbers, the same in the terminal, the HTML report and the sentences."""

from enum import StrEnum

_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TEN, _HUNDRED = 10, 100


class Measure(StrEnum):
    """Unit of a figure; values are unscaled."""

    A_SECOND = "a second"
    SECONDS = "seconds"
    BYTES = "bytes"
    COUNT = "count"


def value_text(value: float | None, unit: Measure | str) -> str:
    """Return a figure with three digits and its unit; empty for ``None``."""
    if value is None:
        return ""
    if unit == Measure.SECONDS:
        return _scaled(value, _TIMES)
    if unit == Measure.BYTES:
        return _scaled(value, _SIZES) if value >= 1 << 10 else f"{digits_text(value)} B"
    return f"{digits_text(value)}{'/s' if unit == Measure.A_SECOND else ''}"


def ratio_text(ratio: float) -> str:
    """Return a ratio, precise enough to distinguish 1 and 1.04."""
    if ratio >= _HUNDRED:
        return f"{ratio:,.0f}"
    if ratio >= _TEN:
        return f"{ratio:.1f}"
    return f"{ratio:.2f}" if ratio >= 1 / _TEN else f"{ratio:.2g}"


def span_text(low: float, high: float) -> str:
    """Return an interval of ratios."""
    return f"{ratio_text(low)} to {ratio_text(high)}"


def percent_text(share: float) -> str:
    """Return a share as percent, with at most four digits."""
    percent = _HUNDRED * share
    if 0 < percent < 1 / _HUNDRED:
        return "<0.01 %"
    return f"{percent:.4g} %" if percent < _TEN * _HUNDRED else f"{percent:,.0f} %"


def within_text(share: float) -> str:
    """Return a maximum deviation as percent, rounded."""
    percent = max(_HUNDRED * share, 1 / _TEN)
    return f"within {percent:.1f} %" if percent < _TEN else f"within {percent:,.0f} %"


def count_text(count: int, one: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def digits_text(value: float) -> str:
    """Return a number, with three digits if it is small."""
    if value >= _HUNDRED or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 / _HUNDRED else "<0.01"


def short_text(count: float) -> str:
    """Return a round count as an axis label: 10 k, 1 M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{digits_text(count / size)} {unit}"
    return digits_text(count)


def _scaled(value: float, scale: tuple[tuple[str, float], ...]) -> str:
    for unit, size in scale:
        if value >= size:
            return f"{digits_text(value / size)} {unit}"
    unit, size = scale[-1]
    return f"{digits_text(value / size)} {unit}"
