"""Row filters: conditions that were pushed down, as spans and sets.

All conditions must hold. An unsupported condition is not taken: Spark then applies it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cqstore.analysis.columns import EARLIEST_MS, LATEST_MS

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_TOPIC = "topic"
_NUMBERS = frozenset({"queue_id", "queue_offset", "phy_offset", "size", "store_timestamp"})
_TIME, _STAMP = "store_time", "store_timestamp"


@dataclass(frozen=True, slots=True)
class Span:
    """Range of integers, both ends included, restricted to ``among`` if that is set."""

    low: int = INT64_MIN
    high: int = INT64_MAX
    among: frozenset[int] | None = None

    def both(self, other: "Span") -> "Span":
        """Return the intersection with ``other``."""
        among = self.among
        if other.among is not None:
            among = other.among if among is None else among & other.among
        return Span(max(self.low, other.low), min(self.high, other.high), among)

    @property
    def is_empty(self) -> bool:
        """Return whether no value lies in the span."""
        return self.low > self.high or (self.among is not None and not self.among)

    def holds(self, value: int) -> bool:
        """Return whether ``value`` lies in the span."""
        return self.low <= value <= self.high and (self.among is None or value in self.among)

    def mask(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the ``values`` in the span."""
        if self.low > self.high or self.low > INT64_MAX or self.high < INT64_MIN:
            return np.zeros(len(values), np.bool_)
        found = (values >= self.low) & (values <= self.high)
        if self.among is not None:
            wanted = [value for value in self.among if INT64_MIN <= value <= INT64_MAX]
            found &= np.isin(values, np.array(wanted, np.int64))
        return np.asarray(found, np.bool_)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Filter of the requested rows; all rows if empty. Small, can be pickled.

    ``first_stamp`` is the first store time, ms, that is not null: ``FIRST_STAMP`` where a missing
    record makes the time null, as in the queues.
    """

    topics: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()
    numbers: Mapping[str, Span] = field(default_factory=dict)
    first_stamp: int = INT64_MIN

    def span(self, name: str) -> Span:
        """Return the condition on a numeric column."""
        return self.numbers.get(name, Span())

    def accepts_topic(self, topic: str) -> bool:
        """Return whether rows of ``topic`` are requested."""
        named = self.topics is None or topic in self.topics
        return named and all(topic.startswith(prefix) for prefix in self.prefixes)

    def mask(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_] | None:
        """Return a mask of the requested rows by the numbers in ``columns``; ``None`` for all."""
        masks = [span.mask(columns[name]) for name, span in self.numbers.items()]
        return np.asarray(np.logical_and.reduce(masks), np.bool_) if masks else None

    # ---- taking conditions

    def taking(self, kind: str, column: str, value: object) -> Self | None:
        """Return this filter with one more condition; ``None`` if it is not supported.

        ``kind`` is the name of Spark's filter class, ``column`` a column of the table.
        """
        if kind == "IsNotNull" and column in {*_NUMBERS, _TOPIC, _TIME}:
            return self._not_null(column)
        if column == _TOPIC:
            return self._with_topic(kind, value)
        if column == _TIME:
            span = _time_span(kind, value)
            return None if span is None else self._not_null(_TIME).narrowed(_STAMP, span)
        if column in _NUMBERS:
            span = _number_span(kind, value)
            return None if span is None else self._not_null(column).narrowed(column, span)
        return None

    def narrowed(self, column: str, span: Span) -> Self:
        """Return this filter with ``span`` as a further condition on ``column``."""
        return replace(self, numbers={**self.numbers, column: self.span(column).both(span)})

    def _not_null(self, column: str) -> Self:
        if column == _TIME:
            return self.narrowed(_STAMP, Span(max(EARLIEST_MS, self.first_stamp), LATEST_MS))
        if column == _STAMP and self.first_stamp > INT64_MIN:
            return self.narrowed(_STAMP, Span(self.first_stamp))
        return self

    def _with_topic(self, kind: str, value: object) -> Self | None:
        if kind == "StringStartsWith" and isinstance(value, str):
            return replace(self, prefixes=(*self.prefixes, value))
        wanted = _set_of(kind, value)
        if wanted is None or not all(isinstance(one, str) for one in wanted):
            return None
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)


def _set_of(kind: str, value: object) -> frozenset[Any] | None:
    """Return the values that an equality accepts: null equals nothing."""
    if kind == "In" and isinstance(value, list | tuple):
        return frozenset(one for one in value if one is not None)
    return frozenset({value}) if kind == "EqualTo" and value is not None else None


def _number_span(kind: str, value: object) -> Span | None:
    wanted = _set_of(kind, value)
    if wanted is not None:
        return Span(among=wanted) if all(type(one) is int for one in wanted) else None
    if type(value) is not int:
        return None
    return _compared(kind, value, value)


def _time_span(kind: str, value: object) -> Span | None:
    """Return the ms that satisfy a comparison with a time in microseconds."""
    wanted = _set_of(kind, value)
    if wanted is not None:
        if not all(isinstance(one, datetime) for one in wanted):
            return None
        micros = [_micros(one) for one in wanted]
        return Span(among=frozenset(one // 1000 for one in micros if one % 1000 == 0))
    if not isinstance(value, datetime):
        return None
    micro = _micros(value)
    return _compared(kind, micro // 1000, -(-micro // 1000))


def _compared(kind: str, floor: int, ceiling: int) -> Span | None:
    """Return the integers on the requested side of a value between ``floor`` and ``ceiling``."""
    return {
        "GreaterThan": Span(low=floor + 1),
        "GreaterThanOrEqual": Span(low=ceiling),
        "LessThan": Span(high=ceiling - 1),
        "LessThanOrEqual": Span(high=floor),
    }.get(kind)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _US if time.tzinfo else (time.replace(tzinfo=UTC) - _EPOCH) // _US
