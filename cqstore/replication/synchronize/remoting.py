"""The remoting protocol, defined once: commands from a client, and responses of a broker.

A command is a fixed-size head, a header in JSON, and a body. The header contains a code, a number
that the response repeats, and fields; the code determines the body. A broker responds in the
encoding of the request, JSON here.

Source: RocketMQ ``RemotingCommand``, ``NettyDecoder``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from cqstore.replication.errors import WireError
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire

MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of one command. RocketMQ's own clients accept 16 MiB by default."""
_MAX_HEADER_BYTES = 1 << 20
_JSON = 0
_TYPE_BITS = 24
_IS_ANSWER = 1
_INT = range(-(1 << 31), 1 << 31)
_LANGUAGE = "OTHER"


class CommandHead(NamedTuple):
    """The fixed-size start of every command."""

    size: Annotated[int, Wire("i", "bytes that follow this field")]
    header: Annotated[
        int, Wire("i", "highest byte: header form (0: JSON); others: header size, bytes")
    ]


COMMAND_HEAD = Layout(CommandHead)
_REST = COMMAND_HEAD.size - COMMAND_HEAD.offset("header")
"""Number of bytes of the head that ``size`` includes."""


@dataclass(frozen=True, slots=True)
class Response:
    """A broker's response to one request."""

    opaque: int
    """The number of the request."""
    code: int
    """0: success."""
    remark: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def question(code: int, opaque: int, fields: Mapping[str, str]) -> bytes:
    """Return the bytes of a request without a body."""
    header = json.dumps(
        {"code": code, "language": _LANGUAGE, "version": 0, "opaque": opaque, "flag": 0,
         "extFields": fields}
    ).encode()  # fmt: skip
    return COMMAND_HEAD.pack(CommandHead(_REST + len(header), len(header))) + header


class ResponseParser:
    """Parses the bytes from a broker, in pieces of any size; keeps at most one partial command."""

    def __init__(self, max_bytes: int = MAX_ANSWER_BYTES) -> None:
        """Begin with the first byte of a connection; a command above ``max_bytes`` is refused."""
        self._limit = max_bytes
        self._kept = bytearray()
        self._wanted = COMMAND_HEAD.size

    def feed(self, data: bytes) -> Iterator[Response]:
        """Yield the complete responses; requests from the broker to its client are skipped.

        Raises:
            WireError: the bytes are not from a broker; the connection cannot be used any more.
        """
        at = 0
        while at < len(data):
            part = data[at : at + self._wanted - len(self._kept)]
            self._kept += part
            at += len(part)
            if len(self._kept) < self._wanted:
                return
            if self._wanted == COMMAND_HEAD.size:
                self._wanted = self._whole(bytes(self._kept))
            if len(self._kept) == self._wanted:
                command = bytes(self._kept)
                self._kept, self._wanted = bytearray(), COMMAND_HEAD.size
                answer = _answer(command)
                if answer is not None:
                    yield answer

    def _whole(self, head: bytes) -> int:
        """Return the size of the command that begins with ``head``."""
        size, header = COMMAND_HEAD.unpack_from(head)
        if not _REST <= size <= self._limit:
            raise _impossible("size", f"{_REST} to {self._limit}", size)
        form, header_bytes = header >> _TYPE_BITS, header & ((1 << _TYPE_BITS) - 1)
        if form != _JSON:
            raise _impossible("header form", f"{_JSON} (JSON)", form)
        limit = min(size - _REST, _MAX_HEADER_BYTES)
        if header_bytes > limit:
            raise _impossible("header size", f"at most {limit}", header_bytes)
        return COMMAND_HEAD.size - _REST + size


def _impossible(what: str, expected: str, got: int) -> WireError:
    return WireError(
        f"invalid {what} in a broker's response: is this the broker's listenPort?",
        expected=expected, got=got,
    )  # fmt: skip


def _answer(command: bytes) -> Response | None:
    """Return ``command`` as a response; ``None`` if it is a request."""
    size = COMMAND_HEAD.unpack_from(command).header
    behind = COMMAND_HEAD.size + size
    try:
        header = broker_object(command[COMMAND_HEAD.size : behind])
    except ValueError as exc:
        raise WireError(f"the header of a broker's response is not valid JSON: {exc}") from exc
    flag, fields = header.get("flag"), header.get("extFields") or {}
    code, opaque, remark = header.get("code"), header.get("opaque"), header.get("remark") or ""
    if not (_is_int(flag) and _is_int(code) and _is_int(opaque)):
        raise WireError("the header of a broker's response has no valid code, opaque or flag")
    if not isinstance(remark, str) or not _is_text_table(fields):
        raise WireError(
            "the header of a broker's response has a remark or fields that are not strings"
        )
    if not flag & _IS_ANSWER:
        return None
    return Response(opaque, code, remark, fields, command[behind:])


def _is_int(value: object) -> TypeGuard[int]:
    return type(value) is int and value in _INT


def _is_text_table(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
