"""Whether values of a broker.conf are what they look like.

RocketMQ swallows what it cannot parse and keeps the default; of a boolean everything but ``true``
is false. Java keeps blanks at the end of a value, and neither parser takes them.

Source: RocketMQ ``MixAll.properties2Object``; spec 10.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches

from cqstore.migration.preflight.broker_keys import CHOICES, STORE_TYPES, BrokerKey
from cqstore.store.errors import StoreConfigError
from cqstore.store.settings.config import StoreConfig

_INTEGER = re.compile(r"([+-]?)0*(\d+)", re.ASCII)
_DIGITS_MAX = 19
_BITS = {"int": 31, "long": 63}
_LOADED = "combineCQLoadingCQTypes"
_CHOSEN = ("combineCQPreferCQType", "combineAssignOffsetCQType")

_COMPANIONS = {"rocksdbCQSelectiveDoubleWriteEnable": {"doubleWriteTopics": "*"}}
"""A key of ours that a key of RocketMQ's asks for here; a broker does not know it."""


def bad_value(name: str, value: str, key: BrokerKey) -> str | None:
    """Return what is wrong with one value, for RocketMQ or for cqstore; ``None``: nothing."""
    if key.kind in _BITS:
        fault = _bad_integer(value, _BITS[key.kind])
    elif key.kind == "double":
        fault = _bad_double(value)
    elif key.kind == "boolean":
        fault = _bad_boolean(value)
    elif name == _LOADED:
        fault = _bad_types(value.strip())
    else:
        fault = _bad_choice(value.strip(), CHOICES[name]) if name in CHOICES else None
    return fault or _bad_for_us(name, value.strip())


def _bad_boolean(value: str) -> str | None:
    if value.lower() in {"true", "false"}:
        return None
    return "neither true nor false: RocketMQ takes it for false" + _blank(value)


def _bad_integer(value: str, bits: int) -> str | None:
    """Return why a value is no whole number of ``bits`` and a sign; ``None``: it is one."""
    match = _INTEGER.fullmatch(value)
    if match is None:
        return "no whole number: RocketMQ keeps the default" + _blank(value)
    sign, digits = match.groups()
    if len(digits) > _DIGITS_MAX or not -(1 << bits) <= int(sign + digits) < 1 << bits:
        return f"does not fit {bits + 1} bits: RocketMQ keeps the default"
    return None


def _bad_double(value: str) -> str | None:
    try:
        float(value)
    except ValueError:
        return "no number: RocketMQ keeps the default"
    return None


def _blank(value: str) -> str:
    return " (a blank follows it)" if value != value.strip() else ""


def _bad_choice(text: str, choices: tuple[str, ...]) -> str | None:
    """Return why a value is none of ``choices``; ``None``: it is one."""
    exact = choices[0].isupper()
    if text in choices or (not exact and text.lower() in {each.lower() for each in choices}):
        return None
    close = get_close_matches(text.lower(), [each.lower() for each in choices], 1)
    meant = next((each for each in choices if close and each.lower() == close[0]), None)
    hint = f"; is {meant} meant?" if meant else ""
    return f"none of {', '.join(choices)}{hint}"


def _bad_types(text: str) -> str | None:
    given = [part.strip() for part in text.split(";") if part.strip()]
    faults = [fault for part in given if (fault := _bad_choice(part, STORE_TYPES))]
    if not given or len(faults) == len(given):
        return f"names no store type, {' or '.join(STORE_TYPES)}: the broker does not start"
    return f"a part is {faults[0]}" if faults else None


def _bad_for_us(name: str, text: str) -> str | None:
    """Return why cqstore refuses a value that a broker takes; ``None``: it does not."""
    if name not in StoreConfig.known_keys():
        return None
    try:
        StoreConfig.from_mapping({name: text, **_COMPANIONS.get(name, {})})
    except StoreConfigError as exc:
        return exc.reason
    return None


def not_loaded(values: Mapping[str, str]) -> list[str]:
    """Return the keys that choose a store type which ``combineCQLoadingCQTypes`` does not load."""
    loaded = values.get(_LOADED, ";".join(STORE_TYPES)).lower().split(";")
    types = {part.strip() for part in loaded}
    known = {each.lower() for each in STORE_TYPES}
    return [
        name
        for name in _CHOSEN
        if (chosen := values.get(name, STORE_TYPES[0]).strip().lower()) in known
        and chosen not in types
    ]
