"""What of a message no record can hold, looked at field by field, to say why a put refuses it.

Compiled code finds out while it encodes, which costs nothing; this is asked once it has refused.
"""

from collections.abc import Iterable, Mapping, Sequence

from cqstore.store.errors import IllegalMessageError
from cqstore.store.java_numbers import INT_MAX, LONG_MAX
from cqstore.store.record.message import Host, Message

_RANGES = {
    "queue_id": (0, INT_MAX),  # no broker gives another, and RocksDB's keys sort none
    "flag": (-INT_MAX - 1, INT_MAX),
    "sys_flag": (-INT_MAX - 1, INT_MAX),
    "born_timestamp": (-LONG_MAX - 1, LONG_MAX),
    "reconsume_times": (-INT_MAX - 1, INT_MAX),
    "prepared_transaction_offset": (-LONG_MAX - 1, LONG_MAX),
}


def listed(messages: Iterable[Message]) -> list[Message]:
    """Return a list of our own of what is to be put, iterated once.

    Raises:
        TypeError: not an iterable of messages, as a text, bytes, a mapping or one message.
    """
    one = isinstance(messages, str | bytes | bytearray | memoryview | Mapping)
    if one or hasattr(messages, "properties") or not hasattr(type(messages), "__iter__"):
        raise TypeError(f"messages must be an iterable of messages, not {messages!r:.60}")
    return list(messages)


def require_messages(given: Sequence[object]) -> None:
    """Refuse a sequence that holds something else than messages, before any of it is put.

    What has the fields of a message is one: what was read is put again as it is.

    Raises:
        TypeError: an element is no message; the sentence says which one.
    """
    for index, each in enumerate(given):
        require_message(each, f"element {index}")


def require_message(given: object, name: str = "message") -> None:
    """Refuse what is no message.

    Raises:
        TypeError: as for ``require_messages``; ``name`` is what the sentence calls it.
    """
    if not hasattr(given, "properties"):
        raise TypeError(f"{name} must be a Message, not {given!r:.60}")


def illegal(message: Message, exc: Exception) -> IllegalMessageError:
    """Return the error that says which field of ``message`` led to ``exc``.

    Raises:
        Exception: ``exc`` itself; the message is not to blame.
    """
    reason = fault_of(message)
    if reason is None:
        raise exc
    return IllegalMessageError(reason)


def fault_of(message: Message) -> str | None:
    """Return which field has a wrong type or is out of its range, ``None`` if none."""
    types = {"topic": str, "body": bytes | bytearray | memoryview, "properties": Mapping,
             "born_host": Host, "store_host": Host}  # fmt: skip
    for name, kind in types.items():
        value = getattr(message, name)
        if not isinstance(value, kind):
            expected = kind.__name__ if isinstance(kind, type) else "bytes"  # or a union
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
