"""The replication wire: hand-made bytes, cut anywhere; what no master sends is refused."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.replication.errors import WireError
from cqstore.replication.wire import (
    FRAME_HEAD,
    MAX_BODY_BYTES,
    REPORT,
    FrameHead,
    FrameParser,
    Piece,
    Report,
)

REPORTED = bytes.fromhex("0000000000000065")
BODY = bytes.fromhex("0000000000000065 00000003 daa320")
HEARTBEAT = bytes.fromhex("0000000000000068 00000000")
FRAMES = st.lists(
    st.tuples(st.integers(0, (1 << 63) - 101), st.binary(max_size=100)), max_size=8
)  # fmt: skip


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    """Yield ``data`` in parts that end at ``places``, of which any may be beyond its end."""
    start = 0
    for place in sorted(places):
        yield data[start:place]
        start = max(start, min(place, len(data)))
    yield data[start:]


def joined(pieces: list[Piece]) -> list[Piece]:
    """Return ``pieces`` as runs: those that follow each other as one, but for heartbeats."""
    runs: list[Piece] = []
    for piece in pieces:
        last = runs[-1] if runs else Piece(-1, b"")
        if last.data and piece.data and last.phy_offset + len(last.data) == piece.phy_offset:
            runs[-1] = Piece(last.phy_offset, last.data + piece.data)
        else:
            runs.append(piece)
    return runs


def test_each_frame_is_the_bytes_that_rocketmq_sends() -> None:
    assert REPORT.pack(Report(101)) == REPORTED
    assert FRAME_HEAD.pack(FrameHead(101, 3)) == BODY[:12]
    assert (REPORT.size, FRAME_HEAD.size) == (8, 12)
    parser = FrameParser()
    assert list(parser.feed(BODY + HEARTBEAT)) == [Piece(101, b"\xda\xa3\x20"), Piece(104, b"")]
    assert list(parser.feed(HEARTBEAT)) == [Piece(104, b"")]


def test_a_part_of_a_body_comes_at_once_and_a_part_of_a_head_waits() -> None:
    parser = FrameParser()
    assert list(parser.feed(BODY[:11])) == []
    assert list(parser.feed(BODY[11:13])) == [Piece(101, b"\xda")]
    assert list(parser.feed(BODY[13:] + HEARTBEAT[:1])) == [Piece(102, b"\xa3\x20")]
    assert list(parser.feed(HEARTBEAT[1:])) == [Piece(104, b"")]


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=40))
def test_cuts_change_nothing(frames: list[tuple[int, bytes]], places: list[int]) -> None:
    sent = b"".join(FRAME_HEAD.pack(FrameHead(at, len(data))) + data for at, data in frames)
    parser = FrameParser()
    pieces = [piece for part in cut(sent, places) for piece in parser.feed(part)]
    assert joined(pieces) == joined([Piece(*frame) for frame in frames])
    assert all(piece.data or (piece.phy_offset, b"") in frames for piece in pieces)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (FrameHead(7, -1), ["phy_offset 7", "0 to 4194304 bytes", "-1 bytes"]),
        (FrameHead(7, MAX_BODY_BYTES + 1), ["phy_offset 7", "4194305 bytes"]),
        (FrameHead(-1, 0), ["0 to 9223372036854775807", "found -1"]),
        (FrameHead((1 << 63) - 1, 1), ["0 to 9223372036854775806", "9223372036854775807"]),
    ],
)
@pytest.mark.parametrize("place", [1, 12, 27])
def test_a_head_that_no_master_sends_is_refused(
    head: FrameHead, words: list[str], place: int
) -> None:
    """Also behind a good frame, and cut in its middle."""
    parser, got = FrameParser(), list[Piece]()
    parts = cut(BODY + FRAME_HEAD.pack(head), [place])
    with pytest.raises(WireError) as caught:
        got.extend(piece for part in parts for piece in parser.feed(part))
    assert all(word in str(caught.value) for word in words), caught.value
    assert joined(got) == [Piece(101, b"\xda\xa3\x20")]


def test_the_largest_body_that_there_may_be_is_taken() -> None:
    parser, body = FrameParser(), b"\xff" * MAX_BODY_BYTES
    sent = FRAME_HEAD.pack(FrameHead((1 << 63) - 1 - len(body), len(body))) + body
    assert sum(len(piece.data) for piece in parser.feed(sent)) == MAX_BODY_BYTES


@given(st.binary(max_size=200))
def test_any_bytes_give_pieces_or_that_error(data: bytes) -> None:
    parser, taken = FrameParser(max_body_bytes=64), 0
    try:
        for byte in data:
            pieces = list(parser.feed(bytes([byte])))
            taken += sum(len(piece.data) for piece in pieces)
    except WireError:
        pass
    assert taken <= len(data)
