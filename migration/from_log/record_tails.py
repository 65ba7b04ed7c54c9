"""Tails: extracts units from the ends of records, which consist of topic and properties.

A tail is *ordinary* if every queued record with it has one unit, in its own queue, whose tags code
is the hash of its tags; all other tails need the exact decoder. Producers repeat themselves, so a
tail seen before costs one dictionary lookup. If each message has a different key, topic and tags
are looked up separately.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

from cqstore.store.record.bounded_cache import BoundedCache
from cqstore.store.record.properties import dispatch_properties, tags_code_of, text_of
from cqstore.store.service.dispatching.record_units import RecordUnits

_MAX_TOPIC = 127
_MAX_PROPERTIES = 0x7FFF
_TAGS = b"TAGS\x01"
_VALUE_END = b"\x02"
_MAX_ENTRIES = 1 << 16
_MAX_BYTES = 256
_CODES_BYTES = 8 << 20
_EXACT = 0
"""Number for a tail that is not ordinary, or invalid."""
_Int64s = NDArray[np.int64]
_Found = tuple[NDArray[np.bool_], _Int64s, _Int64s]
"""Per tail: whether it is ordinary, the number of its topic, and its tags code."""


class Tails:
    """Parses the tails of records, topic and properties, under one configuration. One thread."""

    def __init__(self, units: RecordUnits, *, no_zeros: bool) -> None:
        """``no_zeros``: no tail with a zero byte is ordinary, as a crash may have left it."""
        self._no_zeros = no_zeros
        self._units = units
        self._names = _Names(units)
        self._whole = _WholeTails(self._names, units, no_zeros=no_zeros)
        self._repeat = True

    @property
    def topics(self) -> list[str]:
        """Return the topics, indexed by their number; the list only grows."""
        return self._names.topics

    def topic_number(self, topic: str) -> int:
        """Return the number of ``topic``."""
        return self._names.number(topic)

    def parse(self, data: bytes, starts: _Int64s, ends: _Int64s) -> _Found:
        """Return the results for the tails in ``data``, each of at least 3 bytes."""
        whole = self._whole
        if not self._repeat and not self._no_zeros and self._units.are_ordinary(data):
            return self._parse_slow(data, starts, ends)
        whole.forget()
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        numbers = np.array([whole[data[a:b]] for a, b in pairs], np.int64)
        self._repeat = 2 * whole.misses <= len(numbers)
        return whole.lookup(numbers)

    def _parse_slow(self, data: bytes, starts: _Int64s, ends: _Int64s) -> _Found:
        """Parse tails that do not repeat, by separate lookups of topics and tags."""
        octets, names = np.frombuffer(data, np.uint8), self._names
        name_end = starts + 1 + octets[starts]
        ordinary = (octets[starts] <= _MAX_TOPIC) & (name_end <= ends - 2)
        name_end = np.where(ordinary, name_end, starts)
        first = name_end + 2
        size = octets[name_end].astype(np.int64) << 8 | octets[name_end + 1]
        ordinary &= (size == ends - first) & (size <= _MAX_PROPERTIES)
        pairs = zip(starts.tolist(), name_end.tolist(), strict=True)
        topics = np.array([names[data[a + 1 : b]] for a, b in pairs], np.int64)
        ordinary &= topics >= 0
        codes, unclear = self._codes(data, octets, first, ends)
        for index in np.flatnonzero(unclear & ordinary).tolist():
            codes[index] = dispatch_properties(data[first[index] : ends[index]]).tags_code
        return ordinary, topics, codes

    def _codes(
        self, data: bytes, octets: NDArray[np.uint8], first: _Int64s, ends: _Int64s
    ) -> tuple[_Int64s, NDArray[np.bool_]]:
        """Return the tags codes of properties, and for which of them a full parse is needed."""
        find, code_of = data.find, self._names.codes
        last = ends.tolist()
        at = np.array(
            [find(_TAGS, a, b) for a, b in zip(first.tolist(), last, strict=True)], np.int64
        )
        found = at >= 0
        unclear = found & (at > first) & (octets[at - 1] != _VALUE_END[0])
        values = at + len(_TAGS)
        if data.count(_TAGS) != np.count_nonzero(found):  # twice in one record, or in a body
            pairs = zip(values.tolist(), last, strict=True)
            again = np.array([find(_TAGS, a, b) for a, b in pairs], np.int64)
            unclear |= found & (again >= 0)
        values = np.where(found, values, ends)
        pairs = zip(values.tolist(), last, strict=True)
        stops = np.array([find(_VALUE_END, a, b) for a, b in pairs], np.int64)
        stops = np.where(stops < 0, ends, stops)
        pairs = zip(values.tolist(), stops.tolist(), strict=True)
        return np.array([code_of[data[a:b]] for a, b in pairs], np.int64), unclear


class _Codes(BoundedCache[bytes, int]):
    """UTF-8 of tags → tags code."""

    def __init__(self) -> None:
        super().__init__(_CODES_BYTES)

    def __missing__(self, tags: bytes) -> int:
        code = tags_code_of(text_of(tags))
        return self.learn(tags, code, len(tags))


class _Names(dict[bytes, int]):
    """UTF-8 of a topic → its number, -1 if its tails are not ordinary."""

    def __init__(self, units: RecordUnits) -> None:
        super().__init__()
        self._units = units
        self._numbers: dict[str, int] = {}
        self.topics: list[str] = []
        self.codes = _Codes()

    def number(self, topic: str) -> int:
        """Return the number of ``topic``, ordinary or not."""
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self.topics)
            self.topics.append(topic)
        return number

    def __missing__(self, name: bytes) -> int:
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return -1
        number = self[name] = self.number(topic) if self._units.is_ordinary_topic(topic) else -1
        return number


class _WholeTails(dict[bytes, int]):
    """Bytes of a tail → number for its topic and tags code, or ``_EXACT``."""

    def __init__(self, names: _Names, units: RecordUnits, *, no_zeros: bool) -> None:
        super().__init__()
        self._names = names
        self._units = units
        self._no_zeros = no_zeros
        self.misses = 0
        """Number of misses since the last ``forget``."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._topic_of, self._code_of = array("q", [0]), array("q", [0])

    def forget(self) -> None:
        """Clear the dictionary if it is too large, which invalidates all numbers."""
        self.misses = 0
        if len(self) > _MAX_ENTRIES or len(self._numbers) > _MAX_ENTRIES:
            self.clear()
            self._numbers.clear()
            self._topic_of, self._code_of = array("q", [0]), array("q", [0])

    def lookup(self, numbers: _Int64s) -> _Found:
        """Return the results for tails with these numbers."""
        topic_of, code_of = np.array(self._topic_of), np.array(self._code_of)
        return numbers != _EXACT, topic_of[numbers], code_of[numbers]

    def __missing__(self, tail: bytes) -> int:
        self.misses += 1
        number = self._number(tail)
        if len(tail) <= _MAX_BYTES:
            self[tail] = number
        return number

    def _number(self, tail: bytes) -> int:
        """Return the number for topic and tags code; ``_EXACT``: use the exact decoder."""
        at = tail[0] + 3
        size = len(tail) - at
        if tail[0] > _MAX_TOPIC or size < 0 or (tail[at - 2] << 8 | tail[at - 1]) != size:
            return _EXACT
        name, properties = tail[1 : at - 2], tail[at:]
        if size > _MAX_PROPERTIES or not self._units.are_ordinary(properties):
            return _EXACT
        topic = self._names[name]
        if topic < 0 or (self._no_zeros and (0 in name or 0 in properties)):
            return _EXACT
        key = topic, dispatch_properties(properties).tags_code
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._topic_of)
            self._topic_of.append(key[0])
            self._code_of.append(key[1])
        return number
