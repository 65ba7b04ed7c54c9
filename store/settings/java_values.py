"""Text to values, as ``MixAll.properties2Object`` converts what a ``broker.conf`` has.

A number that Java cannot parse is swallowed, and the setting keeps its default. A boolean is false
unless it is ``true``. Only a text is trimmed. A setter by number and one by text are both called.

Source: RocketMQ ``MixAll.properties2Object``; ``Integer.parseInt``, ``Double.parseDouble``.
"""

import re
from typing import NamedTuple

_INTEGER = re.compile(r"([+-]?)0*(\d+)")
_MAX_DIGITS = 19
_BITS = {"int": 31, "long": 63}
_TYPES = {"int": "32-bit whole number", "long": "64-bit whole number"}
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII
)
_HEX = re.compile(
    r"[+-]?0[xX](?:[0-9a-f]+\.?|[0-9a-f]*\.[0-9a-f]+)[pP][+-]?\d+[fFdD]?", re.ASCII | re.I
)
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
_MAX_BMP = "\uffff"


class Converted(NamedTuple):
    """What a text becomes."""

    value: bool | int | float | str | None
    """``None``: nothing, the setting keeps its default."""
    fault: str | None = None
    """Why it is not what it looks like, without a subject; ``None``: nothing is wrong."""


def java_trim(text: str) -> str:
    """Return ``text`` as ``String.trim`` does: without what is no more than a blank at its ends."""
    return text.strip(_TRIMMED)


def convert(text: str, kinds: str, names: tuple[str, ...] = (), *, trims: bool = True) -> Converted:
    """Return what a setting becomes by ``text``.

    Args:
        text: as it is in the file.
        kinds: what its setters take, joined by ``|``: int, long, double, float, boolean, text.
        names: the constants of an enum that its text is one of; empty for any text.
        trims: whether the release trims a text (from 5.2.0 on).
    """
    found = [_of_kind(text, kind, names, trims=trims) for kind in kinds.split("|")]
    taken = [each for each in found if each.value is not None]
    if taken:
        return taken[0]
    return found[-1] if "text" in kinds.split("|") else found[0]


def _of_kind(text: str, kind: str, names: tuple[str, ...], *, trims: bool) -> Converted:
    """Return what one setter makes of ``text``."""
    if kind in _BITS:
        return _integer(text, kind)
    if kind == "boolean":
        fault = (
            "" if text.lower() in {"true", "false"} else "is neither true nor false" + _why(text)
        )
        return Converted(text.lower() == "true", fault or None)
    if kind in {"double", "float"}:
        return _double(text)
    value = java_trim(text) if trims else text
    if names and value not in names:
        return Converted(None, f"is not one of {', '.join(names)}{_why(text)}")
    return Converted(value)


def _integer(text: str, kind: str) -> Converted:
    match = _INTEGER.fullmatch(text)
    if match is None or (text > _MAX_BMP and max(text) > _MAX_BMP):
        return Converted(None, "is not a valid whole number" + _why(text))
    sign, digits = match.groups()
    bits = _BITS[kind]
    if len(digits) > _MAX_DIGITS or not -(1 << bits) <= int(sign + digits) < 1 << bits:
        return Converted(None, f"does not fit in a {_TYPES[kind]}")
    return Converted(int(sign + digits))


def _double(text: str) -> Converted:
    """Return what ``Double.parseDouble`` makes of ``text``, which it trims."""
    bare = java_trim(text)
    if _HEX.fullmatch(bare):
        return Converted(float.fromhex(bare.rstrip("fFdD") if "p" in bare.lower() else bare))
    if _DECIMAL.fullmatch(bare) is None:
        return Converted(None, "is not a valid number" + _why(text))
    return Converted(float(bare if bare.endswith(("NaN", "Infinity")) else bare.rstrip("fFdD")))


def _why(text: str) -> str:
    """Return in brackets what the eye does not see, or takes for something else."""
    if text != text.strip():
        return " (a space follows it)" if text == text.lstrip() else " (spaces surround it)"
    if re.search(r"\s(#|//)", text):
        return " (a comment is part of the value)"
    if is_quoted(text):
        return " (quotes are part of the value)"
    return ""


def is_quoted(text: str) -> bool:
    """Return whether ``text`` begins and ends with the same quote."""
    bare = java_trim(text)
    return len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'"


def near_choice(text: str, choices: tuple[str, ...]) -> str:
    """Return a question about which of ``choices`` is meant by ``text``, empty for none."""
    from difflib import get_close_matches  # noqa: PLC0415 - seldom needed

    bare = text.strip("\"' ").lower()
    close = get_close_matches(bare, [each.lower() for each in choices], 1, 0.7)
    meant = next((each for each in choices if close and each.lower() == close[0]), None)
    return f". Did you mean {meant}?" if meant else ""
