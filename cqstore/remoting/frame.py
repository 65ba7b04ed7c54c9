"""The frame of every command, and a reader that splits received bytes into commands.

A frame is a fixed-size head, a header, and a body. No memory is taken for what a head announces:
the reader keeps the bytes that were received, and refuses a head that announces too much.

Source: RocketMQ ``NettyDecoder``, ``RemotingCommand``.
"""

from dataclasses import dataclass

from cqstore.remoting.command import Command
from cqstore.remoting.errors import WireError
from cqstore.remoting.header import decode_header, encode_header
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire

_TYPE_BITS = 24
_HEADER_BITS = (1 << _TYPE_BITS) - 1


class CommandHead(NamedTuple):
    """The fixed-size start of every command."""

    size: Annotated[int, Wire("i", "bytes that follow this field")]
    header: Annotated[
        int, Wire("i", "highest byte: header form (0: JSON, 1: ROCKETMQ); others: header size")
    ]


COMMAND_HEAD = Layout(CommandHead)
_HTTP2 = int.from_bytes(b"PRI ", "big")
"""First bytes of each connection in HTTP/2."""
_REST = COMMAND_HEAD.size - COMMAND_HEAD.offset("header")
"""Number of bytes of the head that ``size`` includes."""


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """Maximum sizes, in bytes, and words for errors."""

    what: str
    """The received command, as in "a request"."""
    hint: str = ""
    """End of the error for a head that no peer sends."""
    frame: int = 64 << 20
    header: int = 1 << 20
    body: int = 64 << 20
    """A larger body, in a frame of a valid size, is read past and not kept."""


def encode(command: Command, body_size: int | None = None) -> bytes:
    """Return the bytes of ``command``; with ``body_size``, without the body that follows."""
    header = encode_header(command)
    size = len(command.body) if body_size is None else body_size
    head = CommandHead(_REST + len(header) + size, command.form << _TYPE_BITS | len(header))
    parts = (COMMAND_HEAD.pack(head), header, command.body if body_size is None else b"")
    return b"".join(parts)


class CommandReader:
    """Splits received bytes, in pieces of any size, into commands. One task or thread.

    It keeps at most one partial command and what ``feed`` was given after it.
    """

    def __init__(self, limits: FrameLimits) -> None:
        """Begin with the first byte of a connection."""
        self._limits = limits
        self._data = bytearray()
        self._skips = 0  # bytes of a body that are still to be read past
        self._skipping: Command | None = None  # its command

    @property
    def kept_bytes(self) -> int:
        """Return the number of bytes that are in memory."""
        return len(self._data)

    @property
    def is_between(self) -> bool:
        """Return whether no part of a command was received that is not complete."""
        return not self._data and self._skipping is None

    def feed(self, data: bytes) -> None:
        """Add received bytes; call ``next_command`` until there is none."""
        self._data += data

    def next_command(self) -> Command | None:
        """Return the next complete command; ``None``: bytes are missing.

        Raises:
            WireError: the bytes are not a command; the connection cannot be used any more.
        """
        if self._skipping is not None:
            return self._skip()
        data = self._data
        if len(data) < COMMAND_HEAD.size:
            return None
        size, form, header_size = self._checked(COMMAND_HEAD.unpack_from(data))
        begin = COMMAND_HEAD.size + header_size
        body_size = size - _REST - header_size
        keeps = body_size <= self._limits.body
        if len(data) < begin + (body_size if keeps else 0):
            return None
        header, end = bytes(data[COMMAND_HEAD.size : begin]), begin + body_size
        body = bytes(data[begin:end]) if keeps else b""
        command = decode_header(form, header, self._limits.what, body)
        if keeps:
            del data[:end]
            return command
        del data[:begin]
        self._skips, self._skipping = body_size, command._replace(skipped=body_size)
        return self._skip()

    def _skip(self) -> Command | None:
        """Read past the body of a command; return the command at its end."""
        skipped = min(self._skips, len(self._data))
        del self._data[:skipped]
        self._skips -= skipped
        if self._skips:
            return None
        command, self._skipping = self._skipping, None
        return command

    def _checked(self, head: CommandHead) -> tuple[int, int, int]:
        """Return the frame's size, the header's form and the header's size.

        Raises:
            WireError: no peer sends such a head.
        """
        limits, size = self._limits, head.size
        if size == _HTTP2:
            raise WireError(f"{self._limits.what} in HTTP/2: gRPC is not supported")
        if not _REST <= size <= limits.frame:
            raise self._impossible("size", f"{_REST} to {limits.frame}", size)
        form, header_size = head.header >> _TYPE_BITS & 0xFF, head.header & _HEADER_BITS
        if form > 1:
            raise self._impossible("header form", "0 (JSON) or 1 (ROCKETMQ)", form)
        limit = min(size - _REST, limits.header)
        if header_size > limit:
            raise self._impossible("header size", f"at most {limit}", header_size)
        return size, form, header_size

    def _impossible(self, what: str, expected: str, got: int) -> WireError:
        return WireError(
            f"invalid {what} in {self._limits.what}{self._limits.hint}", expected=expected, got=got
        )
