"""The default replication wire: what master and slave send each other, each frame declared once.

A connection has no handshake. The slave begins: it reports where it wants to begin, and later how
far it has come. The master sends frames, each a head and as many bytes of its log; one without
bytes is a heartbeat. A frame may begin and end inside a record.

Source: RocketMQ ``DefaultHAClient``, ``DefaultHAConnection``.
"""

from collections.abc import Iterable, Iterator

from cqstore.replication.errors import WireError
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire

MAX_BODY_BYTES = 4 << 20
"""Of one frame: RocketMQ's slave has a buffer of this size, so no master may send more."""
MAX_PHY_OFFSET = LONG_MAX


class Report(NamedTuple):
    """What a slave sends: how far it has the log, or from where it wants it."""

    phy_offset: Annotated[
        int, Wire("q", "first report: where to begin; later: end of the slave's log")
    ]


class FrameHead(NamedTuple):
    """What a master sends before each run of bytes of its log."""

    phy_offset: Annotated[int, Wire("q", "log position of these or the next bytes")]
    size: Annotated[int, Wire("i", "bytes that follow; 0: heartbeat")]


class Piece(NamedTuple):
    """A run of bytes of the master's log, as much of a frame as came at once."""

    phy_offset: int
    data: bytes
    """Empty: a heartbeat, and nothing else is."""


REPORT = Layout(Report)
FRAME_HEAD = Layout(FrameHead)


class FrameParser:
    """Takes what a master sends, cut anywhere; keeps at most a part of a head.

    A wire with another head overrides ``head_size`` and ``begin``.
    """

    head_size = FRAME_HEAD.size

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        """Begin with the first byte of a connection; a larger body than that is refused."""
        self._limit = max_body_bytes
        self._head = b""
        self._at = 0
        self.frames = 0
        """That have ended."""
        self._left = 0  # bytes of the body that are still to come

    def feed(self, data: bytes) -> Iterable[Piece]:
        """Return what ``data`` brings; to be read to its end before more is fed.

        Raises:
            WireError: a head that no master sends, here or as the pieces are read; nothing of the
                connection is of use behind it.
        """
        head_size = self.head_size
        if self._left or self._head or len(data) <= head_size:
            return self._pieces(data, 0)
        head = self.begin(data[:head_size])
        if head.size != len(data) - head_size:
            return self._pieces(data, head_size, head)
        self.frames += 1  # one frame, as they come where a master sends put by put
        return (Piece(head.phy_offset, data[head_size:]),)

    def _pieces(self, data: bytes, at: int, head: FrameHead | None = None) -> Iterator[Piece]:
        """Yield what comes from ``at`` on, behind ``head`` if there is one."""
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
        """Return where the body lies whose head has come, and its size.

        Raises:
            WireError: a head that no master sends.
        """
        return self.possible(FRAME_HEAD.unpack_from(head))

    def possible(self, head: FrameHead) -> FrameHead:
        """Return ``head``, whose size and place a frame may have.

        Raises:
            WireError: none has them.
        """
        if not 0 <= head.size <= self._limit:
            raise WireError(
                f"a frame header has an invalid size{_hint(head)}",
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
    """Return what the first heartbeat says, if it is at another offset than was asked for; else "".

    A feed of ours answers so where its log does not have that offset. RocketMQ's master repeats
    the offset, and its slave ends a connection in which another one comes.

    Source: RocketMQ ``DefaultHAClient.dispatchReadRequest``.
    """
    if piece.data or piece.phy_offset == requested:
        return ""
    end = "begins" if piece.phy_offset > requested else "ends"
    return f"the master has no byte at {requested}: its log {end} at {piece.phy_offset}"


def _hint(head: FrameHead) -> str:
    """Return what to say of a size that is text, as that of a command or of HTTP would be."""
    return hint_at_text(FRAME_HEAD.pack(head)[FRAME_HEAD.offset("size") :])


def hint_at_text(signs: bytes) -> str:
    """Return what to say of bytes in the place of a number, if they are text."""
    is_text = signs.isascii() and signs.decode().isprintable()
    return ": the bytes are text. Is this the master's replication port (haListenPort)?" * is_text
