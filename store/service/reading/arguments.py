"""Arguments of reads that have another type: which one it is, in a sentence.

Searches by time and queries check before they begin: that costs 1.6 % of a search and 0.2 % of a
query. A pull and an offset of a queue take 0.4 to 3 us, and the same test would be 4 % of them, so
they check after they have failed or found nothing (ratios in one process, queues in files).
"""

from datetime import datetime
from numbers import Integral

from cqstore.store.service.reading.store_times import refuse_other_unit


def check_texts(**given: object) -> None:
    """Raise for the first of the named arguments that is no text.

    Raises:
        TypeError: names the argument, what it is, and what is wanted.
    """
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}, {type(value).__name__}: not a text")


def check_numbers(**given: object) -> None:
    """Raise for the first that is no whole number, numpy's included, see ``check_texts``.

    Raises:
        TypeError: one is none.
    """
    for name, value in given.items():
        if not isinstance(value, Integral):
            raise TypeError(f"{name} is {value!r}, {type(value).__name__}: not a whole number")


def check_queue(topic: object, queue_id: object, **numbers: object) -> None:
    """Raise for a topic that is no text, or a number that is none.

    Raises:
        TypeError: there is one.
    """
    check_texts(topic=topic)
    check_numbers(queue_id=queue_id, **numbers)


def check_pull(
    topic: object, queue_id: object, offset: object, max_msgs: object, max_total_bytes: object
) -> None:
    """Raise for an argument of a pull, see ``check_queue``.

    Raises:
        TypeError: there is one.
    """
    check_queue(topic, queue_id, offset=offset, max_msgs=max_msgs, max_total_bytes=max_total_bytes)


def check_search(topic: object, queue_id: object, timestamp: int) -> None:
    """Raise for an argument of a search by time, see ``check_queue``; plain ones cost 0.1 us.

    Raises:
        TypeError: one is of another type.
        RefusedStoreError: the time is probably not in ms.
    """
    if type(topic) is not str or not type(queue_id) is type(timestamp) is int:
        check_queue(topic, queue_id, timestamp=timestamp)
    refuse_other_unit(timestamp, "timestamp")


def check_query(topic: object, key: object, max_num: object, **times: object) -> None:
    """Raise for an argument of a query by key, see ``check_queue``; times may be ``None``."""
    if not type(topic) is type(key) is str or type(max_num) is not int:
        check_texts(topic=topic, key=key)
        check_numbers(max_num=max_num)
    for name, time in times.items():
        if time is not None and not isinstance(time, datetime):
            check_numbers(**{name: time})
