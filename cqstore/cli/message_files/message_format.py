"""``--format``: one line of text per message; ``%`` and a letter stand for a field."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import typer

from cqstore.cli.message_files.dump_rows import host_text
from cqstore.cli.message_files.message_fields import ReadMessage
from cqstore.cli.output import body_fields, to_json
from cqstore.store.record.message import MessageProperty

_Part = Callable[[ReadMessage], str]
_EPOCH = datetime.fromtimestamp(0, UTC)


def _property(name: str) -> _Part:
    return lambda read: read.message.properties.get(name, "")


def _body(read: ReadMessage) -> str:
    (text,) = body_fields(bytes(read.message.body)).values()
    return str(text)


def iso_time(timestamp: int) -> str:
    """Return ms since the epoch as ISO 8601 in UTC; as a number if it is out of range."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds")


PARTS: dict[str, tuple[str, _Part]] = {
    "t": ("topic", lambda read: read.message.topic),
    "q": ("queue id", lambda read: str(read.message.queue_id)),
    "o": ("queue offset", lambda read: str(read.queue_offset)),
    "p": ("phy offset", lambda read: str(read.stored.phy_offset)),
    "i": ("message id", lambda read: read.stored.message_id),
    "k": ("keys", _property(MessageProperty.KEYS)),
    "g": ("tags", _property(MessageProperty.TAGS)),
    "u": ("unique key", _property(MessageProperty.UNIQ_KEY)),
    "h": ("properties as JSON", lambda read: to_json(read.message.properties)),
    "T": ("store time, ISO 8601", lambda read: iso_time(read.stored.store_timestamp)),
    "s": ("store time, ms", lambda read: str(read.stored.store_timestamp)),
    "B": ("born time, ISO 8601", lambda read: iso_time(read.message.born_timestamp)),
    "m": ("born time, ms", lambda read: str(read.message.born_timestamp)),
    "H": ("born host", lambda read: host_text(read.message.born_host)),
    "S": ("size of the body, bytes", lambda read: str(len(read.message.body))),
    "b": ("body (Base64 if not UTF-8)", _body),
    "%": ("a percent sign", lambda _: "%"),
}
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


class MessageFormat:
    """A validated ``--format`` that formats each message as a line."""

    def __init__(self, text: str) -> None:
        """Parse ``text``.

        Raises:
            typer.BadParameter: the letter after a ``%`` or a backslash is not defined.
        """
        self._text = text
        self._parts: list[str | _Part] = []
        at, literal = 0, ""
        while at < len(text):
            mark, letter = text[at], text[at + 1 : at + 2]
            if mark == "%":
                if letter not in PARTS:
                    raise _unknown(text, at, ", ".join(f"%{each}" for each in PARTS))
                self._parts += [literal, PARTS[letter][1]] if literal else [PARTS[letter][1]]
                literal = ""
            elif mark == "\\":
                if letter not in _ESCAPES:
                    raise _unknown(text, at, "\\n, \\t, \\0, \\\\")
                literal += _ESCAPES[letter]
            else:
                literal += mark
            at += 2 if mark in "%\\" else 1
        if literal:
            self._parts.append(literal)

    def __str__(self) -> str:
        return self._text

    def line(self, read: ReadMessage) -> str:
        """Return the line of a message, including the line end."""
        texts = (part if isinstance(part, str) else part(read) for part in self._parts)
        return "".join(texts) + "\n"


def _unknown(text: str, at: int, known: str) -> typer.BadParameter:
    what = text[at : at + 2]
    return typer.BadParameter(
        f"unknown {what!r} at character {at + 1} of {text!r}: expected one of {known}",
        param_hint="--format",
    )
