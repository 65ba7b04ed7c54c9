"""Java's numbers, which RocketMQ's formats and settings use: their limits, and their text."""

from functools import lru_cache

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_INT_DIGITS = len(str(INT_MAX))
_LAST_CHAR = "\uffff"
"""Java reads a later character as two, of which none is a digit."""


@lru_cache(128)  # of up to 32 KiB each: few texts, and a put reads one several times
def parse_int(text: str) -> int | None:
    """Return the number that ``text`` is for Java; ``None``: it is not the text of an int.

    Source: ``Integer.parseInt``. Decimal digits of all scripts are digits.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not digits.isdecimal() or max(digits) > _LAST_CHAR or any(map(int, digits[:-_INT_DIGITS])):
        return None
    number = int(digits[-_INT_DIGITS:])
    if text[0] == "-":
        number = -number
    return number if INT_MIN <= number <= INT_MAX else None
