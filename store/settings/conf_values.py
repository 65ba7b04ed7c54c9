"""How a broker interprets each line of its ``broker.conf``, and the value that cqstore uses.

Source: RocketMQ ``MixAll.properties2Object``, ``UtilAll.isItTimeToDo``,
``ScheduleMessageService.parseDelayLevel``, ``BrokerController.initializeMessageStore``.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from pydantic import ValidationError

from cqstore.store.settings.broker_keys import CHOICES, COMPRESSIONS, STORE_TYPES, BrokerKey
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.java_values import Converted, convert, is_quoted, java_trim, near_choice
from cqstore.store.settings.validation import fault_of_value

_COMPANIONS = {"rocksdbCQSelectiveDoubleWriteEnable": {"doubleWriteTopics": "*"}}
"""RocketMQ key → settings of cqstore that it requires here; a broker does not know them."""
_LOADED = "combineCQLoadingCQTypes"
_LEVEL = re.compile(r"[+-]?\d+[smhd]")
_HOUR = re.compile(r"[+-]?\d{1,9}")


class Outcome(StrEnum):
    """How a broker handles the value of a line."""

    TAKEN = "taken"
    """The broker uses the value as written."""
    ODD = "odd"
    """The broker uses the text, which is probably not what was meant."""
    NOT_TAKEN = "not taken"
    """The broker uses a value other than the one in the line."""
    NOT_OURS = "not ours"
    """The broker uses the value, but cqstore does not accept it."""


class Judged(NamedTuple):
    """The value of one setting, and whether it differs from the line."""

    value: Any
    """The value that cqstore uses; ``None``: the default."""
    outcome: Outcome = Outcome.TAKEN
    sentence: str = ""
    """What differs from the line, and what is used; empty if nothing differs."""


def judge(name: str, text: str, key: BrokerKey, *, trims: bool = True) -> Judged:
    """Return the value that setting ``name`` gets from ``text``, the text in the file.

    ``trims``: whether the release trims texts (since 5.2.0). Settings of cqstore itself are
    trimmed only; ``StoreConfig`` validates them later.
    """
    if key.is_own:
        return Judged(java_trim(text))
    found = convert(text, key.kinds, key.names, trims=trims)
    if found.fault is not None:
        return _not_taken(name, text, key, found)
    if isinstance(found.value, str):
        judged = _of_text(name, text, found.value, key)
    else:
        judged = Judged(found.value)
    if name not in StoreConfig.known_keys() or judged.value is None:
        return judged
    reason = _refused(name, judged.value)
    if reason is None:
        return judged
    return Judged(
        None, Outcome.NOT_OURS,
        f"{name}={text!r} is a value that RocketMQ accepts but cqstore does not ({reason}):"
        f" cqstore uses {_default(name)}",
    )  # fmt: skip


def _not_taken(name: str, text: str, key: BrokerKey, found: Converted) -> Judged:
    """Return the result for a text that RocketMQ does not convert to the value it shows."""
    if found.value is None:
        used = f"RocketMQ keeps its default{_known_default(name)}"
    else:
        used = f"RocketMQ reads it as {str(found.value).lower()}"
    hint = near_choice(text, key.names)
    sentence = f"{name}={_shown(text)} {found.fault}: {used}{hint}"
    return Judged(found.value, Outcome.NOT_TAKEN, sentence)


def _of_text(name: str, text: str, value: str, key: BrokerKey) -> Judged:
    """Return the result for a text that a setter accepts as a string."""
    shown = f"{name}={_shown(text)}"
    if (parse := _PARSED.get(name)) is not None:
        return parse(shown, value)
    choices = CHOICES.get(name, ())
    odd = None if key.names else _odd_text(value)
    if choices and value and value.lower() not in {each.lower() for each in choices}:
        hint = near_choice(value, choices)
        return Judged(value, Outcome.ODD, f"{shown} is not one of {', '.join(choices)}{hint}")
    return Judged(value, Outcome.ODD, f"{shown}: {odd}") if odd else Judged(value)


def _store_type(shown: str, value: str) -> Judged:
    """Return the result for ``storeType``: file queues, unless the text names RocksDB."""
    if value.lower() in {each.lower() for each in STORE_TYPES}:
        return Judged(value)
    sentence = f"{shown} is not one of {', '.join(STORE_TYPES)}: RocketMQ reads it as default"
    return Judged("default", Outcome.NOT_TAKEN, sentence + near_choice(value, STORE_TYPES))


def _odd_text(value: str) -> str | None:
    """Return why a text is probably not what was meant, such as a comment; else ``None``."""
    if re.search(r"\s(#|//)", value) or value.startswith("#"):
        return "the comment is part of the value (properties files have no comments after a value)"
    if is_quoted(value):
        return "the quotes are part of the value"
    if not value.isascii() and any("\x7f" < char < "\u0100" for char in value):
        return "non-ASCII letters are read as ISO-8859-1: write them as \\uXXXX"
    return None


def _loaded(shown: str, value: str) -> Judged:
    """Return the result for the store types that double write loads."""
    known = {each.lower() for each in STORE_TYPES}
    odd = [part for part in value.split(";") if part.strip() and part.strip().lower() not in known]
    if not any(part.strip().lower() in known for part in value.split(";")):
        sentence = (
            f"{shown} names neither {' nor '.join(STORE_TYPES)}: a broker does not start with it;"
            f" cqstore uses {_default(_LOADED)}{near_choice(value, STORE_TYPES)}"
        )
        return Judged(None, Outcome.NOT_OURS, sentence)
    if odd:
        hint = near_choice(odd[0], STORE_TYPES)
        types = ", ".join(STORE_TYPES)
        return Judged(value, Outcome.ODD, f"{shown}: {odd[0]!r} is not one of {types}{hint}")
    return Judged(value)


def _hours(shown: str, value: str) -> Judged:
    """Return the result for the deletion hours; a broker stops at the first invalid part."""
    parts = value.split(";")
    while parts and not parts[-1]:
        parts.pop()  # String.split drops trailing empty parts
    good = list[str]()
    for part in parts:
        if _HOUR.fullmatch(part) is None:
            break
        good.append(part)
    hours = [each for each in good if 0 <= int(each) < 24]  # noqa: PLR2004 - hours of a day
    used = ";".join(f"{int(each):02}" for each in hours)
    when = f"at {used} only" if used else "at no hour, only when the disk is nearly full"
    if len(good) < len(parts):
        part = parts[len(good)]
        sentence = (
            f"{shown}: {part!r} is not a valid hour: RocketMQ logs errors, and deletes {when}"
        )
        return Judged(used, Outcome.NOT_TAKEN, sentence)
    if len(hours) < len(parts):
        return Judged(used, Outcome.ODD, f"{shown}: RocketMQ deletes {when}")
    return Judged(";".join(parts))


def _levels(shown: str, value: str) -> Judged:
    """Return the result for the delay levels, which a broker splits at each blank.

    A broker does not start if one of them is invalid.
    """
    parts = value.split(" ")
    while parts and not parts[-1]:
        parts.pop()
    if value and all(_LEVEL.fullmatch(part) for part in parts):
        return Judged(value)
    usable = bool(value) and all(_LEVEL.fullmatch(part) for part in value.split())
    bad = next((part for part in parts if _LEVEL.fullmatch(part) is None), "")
    what = "two blanks in a row" if usable and not bad else f"{bad!r} is not a valid time"
    used = "the levels" if usable else _default("messageDelayLevel")
    sentence = f"{shown}: {what}: a broker does not start with it; cqstore uses {used}"
    return Judged(value if usable else None, Outcome.NOT_TAKEN, sentence)


def _compression(shown: str, value: str) -> Judged:
    """Return the result for a compression; a broker uses none for a text that it does not know."""
    if value in COMPRESSIONS:
        return Judged(value)
    known = ", ".join(COMPRESSIONS)
    sentence = f"{shown} is not one of {known}: RocketMQ does not compress with it"
    return Judged("none", Outcome.ODD, sentence + near_choice(value, COMPRESSIONS))


_PARSED: dict[str, Callable[[str, str], Judged]] = {
    "storeType": _store_type,
    _LOADED: _loaded,
    "deleteWhen": _hours,
    "messageDelayLevel": _levels,
    "rocksdbCompressionType": _compression,
    "bottomMostCompressionTypeForConsumeQueueStore": _compression,
}
"""Key → parser of its text; the first argument is the key and text, for messages."""


@cache
def _refused(name: str, value: object) -> str | None:
    """Return why ``StoreConfig`` refuses a value; ``None`` if it accepts the value."""
    try:
        StoreConfig.model_validate({name: value, **_COMPANIONS.get(name, {})})
    except ValidationError as exc:
        return fault_of_value(exc)
    return None


def _known_default(name: str) -> str:
    return f", {_default(name)}" if name in StoreConfig.known_keys() else ""


def _default(name: str) -> str:
    """Return the default of a setting of the store, as it would be written in a file."""
    default = StoreConfig.model_fields[StoreConfig.known_keys()[name]].default
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return repr(default) if isinstance(default, str) and " " in default else str(default)


_MAX_SHOWN = 60


def _shown(text: str) -> str:
    """Return a value in quotes, so that blanks at its ends show; a long value is shortened."""
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
