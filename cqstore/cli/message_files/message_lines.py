"""Messages as lines of JSON: the input of ``cqstore put`` and ``cqstore import``.

A value whose type differs from that of its field is refused and never converted, because its
meaning would be a guess. Every error names line and field.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cqstore.cli.message_files.message_fields import PLACES, host_of, to_put
from cqstore.cli.output import HAS_MORE
from cqstore.store.errors import IllegalMessageError, StoreConfigError
from cqstore.store.java_numbers import INT_MAX, LONG_MAX
from cqstore.store.record.message import LOOPBACK, Host, Message
from cqstore.store.record.properties import check_key, check_tag

FIELDS = (
    "topic", "queueId", "body", "bodyBase64", "properties", "tags", "keys", "flag", "sysFlag",
    "bornTimestamp", "bornHost", "storeHost", "reconsumeTimes", "preparedTransactionOffset",
)  # fmt: skip
_LONGS = {"queueOffset", "phy", "storeTimestamp"}
_SHOWN = 40
"""Maximum number of characters of a value that an error shows."""


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A message and the number of its line, counted from 1."""

    number: int
    message: Message


class IllegalLineError(IllegalMessageError):
    """Line ``number`` is not a valid message."""

    def __init__(self, reason: str, number: int = 0, **place: Any) -> None:
        """``reason`` is the message and names the line; ``place`` as in ``StoreError``."""
        super().__init__(reason, **place)
        self.number = number


class BeyondEndError(StoreConfigError):
    """The input ends before the first line or row to read."""


def message_lines(lines: Iterable[bytes], first: int = 1) -> Iterator[MessageLine]:
    """Yield the message of each line from number ``first`` on; empty lines are skipped.

    Raises:
        IllegalLineError: a line is not a valid message; messages before it were yielded.
        BeyondEndError: the lines end before ``first``.
    """
    number = 0
    for number, line in enumerate(lines, 1):
        if number < first or not line.strip():
            continue
        try:
            message = to_message(_object(line))
        except IllegalMessageError as exc:
            raise IllegalLineError(f"line {number}: {exc.reason}", number) from exc
        yield MessageLine(number, message)
    refuse_beyond(first, number)


def done_before(count: int, number: int) -> str:
    """Return how many messages were appended before row ``number``, and how to continue there."""
    return f"{count} messages before it were appended; continue with --continue-from {number}"


def refuse_beyond(first: int, last: int) -> None:
    """Refuse to begin at a line or row that does not exist; one after ``last`` is allowed.

    Raises:
        BeyondEndError: ``first`` is greater than ``last`` + 1.
    """
    if first > last + 1:
        raise BeyondEndError(
            f"line or row {first} does not exist: the input has {last}; no message was appended"
        )


def to_message(fields: dict[str, object]) -> Message:
    """Return the message that a JSON object describes.

    Its fields are ``topic``, ``body`` (a string) or ``bodyBase64``, ``properties`` (an object of
    strings), ``tags``, ``keys`` (a string, or a list that is joined by spaces), ``queueId``,
    ``flag``, ``sysFlag``, ``bornTimestamp``, ``bornHost``, ``storeHost``, ``reconsumeTimes`` and
    ``preparedTransactionOffset``. ``null`` means that properties, tags or keys are left out. The
    position fields that ``get`` prints are checked and dropped: the put assigns new ones.
    ``HAS_MORE``, which the last row of a limited answer can have, is dropped.

    Raises:
        IllegalMessageError: a field is missing, unknown, given twice or of another type.
    """
    if unknown := sorted(fields.keys() - _KNOWN):
        raise IllegalMessageError(
            f"unknown fields: {', '.join(unknown)}; known fields: {', '.join(FIELDS)}"
        )
    _check_places(fields)
    properties = _properties(fields.get("properties"))
    for field, name in (("tags", "TAGS"), ("keys", "KEYS")):
        if (given := fields.get(field)) is None:
            continue
        if name in properties:
            raise IllegalMessageError(f"{field} and the property {name} are both given")
        properties[name] = _keys(given) if field == "keys" else _tag(given)
    message = Message(
        topic=_text("topic", fields.get("topic")),
        body=_body(fields),
        queue_id=_number("queueId", fields.get("queueId", 0), 0),
        flag=_number("flag", fields.get("flag", 0), -INT_MAX - 1),
        properties=properties,
        sys_flag=_number("sysFlag", fields.get("sysFlag", 0), -INT_MAX - 1),
        born_timestamp=_long("bornTimestamp", fields.get("bornTimestamp", 0)),
        born_host=_host(fields, "bornHost"),
        store_host=_host(fields, "storeHost"),
        reconsume_times=_number("reconsumeTimes", fields.get("reconsumeTimes", 0), -INT_MAX - 1),
        prepared_transaction_offset=_long(
            "preparedTransactionOffset", fields.get("preparedTransactionOffset", 0)
        ),
    )
    return to_put(message)


_KNOWN = {*FIELDS, *PLACES, HAS_MORE}


def _check_places(fields: dict[str, object]) -> None:
    for name in PLACES:
        if name in fields:
            given = fields[name]
            _ = _long(name, given) if name in _LONGS else _text(name, given)


def _host(fields: dict[str, object], name: str) -> Host:
    return host_of(name, _text(name, fields[name])) if name in fields else LOOPBACK


def _object(line: bytes) -> dict[str, object]:
    """Return the JSON object of a line.

    Raises:
        IllegalMessageError: the line is not a JSON object, or has a name twice.
    """
    try:
        fields = json.loads(line.decode().rstrip(), object_pairs_hook=_once)
    except UnicodeDecodeError as exc:
        raise IllegalMessageError(
            f"byte {exc.start + 1} is not UTF-8 ({exc.reason}); use bodyBase64 for a binary body"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise IllegalMessageError(f"invalid JSON: {json_fault(exc)}") from exc
    if not isinstance(fields, dict):
        raise IllegalMessageError(f"{_shown(fields)} is not a JSON object with a topic")
    return fields


def json_fault(exc: ValueError | RecursionError) -> str:
    """Return why a line is not JSON, without Python's line number: the caller adds the real one."""
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} (character {exc.pos + 1})"
    return str(exc).partition(";")[0]  # after it, Python names an internal function


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise IllegalMessageError(f"{twice} is given twice")
    return fields


def _body(fields: dict[str, object]) -> bytes:
    """Return the body that a line specifies as text or as Base64.

    Raises:
        IllegalMessageError: the line has both, or invalid Base64.
    """
    if isinstance(body := fields.get("body"), bytes):  # from a file format with binary bodies
        return body
    if "bodyBase64" not in fields:
        return _text("body", fields.get("body", "")).encode()
    if "body" in fields:
        raise IllegalMessageError("body and bodyBase64 are both given")
    try:
        return base64.b64decode(_text("bodyBase64", fields["bodyBase64"]), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise IllegalMessageError(f"bodyBase64 is not Base64: {exc}") from exc


def _properties(given: object) -> dict[str, str]:
    """Return the properties that a line specifies.

    Raises:
        IllegalMessageError: the properties are not an object of strings.
    """
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise IllegalMessageError(f"properties is {_shown(given)}, not an object of strings")
    return {
        _text("a property's name", name): _text(f"property {name}", each)
        for name, each in given.items()
    }


def _keys(given: object) -> str:
    """Return the keys that a line specifies as a string or as a list.

    Raises:
        IllegalMessageError: a key is invalid.
    """
    if not isinstance(given, list):
        return _text("keys", given)
    keys = [_text("an element of keys", each) for each in given]
    for key in keys:
        check_key(key)
    return " ".join(keys)


def _tag(given: object) -> str:
    tag = _text("tags", given)
    check_tag(tag)
    return tag


def _text(field: str, given: object) -> str:
    """Return a value that must be a string.

    Raises:
        IllegalMessageError: the value is not a string.
    """
    if not isinstance(given, str):
        raise IllegalMessageError(f"{field} is {_shown(given)}, not a string")
    try:
        given.encode()
    except UnicodeEncodeError as exc:
        raise IllegalMessageError(
            f"{field} has an unpaired surrogate at character {exc.start + 1}, which is not UTF-8"
        ) from exc
    return given


def _number(field: str, given: object, minimum: int, limit: int = INT_MAX) -> int:
    if type(given) is not int:
        raise IllegalMessageError(f"{field} is {_shown(given)}, not a whole number")
    if not minimum <= given <= limit:
        raise IllegalMessageError(f"{field} is {given}, not within {minimum} to {limit}")
    return given


def _long(field: str, given: object) -> int:
    return _number(field, given, -LONG_MAX - 1, LONG_MAX)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
