"""Conversion of the texts of a ``broker.conf`` as in ``MixAll.properties2Object``.

A number that Java cannot parse is silently ignored, and the setting keeps its default. A boolean is
false unless it is ``true``. Only strings are trimmed. If a setting has a numeric setter and a
string setter, RocketMQ calls both.

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
    """Result of a conversion."""

    value: bool | int | float | str | None
    """The converted value; ``None``: the setting keeps its default."""
    fault: str | None = None
    """Why the value differs from the text, without a subject; ``None``: it does not differ."""


def java_trim(text: str) -> str:
    """Return ``text`` as ``String.trim`` does: without characters up to U+0020 at its ends."""
    return text.strip(_TRIMMED)


def convert(text: str, kinds: str, names: tuple[str, ...] = (), *, trims: bool = True) -> Converted:
    """Return the value that a setting gets from ``text``.

    Args:
        text: as it is in the file.
        kinds: types of its setters, joined by ``|``: int, long, double, float, boolean, text.
        names: the enum constants that its text must be one of; empty: any text is allowed.
        trims: whether the release trims a text (since 5.2.0).
    """
    found = [_of_kind(text, kind, names, trims=trims) for kind in kinds.split("|")]
    taken = [each for each in found if each.value is not None]
    if taken:
        return taken[0]
    return found[-1] if "text" in kinds.split("|") else found[0]


def _of_kind(text: str, kind: str, names: tuple[str, ...], *, trims: bool) -> Converted:
    """Return ``text`` converted for one setter."""
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
    """Return ``text`` as ``Double.parseDouble`` converts it, after trimming."""
    bare = java_trim(text)
    if _HEX.fullmatch(bare):
        return Converted(float.fromhex(bare.rstrip("fFdD") if "p" in bare.lower() else bare))
    if _DECIMAL.fullmatch(bare) is None:
        return Converted(None, "is not a valid number" + _why(text))
    return Converted(float(bare if bare.endswith(("NaN", "Infinity")) else bare.rstrip("fFdD")))


def _why(text: str) -> str:
    """Return a hint in parentheses about spaces, comments or quotes that are easy to miss."""
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
    """Return a hint that names the choices similar to ``text``; empty if there are none."""
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    bare = text.strip("\"' ").lower()
    close = get_close_matches(bare, [each.lower() for each in choices], 1, 0.7)
    meant = next((each for each in choices if close and each.lower() == close[0]), None)
    return f". Did you mean {meant}?" if meant else ""
