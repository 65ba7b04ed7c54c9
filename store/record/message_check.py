"""Field-by-field checks of a message, for the error of a put that refuses it.

Compiled code detects invalid messages while it encodes, at no cost; these checks run after it
declined one.
"""

from collections.abc import Iterable, Mapping, Sequence

from cqstore.store.errors import IllegalMessageError
from cqstore.store.java_numbers import INT_MAX, LONG_MAX
from cqstore.store.record.message import Host, Message

_RANGES = {
    "queue_id": (0, INT_MAX),  # no broker uses others, and RocksDB's keys sort only these
    "flag": (-INT_MAX - 1, INT_MAX),
    "sys_flag": (-INT_MAX - 1, INT_MAX),
    "born_timestamp": (-LONG_MAX - 1, LONG_MAX),
    "reconsume_times": (-INT_MAX - 1, INT_MAX),
    "prepared_transaction_offset": (-LONG_MAX - 1, LONG_MAX),
}


def listed(messages: Iterable[Message]) -> list[Message]:
    """Return the messages to put as a new list; the argument is iterated once.

    Raises:
        TypeError: ``messages`` is not an iterable of messages: a text, bytes, a mapping or one
            message.
    """
    one = isinstance(messages, str | bytes | bytearray | memoryview | Mapping)
    if one or hasattr(messages, "properties") or not hasattr(type(messages), "__iter__"):
        raise TypeError(f"messages must be an iterable of messages, not {messages!r:.60}")
    return list(messages)


def require_messages(given: Sequence[object]) -> None:
    """Refuse a sequence with an element that is not a message, before any of it is put.

    An object with the fields of a message is accepted: a message that was read can be put again.

    Raises:
        TypeError: an element is not a message; the error names its index.
    """
    for index, each in enumerate(given):
        require_message(each, f"element {index}")


def require_message(given: object, name: str = "message") -> None:
    """Refuse an object that is not a message.

    Raises:
        TypeError: as for ``require_messages``; the error uses ``name`` for the object.
    """
    if not hasattr(given, "properties"):
        raise TypeError(f"{name} must be a Message, not {given!r:.60}")


def illegal(message: Message, exc: Exception) -> IllegalMessageError:
    """Return the error that names the field of ``message`` that caused ``exc``.

    Raises:
        Exception: ``exc`` itself, if no field of the message is invalid.
    """
    reason = fault_of(message)
    if reason is None:
        raise exc
    return IllegalMessageError(reason)


def fault_of(message: Message) -> str | None:
    """Return which field has a wrong type or is out of range, ``None`` if all are valid."""
    types = {"topic": str, "body": bytes | bytearray | memoryview, "properties": Mapping,
             "born_host": Host, "store_host": Host}  # fmt: skip
    for name, kind in types.items():
        value = getattr(message, name)
        if not isinstance(value, kind):
            expected = kind.__name__ if isinstance(kind, type) else "bytes"  # otherwise a union
            return f"{name} is {value!r:.60}, not {expected}"
    for name, (minimum, limit) in _RANGES.items():
        value = getattr(message, name)
        if not isinstance(value, int) or (name == "queue_id" and type(value) is not int):
            return f"{name} is {value!r:.60}, not int"
        if not minimum <= value <= limit:
            return f"{name} is {value:.6g}, not between {minimum} and {limit}"
    for name, text in message.properties.items():
        if not type(name) is type(text) is str:
            return f"invalid property {name!r:.60} = {text!r:.60}: name and value must be str"
    return None
