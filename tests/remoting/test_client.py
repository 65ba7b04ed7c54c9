"""What a broker sends to a client, cut anywhere, and what no broker sends."""

import json
import random
import struct
from contextlib import suppress

import pytest

from cqstore.remoting.command import Command
from cqstore.remoting.errors import WireError
from cqstore.remoting.frame import CommandReader, encode
from cqstore.replication.errors import BrokerError
from cqstore.replication.synchronize.broker_client import RESPONSE_LIMITS
from cqstore.replication.synchronize.broker_requests import TOPICS, _read_page
from cqstore.replication.wire import FrameParser
from tests.kit.log_bytes import pieces
from tests.kit.mutations import bounded
from tests.kit.wire_broker import WireBroker, command
from tests.kit.wire_master import frame

HEADER = {"code": 0, "flag": 1, "opaque": 7, "language": "JAVA", "version": 0}


def answers(reader: CommandReader, data: bytes) -> list[Command]:
    reader.feed(data)
    return list(iter(reader.next_command, None))


def test_a_question_is_what_rocketmq_reads() -> None:
    sent = encode(Command(21, 5, fields={"topicSeq": "0"}))
    size, header = struct.unpack_from(">iI", sent)
    assert (size, header) == (len(sent) - 4, len(sent) - 8)
    assert json.loads(sent[8:]) == {
        "code": 21, "language": "OTHER", "version": 0, "opaque": 5, "flag": 0,
        "extFields": {"topicSeq": "0"},
    }  # fmt: skip


@pytest.mark.parametrize("cut", [1, 3, 7, 8, 1000])
def test_answers_come_whole_however_they_are_cut(cut: int) -> None:
    sent = WireBroker.say(7, b"body", fields={"a": "b"}) + WireBroker.say(8, code=3, remark="no")
    reader = CommandReader(RESPONSE_LIMITS)
    found = [
        answer for at in range(0, len(sent), cut) for answer in answers(reader, sent[at : at + cut])
    ]
    assert [(each.opaque, each.code, each.remark, each.fields, each.body) for each in found] == [
        (7, 0, "", {"a": "b"}, b"body"), (8, 3, "no", {}, b""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (
            struct.pack(">iI", 3, 0),
            "invalid size in a broker's response: is this the broker's listenPort?: expected 4 to"
            " 67108864",
        ),
        (struct.pack(">iI", -1, 0), "found -1"),
        (struct.pack(">iI", (64 << 20) + 1, 4), "found 67108865"),
        (struct.pack(">iI", 100, 97), "invalid header size"),
        (struct.pack(">iI", 2 << 20, (1 << 20) + 1), "at most 1048576, found 1048577"),
        (struct.pack(">iI", 100, 2 << 24 | 10), "invalid header form in a broker's response"),
        (b"HTTP/1.1 400 Bad Request", "found 1213486160"),
        (command(b"{"), "not valid JSON"),
        (command(b"[1]"), "expected a name in quotes"),
        (command(b"\xff{}"), "not valid JSON"),
        (command(b'{"a":' + b"[" * 100_000), "not valid JSON: a: it is nested too deeply"),
        (command({**HEADER, "flag": None}), "no valid code, opaque or flag"),
        (command({**HEADER, "opaque": True}), "no valid code"),
        (command({**HEADER, "code": 1 << 31}), "no valid code"),
        (command({**HEADER, "remark": 5}), "not strings"),
        (command({**HEADER, "extFields": {"a": [1]}}), "not strings"),
        (command({**HEADER, "extFields": "a"}), "not strings"),
    ],
)  # fmt: skip
def test_what_no_broker_sends_is_refused(sent: bytes, words: str) -> None:
    with pytest.raises(WireError) as caught:
        answers(CommandReader(RESPONSE_LIMITS), sent)
    assert words in str(caught.value)


def spoilt(draw: random.Random, good: bytes) -> bytes:
    """Return ``good`` with some bytes changed, cut out, doubled, or nothing but noise."""
    data = bytearray(good)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0:
                data[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del data[at : at + draw.randint(1, 20)]
            case 2:
                data[at:at] = data[: draw.randint(1, 60)]
            case 3:
                data[at : at + 4] = draw.choice(
                    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"]
                )
            case _:
                data[at:at] = draw.randbytes(draw.randint(1, 30))
    return bytes(data)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_spoilt_streams_are_refused_by_our_errors_alone(count: int) -> None:
    draw, refused, whole = random.Random(5), 0, 0
    body = b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"t":{"topicName":"t"}}}'
    good = [WireBroker.say(at, body, fields={"totalTopicNum": "1"}) for at in range(3)]
    with bounded(seconds=600):
        for _ in range(count):
            stream, reader = spoilt(draw, b"".join(good)), CommandReader(RESPONSE_LIMITS)
            try:
                for part in pieces(stream, draw.randint(1, 200), draw.randrange(1 << 30)):
                    for answer in answers(reader, part):
                        whole += 1
                        with suppress(BrokerError):
                            _read_page(TOPICS, answer)
                    assert reader.kept_bytes <= len(stream)
            except WireError:
                refused += 1
    assert refused > count // 2
    assert whole > count // 2


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_spoilt_frames_are_refused_by_our_errors_alone(count: int) -> None:
    draw, refused, pieces_in = random.Random(6), 0, 0
    good = frame(0, b"x" * 300) + frame(300) + frame(300, b"y" * 100)
    with bounded(seconds=600):
        for _ in range(count):
            stream, parser = spoilt(draw, good), FrameParser()
            try:
                for part in pieces(stream, draw.randint(1, 200), draw.randrange(1 << 30)):
                    received = list(parser.feed(part))
                    pieces_in += len(received)
                    assert sum(len(piece.data) for piece in received) <= len(part)
                    assert len(parser._head) < 12
            except WireError:
                refused += 1
    assert refused > count // 8
    assert pieces_in > count


def test_memory_grows_with_what_came_and_not_with_what_is_announced() -> None:
    reader = CommandReader(RESPONSE_LIMITS)
    assert answers(reader, struct.pack(">iI", 60 << 20, 200) + b"x" * 100) == []
    assert reader.kept_bytes == 108
