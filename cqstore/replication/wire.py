"""The default replication protocol: the frames of master and slave, each layout defined once.

A connection has no handshake. The slave sends first: it reports where it wants to begin, and later
up to where it has the log. The master sends frames, each a header and a range of bytes of its log;
a frame without bytes is a heartbeat. A frame may begin and end inside a record.

Source: RocketMQ ``DefaultHAClient``, ``DefaultHAConnection``.
"""

from collections.abc import Iterable, Iterator

from cqstore.replication.errors import WireError
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire

MAX_BODY_BYTES = 4 << 20
"""Maximum size of a frame's body: the buffer size of RocketMQ's slave."""
MAX_PHY_OFFSET = LONG_MAX


class Report(NamedTuple):
    """Frame of a slave: the phy offset up to which it has the log, or from which it wants it."""

    phy_offset: Annotated[
        int, Wire("q", "first report: where to begin; later: end of the slave's log")
    ]


class FrameHead(NamedTuple):
    """Header that the master sends before each range of bytes of its log."""

    phy_offset: Annotated[int, Wire("q", "log position of these or the next bytes")]
    size: Annotated[int, Wire("i", "bytes that follow; 0: heartbeat")]


class Piece(NamedTuple):
    """A range of bytes of the master's log: the part of a frame that was received at once."""

    phy_offset: int
    data: bytes
    """Empty if and only if this is a heartbeat."""


REPORT = Layout(Report)
FRAME_HEAD = Layout(FrameHead)


class FrameParser:
    """Parser for the frames of a master, in pieces of any size; keeps at most a partial header.

    A protocol with a different header overrides ``head_size`` and ``begin``.
    """

    head_size = FRAME_HEAD.size

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        """Begin with the first byte of a connection; a larger body is refused."""
        self._limit = max_body_bytes
        self._head = b""
        self._at = 0
        self.frames = 0
        """Number of frames that were received completely."""
        self._left = 0  # bytes of the body that are still missing

    def feed(self, data: bytes) -> Iterable[Piece]:
        """Return the pieces in ``data``. Iterate over all of them before the next call.

        Raises:
            WireError: a header that no master sends, in this call or in the iteration; the
                connection cannot be used any more.
        """
        head_size = self.head_size
        if self._left or self._head or len(data) <= head_size:
            return self._pieces(data, 0)
        head = self.begin(data[:head_size])
        if head.size != len(data) - head_size:
            return self._pieces(data, head_size, head)
        self.frames += 1  # fast path: exactly one frame, as when a master sends put by put
        return (Piece(head.phy_offset, data[head_size:]),)

    def _pieces(self, data: bytes, at: int, head: FrameHead | None = None) -> Iterator[Piece]:
        """Yield the pieces in ``data`` from index ``at`` on, after ``head`` if it is given."""
        while at < len(data) or head is not None:
            if head is not None:
                self._at, self._left = head
                head = None
                if not self._left:
                    self.frames += 1
                    yield Piece(self._at, b"")
            elif self._left:
                part = data[at : at + self._left]
                yield Piece(self._at, part)
                self._at += len(part)
                self._left -= len(part)
                self.frames += not self._left
                at += len(part)
            else:
                wanted = self.head_size - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if len(self._head) == self.head_size:
                    head = self.begin(self._head)
                    self._head = b""

    def begin(self, head: bytes) -> FrameHead:
        """Return phy offset and size of the body that follows the header ``head``.

        Raises:
            WireError: a header that no master sends.
        """
        return self.possible(FRAME_HEAD.unpack_from(head))

    def possible(self, head: FrameHead) -> FrameHead:
        """Return ``head`` if its size and phy offset are valid.

        Raises:
            WireError: the size or the phy offset is invalid.
        """
        if not 0 <= head.size <= self._limit:
            # The size may be text, like the start of a command or of HTTP.
            hint = hint_at_text(FRAME_HEAD.pack(head)[FRAME_HEAD.offset("size") :])
            raise WireError(
                f"a frame header has an invalid size{hint}",
                phy_offset=head.phy_offset, expected=f"0 to {self._limit} bytes",
                got=f"{head.size} bytes",
            )  # fmt: skip
        limit = MAX_PHY_OFFSET - head.size
        if not 0 <= head.phy_offset <= limit:
            raise WireError(
                "a frame header has an invalid phy offset",
                expected=f"0 to {limit}", got=head.phy_offset,
            )  # fmt: skip
        return head


def outside_log(requested: int, piece: Piece) -> str:
    """Return what a first heartbeat at another offset than ``requested`` means; else "".

    A cqstore feed sends such a heartbeat if its log does not have the requested offset. RocketMQ's
    master repeats the requested offset, and its slave ends a connection with another one.

    Source: RocketMQ ``DefaultHAClient.dispatchReadRequest``.
    """
    if piece.data or piece.phy_offset == requested:
        return ""
    end = "begins" if piece.phy_offset > requested else "ends"
    return f"the master has no byte at {requested}: its log {end} at {piece.phy_offset}"


def hint_at_text(signs: bytes) -> str:
    """Return a hint if the bytes that should be a number are text."""
    is_text = signs.isascii() and signs.decode().isprintable()
    return ": the bytes are text. Is this the master's replication port (haListenPort)?" * is_text
