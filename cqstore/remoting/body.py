"""JSON of a command's body, as RocketMQ's clients parse it.

fastjson, which RocketMQ uses, writes the key of a map as it writes any value: a table by queue has
objects as keys, which is not valid JSON. ``KeyedByObject`` is such a table.

Source: RocketMQ ``RemotingSerializable``; fastjson ``MapSerializer``.
"""

import json
from collections.abc import Iterator


class KeyedByObject(list[tuple[object, object]]):
    """A table whose keys are written as they are: objects, or numbers without quotes."""


def json_body(value: object) -> bytes:
    """Return ``value`` as JSON: dicts, lists, strings, numbers and ``KeyedByObject``.

    Only ASCII is written, so that every text can be encoded.
    """
    return "".join(_parts(value)).encode()


def _parts(value: object) -> Iterator[str]:
    if isinstance(value, KeyedByObject):
        yield from _joined("{}", ((_one(key) + ":", each) for key, each in value))
    elif isinstance(value, dict):
        yield from _joined(
            "{}", ((json.dumps(str(key)) + ":", each) for key, each in value.items())
        )
    elif isinstance(value, list | tuple):
        yield from _joined("[]", (("", each) for each in value))
    else:
        yield json.dumps(value)


def _joined(brackets: str, items: Iterator[tuple[str, object]]) -> Iterator[str]:
    yield brackets[0]
    for number, (key, value) in enumerate(items):
        yield "," * bool(number) + key
        yield from _parts(value)
    yield brackets[1]


def _one(value: object) -> str:
    return "".join(_parts(value))
