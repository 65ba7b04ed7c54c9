"""Types of the fields in a broker's JSON files, and the conversions that fastjson2 makes.

Each conversion takes a JSON value and returns the value that a broker uses. It raises
``ValueError`` if fastjson2 refuses the file.

Source: fastjson2 2.0.63 ``JSONReader.readInt64Value``, ``readInt32Value``, ``readBoolValue``,
``readString``, ``ObjectReaderImplMapTyped``, ``ObjectReaderImplEnum``; tested value by value in
``tests/interop/test_json_tables.py``.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from cqstore.store.java_numbers import INT_MAX, LONG_MAX

_NUMBER_TEXT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+", re.ASCII)
_UNCLEAR = re.compile(r"[-+.,0-9eE\s\x1a]*\Z|[0-9]{4}[-/]|[0-9]+[-/:][0-9]+[-/:]", re.ASCII)
_FLAGS = {"Y": True, "1": True, "N": False, "0": False}
_WORDS = {"true": True, "false": False}
_MAX_EXPONENT = 2047
_FIXED_DOUBLES = 1e-3, 1e7
"""Between these limits ``Double.toString`` writes no exponent."""
_MAX_SHORT = 10
"""Digits of a number that always fits into an ``int``, plus one."""
_MAX_DIGITS = 400
"""Limit of the digits of a number that is parsed."""
_MISSING = object()
REFERENCE = "$ref"
"""A key with which fastjson2 refers to another part of the file; no broker writes it."""


class UnclearJsonError(ValueError):
    """Text for which it is unknown how a broker reads it, so its backup must not be used.

    No broker writes such text, and no typing error leads to it.
    """


class Suffixed(int):
    """An integer with a suffix for its width (``100L``)."""


class Fraction(float):
    """A number with a fraction or an exponent, and its text."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> "Fraction":
        """Return the number with the text ``text``.

        Raises:
            UnclearJsonError: it is unknown how fastjson2 reads its exponent.
        """
        exponent = text.lower().partition("e")[2]
        if len(exponent) > _MAX_DIGITS or abs(int(exponent or 0)) > _MAX_EXPONENT:
            raise UnclearJsonError(f"the exponent of {text:.40} is too large")
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    @property
    def has_exponent(self) -> bool:
        """Return whether fastjson2 reads it as a ``double``, not as a ``BigDecimal``."""
        return "e" in self.text.lower()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, text, flag or enum."""

    convert: Callable[[object], object]
    not_before: str = ""
    """Characters that no number may begin with here."""
    exact_type: type | None = None
    """Values of this type are returned unchanged."""


@dataclass(frozen=True, slots=True)
class Table:
    """A map with one type of keys and of values."""

    value: "Kind"
    key: Callable[[object], object] | None = None
    """Converts a key; ``None``: keys are text."""
    takes_null: bool = False
    """Whether a value may be null: yes in a ``HashMap``, no in a ``ConcurrentHashMap``."""


@dataclass(frozen=True, slots=True)
class Record:
    """An object with fields; unnamed fields may have any value, and are kept."""

    fields: Mapping[str, "Kind"]


@dataclass(frozen=True, slots=True)
class Listed:
    """An array."""

    value: "Kind"


Kind: TypeAlias = Scalar | Table | Record | Listed


def converted(value: object, kind: Kind, *, is_whole: bool = False) -> object:
    """Return the broker's value for ``value``, which was read from strict JSON.

    ``is_whole``: it is the complete text.

    Raises:
        ValueError: a broker refuses the value; the error names the field.
    """
    if isinstance(kind, Scalar):
        return kind.convert(value)
    if value is None or (value in ("", "null") and not is_whole):
        return None
    if isinstance(kind, Listed):
        if not isinstance(value, list):
            raise ValueError(f"expected an array, found {shown(value)}")  # noqa: TRY004 - the text's
        return [converted(each, kind.value) for each in value]
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {shown(value)}")  # noqa: TRY004 - the text's
    refuse_reference(value)
    if isinstance(kind, Table):
        return _converted_table(value, kind)
    _refuse_bare(value)
    for name, field in kind.fields.items():
        each = value.get(name, _MISSING)
        if each is _MISSING or (type(field) is Scalar and type(each) is field.exact_type):
            continue
        try:
            value[name] = converted(each, field)
        except ValueError as exc:
            raise type(exc)(f"{name}: {exc}") from exc
    return value


def _converted_table(value: dict[str, object], kind: Table) -> dict[object, object]:
    made: dict[object, object] = {}
    if kind.value is TEXT:
        _refuse_bare(value)
    convert = kind.value.convert if isinstance(kind.value, Scalar) else None
    for key, each in value.items():
        try:
            found = converted(each, kind.value) if convert is None else convert(each)
            put(made, kind, key, found)
        except ValueError as exc:
            raise type(exc)(f"{key!r:.80}: {exc}") from exc
    return made


def _refuse_bare(names: Collection[str]) -> None:
    """Refuse names that may have been unquoted: the lenient reader handles them."""
    if any(name[-1:].isdecimal() and name.removeprefix("-").isdecimal() for name in names):
        raise ValueError("a field name is a number")


def put(into: dict[object, object], kind: Table, key: object, value: object) -> None:
    """Add an entry to a table; its value is converted here, its key is not.

    Raises:
        ValueError: a broker's map refuses the entry.
    """
    made = key if kind.key is None else kind.key(key)
    if made is None or (value is None and not kind.takes_null):
        raise ValueError("null is not allowed in this table")
    into[made] = value


def refuse_reference(value: Collection[object]) -> None:
    """Refuse an object that refers to another part of the file.

    Raises:
        UnclearJsonError: the object is such a reference.
    """
    if REFERENCE in value:
        raise UnclearJsonError(f"references ({REFERENCE}) are not supported")


def long_or_none(value: object) -> int | None:
    """Return a ``Long``."""
    if type(value) is int and -LONG_MAX <= value <= LONG_MAX:
        return value
    return _integer(value, LONG_MAX)


def int_or_none(value: object) -> int | None:
    """Return an ``Integer``."""
    if type(value) is int and -INT_MAX <= value <= INT_MAX:
        return value
    if type(value) is str and len(value) < _MAX_SHORT and value.isascii() and value.isdecimal():
        return int(value)
    return 0 if isinstance(value, dict) else _integer(value, INT_MAX)


def long_of(value: object) -> int:
    """Return a ``long``."""
    return long_or_none(value) or 0


def int_of(value: object) -> int:
    """Return an ``int``."""
    if type(value) is int and -INT_MAX <= value <= INT_MAX:
        return value
    return int_or_none(value) or 0


def counter_of(value: object) -> int | None:
    """Return an ``AtomicLong``."""
    return None if value is None else long_of(value)


def flag_of(value: object) -> bool:
    """Return a ``boolean``."""
    if value is None or value in ("", "null"):
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, Fraction | Suffixed):
        return False
    if isinstance(value, int):
        return abs(value) == 1
    if isinstance(value, list):
        raise UnclearJsonError("expected true or false, found an array")
    if isinstance(value, str):
        known = _FLAGS.get(value, _WORDS.get(value.lower()))
        if known is not None:
            return known
    raise ValueError(f"expected true or false, found {shown(value)}")


def text_of(value: object) -> str | None:
    """Return a ``String``."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Fraction):
        return _java_double(value) if value.has_exponent else value.text
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def enum_of(*names: str) -> Scalar:
    """Return the type of an enum with ``names`` in the order of their ordinals."""

    def convert(value: object) -> str | None:
        if value is None:
            return None
        if isinstance(value, str):
            for name in names:
                if name.lower() == value.lower():
                    return name
                if _letters(name) == _letters(value):
                    raise UnclearJsonError(f"expected {name}, found {shown(value)}")
            at = int(value[:_MAX_DIGITS]) if value.isascii() and value.isdecimal() else -1
            if at <= INT_MAX:
                return names[at] if 0 <= at < len(names) else None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            at = int_of(value)
            if 0 <= at < len(names):
                return names[at]
        raise ValueError(f"expected one of {', '.join(names)}, found {shown(value)}")

    return Scalar(convert, ".}/")


LONG, INT, COUNTER = Scalar(long_of), Scalar(int_of), Scalar(counter_of)
BOXED_LONG, BOXED_INT = Scalar(long_or_none), Scalar(int_or_none)
FLAG, TEXT = Scalar(flag_of, "+.", bool), Scalar(text_of, ".", str)
VERSION = Record({"stateVersion": LONG, "timestamp": LONG, "counter": COUNTER})
"""``DataVersion``."""
OFFSETS_OF_QUEUES = Table(BOXED_LONG, key=int_or_none)
"""Queue id or delay level → offset."""
DELAYS = Record({"offsetTable": OFFSETS_OF_QUEUES, "dataVersion": VERSION})
"""``delayOffset.json``."""


def _letters(text: str) -> str:
    """Return the significant characters of an enum's name."""
    return text.lower().translate({ord(sign): None for sign in "_- "})


def _integer(value: object, limit: int) -> int | None:
    """Return an integer within ``limit``; ``None``: null, or a text that means null."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        if value in {"", "null"}:
            return None
        number = _integer_of_text(value)
        if "e" in value.lower() and not -limit - 1 <= number <= limit:
            raise UnclearJsonError(f"expected a smaller number, found {shown(value)}")
        return _in_range(number, limit, value)
    if value is None:
        return None
    if isinstance(value, Fraction):
        return _truncated(value, limit)
    if not isinstance(value, int):
        raise ValueError(f"expected a number, found {shown(value)}")  # noqa: TRY004 - the text's
    return _in_range(int(value), limit, value)


def _integer_of_text(value: str) -> int:
    text = value.replace(",", "") if _GROUPED.fullmatch(value) else value
    if not _NUMBER_TEXT.fullmatch(text):
        # fastjson2 converts some dates to milliseconds, and some unusual texts to numbers.
        error = UnclearJsonError if _UNCLEAR.match(value) else ValueError
        raise error(f"expected a number, found {shown(value)}")
    number = Decimal(text)
    if abs(number.adjusted()) > _MAX_DIGITS:
        raise UnclearJsonError(f"expected a number of at most {_MAX_DIGITS} digits")
    return int(number)


def _in_range(number: int, limit: int, value: object) -> int:
    if not -limit - 1 <= number <= limit:
        bits = limit.bit_length() + 1
        raise ValueError(f"expected a {bits}-bit number, found {shown(value)}")
    return number


def _truncated(value: Fraction, limit: int) -> int:
    """Return the number without its fraction, as ``Number.longValue`` and ``intValue`` do."""
    if value.has_exponent:  # of a double: the nearest representable number
        if value in (float("inf"), float("-inf")):
            return limit if value > 0 else -limit - 1
        return max(-limit - 1, min(limit, int(value)))
    if len(value.text) > _MAX_DIGITS:
        raise UnclearJsonError(f"expected a number of at most {_MAX_DIGITS} digits")
    number, size = int(Decimal(value.text)), 2 * (limit + 1)  # of a BigDecimal: its low bits
    return (number + limit + 1) % size - limit - 1


def _java_double(value: float) -> str:
    """Return ``Double.toString`` of a number that a file may contain."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _FIXED_DOUBLES[0] <= abs(value) < _FIXED_DOUBLES[1]:
        return repr(float(value))
    digits, exponent = f"{Decimal(repr(float(value))):e}".lower().split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def shown(value: object) -> str:
    """Return ``value`` for an error, truncated."""
    return f"{value!r:.60}"
