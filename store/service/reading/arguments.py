"""Arguments of reads that are of another type: which one it is, in a sentence.

Asked where a read has failed or found nothing: a read that finds something pays nothing for it.
"""

from numbers import Integral


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


def check_query(topic: object, key: object, max_num: object, begin: object, end: object) -> None:
    """Raise for an argument of a query by key, see ``check_queue``."""
    check_texts(topic=topic, key=key)
    check_numbers(max_num=max_num, begin=begin, end=end)
