"""Both forms of a command's header: JSON, and the binary form ``ROCKETMQ``.

Nothing received is trusted: each length is compared with the bytes that are left before a text is
made, and the parser of JSON limits the depth.

Source: RocketMQ ``RocketMQSerializable``, ``RemotingSerializable``.
"""

import json
from collections.abc import Mapping
from struct import Struct
from typing import TypeGuard

from cqstore.remoting.command import LANGUAGES, OTHER, Command, HeaderForm
from cqstore.remoting.errors import WireError
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.java_numbers import INT_MAX, INT_MIN
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire

_INTS = range(INT_MIN, INT_MAX + 1)
_SHORTS = range(-(1 << 15), 1 << 15)
_QUOTED = json.encoder.encode_basestring_ascii
_DECODED = json.JSONDecoder().decode
_LENGTH, _SHORT_LENGTH = Struct(">i"), Struct(">h")


class BinaryHeader(NamedTuple):
    """The fixed-size start of a header in the form ROCKETMQ."""

    code: Annotated[int, Wire("h", "what is requested, or the result")]
    language: Annotated[int, Wire("b", "number of the sender's language")]
    version: Annotated[int, Wire("h", "RocketMQ's version of the sender")]
    opaque: Annotated[int, Wire("i", "number of the request")]
    flag: Annotated[int, Wire("i", "bit 0: response; bit 1: no response is sent")]


BINARY_HEADER = Layout(BinaryHeader)


def decode_header(form: int, data: bytes, what: str, body: bytes = b"") -> Command:
    """Return the command whose header is ``data``.

    ``what`` names the command in an error, as in "a request".

    Raises:
        WireError: ``data`` is not a header of this form.
    """
    if form == HeaderForm.JSON:
        return _from_json(data, what, body)
    if form == HeaderForm.ROCKETMQ:
        return _from_binary(data, what, body)
    raise WireError(f"invalid header form in {what}", expected="0 (JSON) or 1 (ROCKETMQ)", got=form)


def encode_header(command: Command) -> bytes:
    """Return the header of ``command`` in the command's form."""
    if command.form is HeaderForm.ROCKETMQ:
        return _to_binary(command)
    return _to_json(command)


# ---- JSON


def _to_json(command: Command) -> bytes:
    fields = ",".join([f"{_QUOTED(key)}:{_QUOTED(value)}" for key, value in command.fields.items()])
    remark = f',"remark":{_QUOTED(command.remark)}' if command.remark else ""
    return (
        f'{{"code":{command.code},"language":"{command.language}","version":{command.version},'
        f'"opaque":{command.opaque},"flag":{command.flag},"extFields":{{{fields}}}{remark}}}'
    ).encode()


def _from_json(data: bytes, what: str, body: bytes) -> Command:
    header = _json_object(data, what)
    code, opaque, flag = header.get("code"), header.get("opaque"), header.get("flag")
    if not (_is_int(flag) and _is_int(code) and _is_int(opaque)):
        raise WireError(f"the header of {what} has no valid code, opaque or flag")
    fields, remark = _texts(header.get("extFields") or {}), header.get("remark") or ""
    if fields is None or not isinstance(remark, str):
        raise WireError(f"the header of {what} has a remark or fields that are not strings")
    language, version = header.get("language"), header.get("version")
    return Command(
        code, opaque, flag, fields, body, remark,
        language if isinstance(language, str) and language in LANGUAGES else OTHER,
        version if _is_int(version) else 0,
    )  # fmt: skip


def _json_object(data: bytes, what: str) -> dict[str, object]:
    """Return the object in ``data``; what is no strict JSON is read as RocketMQ reads it.

    Raises:
        WireError: RocketMQ would not read it, either.
    """
    try:
        found = _DECODED(data.decode())  # three times as fast
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    try:
        return broker_object(data)
    except ValueError as exc:
        raise WireError(f"the header of {what} is not valid JSON: {exc}") from exc


def _is_int(value: object) -> TypeGuard[int]:
    return type(value) is int and value in _INTS


def _texts(fields: object) -> dict[str, str] | None:
    """Return fields as texts, with numbers as fastjson reads them; ``None``: they are none."""
    if not isinstance(fields, dict):
        return None
    kinds = {*map(type, fields.values())}
    if kinds <= {str}:
        return fields
    if not kinds <= {str, int, bool}:
        return None
    return {
        key: str(each).lower() if isinstance(each, bool) else str(each)
        for key, each in fields.items()
    }


# ---- ROCKETMQ


def _from_binary(data: bytes, what: str, body: bytes) -> Command:
    reader = _BinaryReader(data, what)
    head = BINARY_HEADER.unpack_from(reader.take(BINARY_HEADER.size))
    remark = reader.text(_LENGTH)
    size = reader.length(_LENGTH)
    end = reader.at + size
    fields: dict[str, str] = {}
    while reader.at < end:
        key = reader.text(_SHORT_LENGTH)
        fields[key] = reader.text(_LENGTH)
    if reader.at != end:
        raise WireError(f"the header of {what} has a field after the end of its fields")
    number = head.language
    language = LANGUAGES[number] if 0 <= number < len(LANGUAGES) else OTHER
    return Command(
        head.code, head.opaque, head.flag, fields, body, remark, language, head.version,
        HeaderForm.ROCKETMQ,
    )  # fmt: skip


class _BinaryReader:
    """Reads a header from its start; every length is checked first."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.at = 0

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes.

        Raises:
            WireError: fewer bytes are left.
        """
        left = len(self._data) - self.at
        if not 0 <= size <= left:
            raise WireError(
                f"invalid length in the header of {self._what}",
                expected=f"0 to {left} bytes", got=size,
            )  # fmt: skip
        self.at += size
        return self._data[self.at - size : self.at]

    def length(self, kind: Struct) -> int:
        """Return a length that the bytes after it have."""
        size = int(kind.unpack(self.take(kind.size))[0])
        self.take(size)
        self.at -= size
        return size

    def text(self, kind: Struct) -> str:
        """Return the next text; like Java, with a replacement for bytes that are not UTF-8."""
        return self.take(self.length(kind)).decode("utf-8", "replace")


def _to_binary(command: Command) -> bytes:
    language = LANGUAGES.index(command.language)
    code = command.code if command.code in _SHORTS else 1  # SYSTEM_ERROR: no short is greater
    head = BINARY_HEADER.pack(
        BinaryHeader(code, language, command.version, command.opaque, command.flag)
    )
    remark, fields = command.remark.encode("utf-8", "replace"), _binary_fields(command.fields)
    return b"".join((head, _LENGTH.pack(len(remark)), remark, _LENGTH.pack(len(fields)), fields))


def _binary_fields(fields: Mapping[str, str]) -> bytes:
    parts: list[bytes] = []
    for key, value in fields.items():
        name, text = key.encode(), value.encode("utf-8", "replace")
        parts += (_SHORT_LENGTH.pack(len(name)), name, _LENGTH.pack(len(text)), text)
    return b"".join(parts)
