"""The wire under a controller: hand-made bytes, cut anywhere; what no master sends is refused."""

import random
import struct

import pytest

from cqstore.replication.epoch_wire import (
    EPOCH_ENTRY,
    MASTER_HANDSHAKE,
    SLAVE_HANDSHAKE,
    SLAVE_REPORT,
    TRANSFER_HEAD,
    EpochEntry,
    SlaveHandshake,
    SlaveReport,
    TransferHead,
    TransferParser,
    is_slave_handshake,
    parse_epochs,
    parse_handshake,
    refuse_other_answer,
)
from cqstore.replication.errors import WireError
from cqstore.replication.follow.epochs import Agreed, EpochHistory, agreed
from cqstore.replication.wire import Piece
from tests.kit.epoch_master import ANSWER, answer, frame

HELLO = bytes.fromhex("00000001 0000 0001 0000000000000063")
REPORT = bytes.fromhex("00000002 0000000000000065")
ANSWERED = bytes.fromhex(
    "00000001 00000018 00000000000000c8 0000000400000003 0000000000000000 00000004 0000000000000064"
)
BODY = bytes.fromhex(
    "00000002 00000003 0000000000000065 00000004 0000000000000064 00000000000000c8 daa320"
)
EPOCHS = [EpochEntry(3, 0), EpochEntry(4, 100), EpochEntry(6, 300)]


def test_each_frame_is_the_bytes_that_rocketmq_sends() -> None:
    assert SLAVE_HANDSHAKE.pack(SlaveHandshake(1, 0, 1, 99)) == HELLO
    assert SLAVE_REPORT.pack(SlaveReport(2, 101)) == REPORT
    head = parse_handshake(ANSWERED[:20])
    assert (head.max_phy_offset, head.last_epoch, head.size) == (200, 4, 24)
    assert parse_epochs(head, ANSWERED[20:]) == EPOCHS[:2]
    heads: list[TransferHead] = []
    parser = TransferParser(heads.append)
    assert list(parser.feed(BODY)) == [Piece(101, b"\xda\xa3\x20")]
    assert heads == [TransferHead(2, 3, 101, 4, 100, 200)]
    sizes = [each.size for each in (SLAVE_HANDSHAKE, SLAVE_REPORT, MASTER_HANDSHAKE, EPOCH_ENTRY)]
    assert [*sizes, TRANSFER_HEAD.size] == [16, 12, 20, 12, 36]
    assert (answer([(3, 0), (4, 100)], 200), frame(101, (4, 100), BODY[36:], 200)) == (
        ANSWERED, BODY,
    )  # fmt: skip


def test_a_master_without_a_file_sends_heartbeats_from_nowhere() -> None:
    parser = TransferParser(EpochHistory([EpochEntry(1, 0)]).enter)
    assert list(parser.feed(frame(-1, (1, 0)))) == [Piece(0, b"")]
    with pytest.raises(WireError, match="invalid phy offset"):
        list(parser.feed(frame(-1, (1, 0), b"x")))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ANSWER.pack(2, 0, 0, -1), "expected state 1, found state 2"),
        (b"HTTP/1.1 400 Bad Request", "the bytes are text"),
        (ANSWER.pack(1, 13, 0, -1), "found 13 bytes"),
        (ANSWER.pack(1, -12, 0, -1), "found -12 bytes"),
        (ANSWER.pack(1, 12012, 0, -1), "0 to 1000 epochs of 12 bytes, found 12012"),
        (ANSWER.pack(1, 0, -1, -1), "invalid end of the log"),
        (answer([(3, 0), (3, 100)], 200), "3 from 100 follows 3 from 0"),
        (answer([(3, 50), (4, 50)], 200), "epochs do not increase"),
        (answer([(-3, 50)], 200), "epochs do not increase"),
        (answer([(-1, 50)], 200), "epochs do not increase: -1 from 50"),
        (answer([(0, -1)], 200), "epochs do not increase: 0 from -1"),
        (answer([(3, 0), (4, 201)], 200), "epoch 4 begins after the end of its log"),
        (answer([(3, 0)], 9)[:16] + answer([(4, 0)], 9)[16:20] + answer([(3, 0)], 9)[20:],
         "expected 3, found 4"),
    ],
)  # fmt: skip
def test_a_handshake_that_no_master_sends_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_epochs(parse_handshake(data[:20]), data[20:])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("at", "epoch", "size"),
    [
        (0, (3, 0), 100), (60, (4, 100), 40), (100, (4, 100), 200), (299, (6, 300), 1),
        (300, (6, 300), 4000), (500, (7, 500), 9), (490, (7, 500), 10), (500, (7, 500), 0),
        (100, (4, 100), 0), (40, (6, 300), 0), (500, (3, 0), 0),
    ],
)  # fmt: skip
def test_frames_within_their_epochs_are_taken(at: int, epoch: tuple[int, int], size: int) -> None:
    """Its last bytes may name the next epoch, and a heartbeat for lost bytes any that there is."""
    parser = TransferParser(EpochHistory(EPOCHS).enter)
    assert [len(piece.data) for piece in parser.feed(frame(at, epoch, bytes(size)))] == [size]


@pytest.mark.parametrize(
    ("at", "epoch", "size", "words"),
    [
        (99, (3, 0), 2, "crosses the end of the epoch (phy_offset 99): expected bytes up to 100"),
        (50, (4, 100), 51, "of another epoch (phy_offset 50): expected bytes from 100, or from"),
        (50, (4, 100), 49, "found bytes from 50 to 99"),
        (99, (6, 300), 201, "from 300, or from 100 to there, found bytes from 99 to 300"),
        (100, (3, 100), 5, "a frame has an unknown epoch"),
        (100, (5, 100), 5, "up to 6 from 300, or a later one that begins at 100 or 105"),
        (500, (7, 501), 0, "found 7 from 501"),
        (300, (7, 300), 9, "found 7 from 300"),
        (500, (-1, 500), 9, "found -1 from 500"),
    ],
)
def test_frames_of_other_epochs_are_refused(
    at: int, epoch: tuple[int, int], size: int, words: str
) -> None:
    parser = TransferParser(EpochHistory(EPOCHS).enter)
    with pytest.raises(WireError) as caught:
        list(parser.feed(frame(at, epoch, bytes(size))))
    assert words in str(caught.value)


def test_a_frame_may_name_an_epoch_that_began_since_the_handshake_once() -> None:
    course = EpochHistory(EPOCHS[:1])
    parser = TransferParser(course.enter)
    sent = [frame(0, (3, 0), bytes(40)), frame(40, (5, 60), bytes(20)), frame(60, (5, 60), b"x")]
    assert [piece.phy_offset for data in sent for piece in parser.feed(data)] == [0, 40, 60]
    with pytest.raises(WireError, match="crosses the end of the epoch"):
        list(parser.feed(frame(50, (3, 0), bytes(11))))


def test_bytes_before_the_first_epoch_come_with_it() -> None:
    parser = TransferParser(EpochHistory([EpochEntry(1, 100), EpochEntry(2, 200)]).enter)
    for at, size in ((0, 50), (50, 100), (150, 50)):
        assert [len(piece.data) for piece in parser.feed(frame(at, (1, 100), bytes(size)))]


# ---- where two logs agree


def modelled(
    own: list[EpochEntry], own_end: int, theirs: list[EpochEntry], their_end: int
) -> tuple[EpochEntry, int] | None:
    """RocketMQ's ``findConsistentPoint``, byte by byte: whose epoch is each byte of either log?"""
    common = [entry for entry in own if entry in theirs and entry.start_offset <= own_end]
    if not common:
        return None

    def end_of(entries: list[EpochEntry], log_end: int) -> int:
        later = [each for each in entries if each.epoch > common[-1].epoch]
        starts = [each.start_offset for each in later if each.start_offset <= log_end]
        return min([log_end, *starts])

    return common[-1], min(end_of(own, own_end), end_of(theirs, their_end))


def test_logs_agree_where_rocketmq_says() -> None:
    assert agreed(EPOCHS, 350, EPOCHS, 400) == Agreed(EPOCHS, 350)
    assert agreed(EPOCHS, 350, EPOCHS[:2], 250) == Agreed(EPOCHS[:2], 250)
    assert agreed(EPOCHS[:2], 250, [*EPOCHS[:1], EpochEntry(5, 80)], 90) == Agreed(EPOCHS[:1], 80)
    assert agreed(EPOCHS[:2], 70, EPOCHS, 400) == Agreed(EPOCHS[:1], 70)
    assert agreed(EPOCHS[1:], 250, EPOCHS[:1], 250) is None
    draw = random.Random(3)
    for _ in range(2000):
        logs = []
        for _ in range(2):
            numbers = sorted(draw.sample(range(6), draw.randint(0, 4)))
            starts = [0, *sorted(draw.sample(range(1, 8), 5))]
            entries = [EpochEntry(*each) for each in zip(numbers, starts, strict=False)]
            logs.append((entries, max(draw.randint(0, 9), 0)))
        (own, own_end), (theirs, their_end) = logs
        their_end = max([their_end, *(entry.start_offset for entry in theirs)])
        found = agreed(own, own_end, theirs, their_end)
        wanted = modelled(own, own_end, theirs, their_end)
        assert (found and (found.kept[-1], found.end)) == wanted


def test_an_answer_that_was_cut_is_told_from_that_of_a_master_without_a_controller() -> None:
    for count in (1, 2, 7, 43, 999):  # sizes whose bytes mean another size when they are cut
        whole = answer([(number + 1, number * 100) for number in range(count)], 1 << 40)
        for cut in range(ANSWER.size):
            refuse_other_answer(whole[:cut])
    heartbeats = [0, 32768, (1 << 32) - 1, (1 << 32) + 282, (1 << 33) - 4, 1 << 33, 1 << 45]
    for end in heartbeats:
        with pytest.raises(WireError, match="Any other is followed without --controller"):
            refuse_other_answer(struct.pack(">qi", end, 0))


def test_a_handshake_is_told_from_reports() -> None:
    assert is_slave_handshake(HELLO)
    assert not is_slave_handshake(HELLO[:15])
    for first, second in ((1, 1), (4096, 8192), (2**32 + 1, 2**32 + 1), (2**32 + 1, 2**33)):
        assert not is_slave_handshake(struct.pack(">qq", first, second))
