"""Store times and ranges of them, as given by programs and operators: one rule for all readers.

A range is in ms since the epoch. Both ends are included, and an end that is not given (``None``) is
unlimited: a store time may be any Java long, including negative ones.
"""

import re
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import NamedTuple

from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.java_numbers import LONG_MAX, LONG_MIN
from cqstore.store.record.decoder import StoredMessage

Time = int | datetime
"""ms since the epoch, or a ``datetime`` (UTC if it has no zone)."""

EARLIEST, LATEST = LONG_MIN, LONG_MAX
"""Lowest and highest store time, ms."""
_EPOCH = datetime.fromtimestamp(0, UTC)
_MS = timedelta(milliseconds=1)
_SECONDS = range(946_684_800, 4_102_444_800)
"""The years 2000 to 2099 in seconds; as ms they would all be in January and February 1970."""
_USUAL_FIRST, _USUAL_END = 10**12, 10**13
"""Numbers of thirteen digits: ms of the years 2001 to 2286, and not dates."""
_FIRST_DATE, _LAST_DATE = 19_700_101, 20_991_231_235_959
_NUMBER = re.compile(r"-?[0-9]+")
_MAX_DIGITS = 30
"""More digits than any time. ISO 8601 would parse longer ones as a date with a fraction."""
_DATE = re.compile(r"((?:19[7-9]|20\d)\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?", re.ASCII)
"""Digits that form a date from 1970 to 2099, with or without hours, minutes and seconds."""


class TimeRange(NamedTuple):
    """Store times from ``begin`` to ``end``, ms, both included; without arguments all of them."""

    begin: int = EARLIEST
    end: int = LATEST

    @property
    def is_all(self) -> bool:
        """Return whether every store time is in the range."""
        return self.begin <= EARLIEST and self.end >= LATEST

    def holds(self, store_timestamp: int) -> bool:
        """Return whether a record's own store time is in the range."""
        return self.begin <= store_timestamp <= self.end

    def of(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Return the ``messages`` that were stored in the range."""
        return [message for message in messages if self.holds(message.store_timestamp)]


ALL = TimeRange()


def time_range(begin: Time | None = None, end: Time | None = None) -> TimeRange:
    """Return the range from ``begin`` to ``end``, both included; ``None``: unlimited.

    Raises:
        RefusedStoreError: an argument is not a time, or probably not in ms, see ``time_ms``.
        StoreConfigError: ``begin`` is later than ``end``.
    """
    if begin is None and end is None:
        return ALL
    first = EARLIEST if begin is None else time_ms(begin, "begin", up=True)
    last = LATEST if end is None else time_ms(end, "end")
    check_order(first, last, begin, end)
    return TimeRange(first, last)


def check_order(first: int, last: int, begin: object, end: object, prefix: str = "") -> None:
    """Refuse a range from ``first`` to ``last`` ms that ends before it begins.

    ``begin`` and ``end`` are the values as given; ``prefix`` is that of their names.

    Raises:
        StoreConfigError: the range ends before it begins.
    """
    if first > last:
        raise StoreConfigError(f"{prefix}begin {begin} is later than {prefix}end {end}")


def time_ms(time: Time, name: str = "", *, up: bool = False) -> int:
    """Return ``time`` in ms since the epoch; a ``datetime`` is rounded down to ms.

    With ``up``, for the begin of a range, it is rounded up: to the first store time that is not
    before it. A number outside the store times becomes the lowest or the highest one.

    Raises:
        RefusedStoreError: it is neither an integer nor a ``datetime``, or it is a number that is
            probably in seconds or a date, or it cannot be the begin (``up``) or end of a range; the
            error uses ``name`` for it.
    """
    if isinstance(time, datetime):
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
        return -(-since // _MS) if up else since // _MS
    number = _whole(time, name)
    if number > LATEST if up else number < EARLIEST:
        side = "later" if up else "earlier"
        raise RefusedStoreError(f"{_of(name)}{time} is {side} than any store time")
    refuse_other_unit(number, name)
    return min(max(number, EARLIEST), LATEST)


def _whole(time: object, name: str) -> int:
    """Return the integer ``time``, also one of numpy.

    Raises:
        RefusedStoreError: it is not an integer.
    """
    if isinstance(time, bool) or not isinstance(time, Integral):
        raise RefusedStoreError(
            f"{_of(name)}invalid time {time!r}: expected ms since the epoch, or a datetime"
        )
    return int(time)


def refuse_other_unit(time: int, name: str = "") -> None:
    """Refuse a number of ms that is probably a number of seconds, or a date in digits.

    Raises:
        RefusedStoreError: the error names the probable meaning.
    """
    if _USUAL_FIRST <= time < _USUAL_END or not _FIRST_DATE <= time <= _LAST_DATE:
        return
    meant = f"seconds, pass {time * 1000}" if time in _SECONDS else _date_in(time)
    if meant is not None:
        raise RefusedStoreError(f"{_of(name)}{time} ms is {_shown(time)}. If you meant {meant}")


def parse_time(text: str) -> Time:
    """Parse a time: ms since the epoch, or ISO 8601.

    Raises:
        RefusedStoreError: ``text`` is neither.
    """
    refused = RefusedStoreError(
        f"invalid time {text!r:.60}: expected ms since the epoch, or ISO 8601"
    )
    if _NUMBER.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise refused
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise refused from exc


def _date_in(time: int) -> str | None:
    """Return the date that a number with these digits probably means; ``None``: none."""
    found = _DATE.fullmatch(str(time))
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups())
    try:
        moment = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - of digits alone
    except ValueError:
        return None
    shown = moment.isoformat() if found[4] else str(moment.date())
    return f"a date, pass {shown} (ISO 8601), or a datetime"


def _of(name: str) -> str:
    return f"{name}: " if name else ""


def _shown(time: int) -> str:
    return (_EPOCH + time * _MS).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
