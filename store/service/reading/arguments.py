"""Type checks of the arguments of public methods; errors name the argument.

Calls that change something check before they begin: a refused call leaves the store unchanged.
Searches by time and queries check before they begin: that costs 1.6 % of a search and 0.2 % of a
query. A pull and an offset of a queue take 0.4 to 3 us, and the same check would be 4 % of them, so
they check after they have failed or found nothing (ratios in one process, queues in files).
"""

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isnan
from numbers import Integral, Real
from typing import Any

from cqstore.store.service.reading.store_times import (
    ALL,
    Time,
    TimeRange,
    refuse_other_unit,
    time_range,
)

_KEY_FIELDS = 2
"""Number of fields of a ``QueueKey``."""


def check_texts(**given: object) -> None:
    """Raise an error for the first argument that is not a text.

    Raises:
        TypeError: names the argument, its type, and the expected type.
    """
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}, {type(value).__name__}: not a string")


def check_numbers(**given: object) -> None:
    """Raise an error for the first one that is not an integer (also numpy's), see ``check_texts``.

    Raises:
        TypeError: an argument is not an integer.
    """
    for name, value in given.items():
        if not isinstance(value, Integral):
            raise TypeError(f"{name} is {value!r}, {type(value).__name__}: not an integer")


def check_optional_texts(**given: object) -> None:
    """Raise an error for the first that is neither a text nor ``None``, see ``check_texts``."""
    check_texts(**{name: value for name, value in given.items() if value is not None})


def check_kind(kind: type | tuple[type, ...], wanted: str, **given: object) -> None:
    """Raise an error for the first that is not a ``kind``, named ``wanted``, see ``check_texts``.

    Raises:
        TypeError: an argument is not a ``kind``.
    """
    for name, value in given.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r:.60}, {type(value).__name__}: not {wanted}")


def check_path(**given: object) -> None:
    """Raise an error for the first that is not a path, see ``check_texts``.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument has a character that is invalid in a path.
    """
    for name, value in given.items():
        check_kind((str, os.PathLike), "a path", **{name: value})
        try:
            is_path = b"\0" not in os.fsencode(str(value))
        except UnicodeEncodeError:
            is_path = False
        if not is_path:
            raise ValueError(f"{name} is {value!r:.200}: a path cannot contain such a character")


def check_callable(**given: object) -> None:
    """Raise an error for the first that is not callable, see ``check_texts``.

    Raises:
        TypeError: an argument is not callable.
    """
    for name, value in given.items():
        if not callable(value):
            raise TypeError(f"{name} is {value!r:.60}, {type(value).__name__}: not callable")


def check_seconds(**given: object) -> None:
    """Raise an error for the first that is not a number of seconds, or ``None`` (no limit).

    Raises:
        TypeError: an argument is not a number.
        ValueError: an argument is NaN.
    """
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, Real):
            raise TypeError(f"{name} is {value!r:.60}, {type(value).__name__}: not a number")
        if isnan(value):
            raise ValueError(f"{name} is {value!r}: not a number of seconds")


def _listed(name: str, value: Any) -> list[Any]:
    """Return the elements of an argument, iterated once; a text is not a list of texts."""
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"{name} is {value!r:.60}: one name, not an iterable of several")
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} is {value!r:.60}, {type(value).__name__}: not an iterable")
    return [*value]


def listed_texts(**given: Iterable[str]) -> list[str]:
    """Return the texts of the one argument, iterated once; a single text is refused.

    Raises:
        TypeError: it is a single text, whose letters would be used, or not an iterable of texts.
    """
    ((name, value),) = given.items()
    texts = _listed(name, value)
    for text in texts:
        if not isinstance(text, str):
            check_texts(**{name: text})
    return texts


def listed_numbers(**given: Iterable[int]) -> list[int]:
    """Return the numbers of the one argument as ``int``, iterated once, see ``listed_texts``.

    Raises:
        TypeError: it is not an iterable of integers.
    """
    ((name, value),) = given.items()
    numbers = _listed(name, value)
    for number in numbers:
        check_numbers(**{name: number})
    return [int(number) for number in numbers]


def check_offsets(offsets: object) -> None:
    """Raise an error if ``offsets`` is not a mapping of queues to queue offsets.

    Raises:
        TypeError: it is not such a mapping.
    """
    check_kind(Mapping, "a mapping of QueueKey to offset", offsets=offsets)
    assert isinstance(offsets, Mapping)
    for key, offset in offsets.items():
        if not isinstance(key, tuple) or len(key) != _KEY_FIELDS:
            raise TypeError(
                f"offsets has the key {key!r:.60}, {type(key).__name__}: not a QueueKey"
            )
        check_queue(*key)
        check_numbers(**{f"offsets[{key!r}]": offset})


def check_queue(topic: object, queue_id: object, **numbers: object) -> None:
    """Raise an error for a topic that is not a text, or a number that is not an integer.

    Raises:
        TypeError: an argument has a wrong type.
    """
    check_texts(topic=topic)
    check_numbers(queue_id=queue_id, **numbers)


def check_tags(tags: object, kind: type) -> None:
    """Raise an error for a filter that is neither a ``TagFilter`` (``kind``) nor ``None``."""
    check_kind((kind, type(None)), "a TagFilter", tags=tags)


def check_pull(
    topic: object, queue_id: object, offset: object, max_msgs: object, max_total_bytes: object
) -> None:
    """Raise an error for an invalid argument of a pull, see ``check_queue``.

    Raises:
        TypeError: an argument has a wrong type.
    """
    check_queue(topic, queue_id, offset=offset, max_msgs=max_msgs, max_total_bytes=max_total_bytes)


def check_search(topic: object, queue_id: object, timestamp: int) -> None:
    """Raise an error for an invalid argument of a search by time; valid ones cost 0.1 us.

    Raises:
        TypeError: an argument has a wrong type.
        RefusedStoreError: the time is probably not in ms.
    """
    if type(topic) is not str or not type(queue_id) is type(timestamp) is int:
        check_queue(topic, queue_id, timestamp=timestamp)
    refuse_other_unit(timestamp, "timestamp")


def query_times(
    topic: object, key: object, max_num: object, begin: Time | None, end: Time | None
) -> TimeRange:
    """Return the range of store times of a query by key, after checking its arguments.

    Raises:
        TypeError: an argument has a wrong type.
        RefusedStoreError: a time is probably not in ms.
        StoreConfigError: ``begin`` is later than ``end``.
    """
    if not type(topic) is type(key) is str or type(max_num) is not int:
        check_texts(topic=topic, key=key)
        check_numbers(max_num=max_num)
    if begin is end is None:
        return ALL
    for name, time in (("begin", begin), ("end", end)):
        if time is not None and not isinstance(time, datetime):
            check_numbers(**{name: time})
    return time_range(begin, end)
