"""Commands in both forms of their header, from bytes made by hand; damaged ones are refused."""

import json
import random
import struct

import pytest

from cqstore.remoting.body import KeyedByObject, json_body
from cqstore.remoting.command import IS_RESPONSE, Command, HeaderForm
from cqstore.remoting.errors import WireError
from cqstore.remoting.frame import CommandReader, FrameLimits, encode
from tests.kit.log_bytes import pieces
from tests.kit.mutations import bounded
from tests.kit.remoting_client import BINARY, JSON, answer_in, asked, frame

LIMITS = FrameLimits("a request", "", 4096, 1024, 64)
FIELDS: dict[str, object] = {"topic": "t", "text": "é𝄞", "empty": ""}
BINARY_BYTES = bytes.fromhex(
    # size 47; form 1, header size 38
    "0000002f" "01000026"
    # code 11, language 9 (GO), version 401, opaque 7, flag 0
    "000b" "09" "0191" "00000007" "00000000"
    # remark "no"; fields of 15 bytes: "a" = "bc", "" = ""
    "00000002" "6e6f" "0000000f" "0001" "61" "00000002" "6263" "0000" "00000000"
    # body "hello"
    "68656c6c6f"
)  # fmt: skip


def commands(stream: bytes, cut: int = 1 << 20, limits: FrameLimits = LIMITS) -> list[Command]:
    reader, found = CommandReader(limits), []
    for at in range(0, len(stream), cut):
        reader.feed(stream[at : at + cut])
        while (command := reader.next_command()) is not None:
            found.append(command)
    return found


@pytest.mark.parametrize("form", [JSON, BINARY])
@pytest.mark.parametrize("cut", [1, 3, 7, 1000])
def test_a_request_comes_whole_in_either_form_however_it_is_cut(form: int, cut: int) -> None:
    sent = asked(11, 5, FIELDS, b"body", form) + asked(34, -6, {}, b"", form, flag=2)
    first, second = commands(sent, cut)
    assert (first.code, first.opaque, first.body, first.form) == (11, 5, b"body", form)
    assert first.fields == FIELDS
    assert (first.language, first.version) == ("JAVA", 477)
    assert (second.opaque, second.is_oneway, second.is_response, second.body) == (
        -6,
        True,
        False,
        b"",
    )


def test_the_binary_form_is_read_as_rocketmq_wrote_it() -> None:
    assert commands(BINARY_BYTES) == [
        Command(11, 7, 0, {"a": "bc", "": ""}, b"hello", "no", "GO", 401, HeaderForm.ROCKETMQ)
    ]


@pytest.mark.parametrize("form", list(HeaderForm))
def test_a_response_is_what_a_client_reads(form: HeaderForm) -> None:
    sent = encode(
        Command(22, 9, IS_RESPONSE, {"a": "b", "é": "\ud800"}, b"x" * 70, "none", form=form)
    )
    size, header = struct.unpack_from(">iI", sent)
    assert size == len(sent) - 4
    assert header >> 24 == form
    length = header & 0xFFFFFF
    found = answer_in(sent[8 : 8 + length], sent[8 + length :], form)
    assert (found.code, found.opaque, found.flag, found.remark) == (22, 9, 1, "none")
    assert found.body == b"x" * 70
    assert found.fields["a"] == "b"


def test_numbers_in_fields_are_read_as_texts() -> None:
    sent = frame(b'{"code":11,"flag":0,"opaque":1,"extFields":{"a":5,"b":true,"c":"x"}}')
    assert commands(sent)[0].fields == {"a": "5", "b": "true", "c": "x"}


def test_a_body_that_is_too_large_is_read_past() -> None:
    sent = asked(10, 1, {}, b"x" * 65) + asked(11, 2, {}, b"y" * 64)
    for cut in (1, 50, 1000):
        first, second = commands(sent, cut)
        assert (first.code, first.body, first.skipped) == (10, b"", 65)
        assert (second.body, second.skipped) == (b"y" * 64, 0)


def test_no_memory_is_taken_for_what_a_head_announces() -> None:
    reader = CommandReader(FrameLimits("a request"))
    reader.feed(struct.pack(">iI", 60 << 20, 10) + b"x" * 100)
    assert reader.next_command() is None
    assert reader.kept_bytes == 108
    reader = CommandReader(LIMITS)
    reader.feed(asked(10, 1, {}, b"z" * 3000)[:2000])
    assert reader.next_command() is None
    assert reader.kept_bytes == 0
    assert not reader.is_between


HEADER = {"code": 0, "flag": 0, "opaque": 7}


def binary(table: bytes, size: int | None = None, remark: int = 0) -> bytes:
    head = struct.pack(">hbhiii", 11, 0, 0, 7, 0, remark)
    return frame(head + struct.pack(">i", len(table) if size is None else size) + table, b"", 1)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (struct.pack(">iI", 3, 0), "invalid size in a request: expected 4 to 4096, found 3"),
        (struct.pack(">iI", -1, 0), "found -1"),
        (struct.pack(">iI", 4097, 4), "found 4097"),
        (struct.pack(">iI", 100, 97), "invalid header size in a request: expected at most 96"),
        (struct.pack(">iI", 4000, 1025), "at most 1024, found 1025"),
        (frame(b"{}", b"", 2), "invalid header form in a request: expected 0 (JSON) or 1"),
        (frame(b"{}", b"", 0x81), "found 129"),
        (b"GET / HTTP/1.1\r\n", "invalid size"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "invalid size"),
        (frame(b"{"), "not valid JSON"),
        (frame(b'{"a":' + b"[" * 1000), "nested too deeply"),
        (frame(json.dumps({**HEADER, "code": 1 << 31}).encode()), "no valid code"),
        (frame(json.dumps({**HEADER, "extFields": {"a": {}}}).encode()), "not strings"),
        (frame(b"", b"", 1), "invalid length in the header of a request"),
        (binary(b"", 1), "expected 0 to 0 bytes, found 1"),
        (binary(b"", -1), "found -1"),
        (binary(b"", 0, -5), "found -5"),
        (binary(b"\xff\xff"), "found -1"),
        (binary(b"\x00\x01a\x7f\xff\xff\xff"), "expected 0 to 0 bytes, found 2147483647"),
        (binary(b"\x00\x01a\0\0\0\0", 5), "a field after the end of its fields"),
    ],
)  # fmt: skip
def test_what_no_client_sends_is_refused(sent: bytes, words: str) -> None:
    with pytest.raises(WireError) as caught:
        commands(sent)
    assert words in str(caught.value)


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_requests_are_refused_by_our_error_alone(count: int) -> None:
    draw, refused, whole = random.Random(46), 0, 0
    good = b"".join(
        asked(code, code, {"topic": "t", "n": "12"}, b"{}", form)
        for code in (11, 34) for form in (JSON, BINARY)
    )  # fmt: skip
    with bounded(seconds=600):
        for _ in range(count):
            data = bytearray(good)
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(data))
                data[at : at + draw.randint(0, 4)] = draw.randbytes(draw.randint(0, 4))
            reader = CommandReader(LIMITS)
            try:
                for part in pieces(bytes(data), draw.randint(1, 200), draw.randrange(1 << 30)):
                    reader.feed(part)
                    while reader.next_command() is not None:
                        whole += 1
                    assert reader.kept_bytes <= LIMITS.frame + 4
            except WireError:
                refused += 1
    assert refused > count // 3
    assert whole > count // 2


def test_bodies_have_keys_as_fastjson_writes_them() -> None:
    table = KeyedByObject([({"topic": "t", "queueId": 0}, {"maxOffset": 3}), (7, ["é"])])
    assert json_body({"offsetTable": table, "tps": 0.0, "none": None}) == (
        b'{"offsetTable":{{"topic":"t","queueId":0}:{"maxOffset":3},7:["\\u00e9"]},'
        b'"tps":0.0,"none":null}'
    )
