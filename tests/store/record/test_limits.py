"""Where records end: at every limit of the format, one below and one beyond, and what is said."""

import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest

from cqstore.store.errors import (
    ChecksumError,
    CorruptionError,
    IllegalMessageError,
    MagicCodeError,
    TruncatedRecordError,
)
from cqstore.store.record.bounded_cache import ENTRY_BYTES, BoundedCache
from cqstore.store.record.client_batch import decode_client_batch
from cqstore.store.record.decoder import StoredMessage, check_record, record_span
from cqstore.store.record.message import Host, Message
from cqstore.store.record.message_check import fault_of
from cqstore.store.record.scan import ScanRules, TopicCache, scan_block
from cqstore.store.settings.config import StoreConfig
from tests.kit.core_encoder import CoreEncoder
from tests.kit.plain_record import PlainRecord

AT = 7000
PLAIN = PlainRecord(phy_offset=AT)
WHOLE = PLAIN.encode()
LEAST = 91
"""Bytes of a record without topic, body and properties."""
SIZE_AT, MAGIC_AT, CRC_AT, OFFSET_AT, PHY_AT, FLAG_AT = 0, 4, 8, 20, 28, 36
BODY_SIZE_AT, BODY_AT = 84, 88
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


def patched(at: int, code: str, value: int, data: bytes = WHOLE) -> bytes:
    new = struct.pack(f">{code}", value)
    return data[:at] + new + data[at + len(new) :]


FAULTS: list[tuple[bytes, type[CorruptionError], str, object, object]] = [
    (WHOLE[: LEAST - 1], TruncatedRecordError, "too short", f"at least {LEAST} bytes", "90 bytes"),
    (patched(MAGIC_AT, "I", 0xDAA320A8), MagicCodeError, "no record starts here",
     "magic 0xdaa320a7 or 0xdaa320ab", "0xdaa320a8"),
    (WHOLE + b"x", TruncatedRecordError, "another size",
     f"{len(WHOLE)} bytes", f"{len(WHOLE) + 1} bytes"),
    (patched(PHY_AT, "q", AT + 1), CorruptionError, "holds another phy offset", AT, AT + 1),
    (patched(OFFSET_AT, "q", -1), CorruptionError, "invalid queue offset",
     f"0 to {(1 << 58) - 1}", -1),
    (patched(OFFSET_AT, "q", 1 << 58), CorruptionError, "invalid queue offset",
     f"0 to {(1 << 58) - 1}", 1 << 58),
    (patched(BODY_SIZE_AT, "i", -1), TruncatedRecordError, "body runs past", None, "-1 bytes"),
    (patched(BODY_SIZE_AT, "i", 13), TruncatedRecordError, "body runs past", None, "13 bytes"),
    (patched(BODY_AT + 2, "b", -1), TruncatedRecordError, "topic runs past", None, "-1 bytes"),
    (patched(BODY_AT + 2, "b", 9), TruncatedRecordError, "topic runs past", None, "9 bytes"),
    (patched(BODY_AT + 4, "h", -1), CorruptionError, "do not add up",
     f"{len(WHOLE)} bytes", f"{len(WHOLE) - 8} bytes"),
    (patched(BODY_AT + 4, "h", 8), CorruptionError, "do not add up",
     f"{len(WHOLE)} bytes", f"{len(WHOLE) + 1} bytes"),
    (patched(BODY_AT + 3, "B", 0xFF), CorruptionError, "topic is not UTF-8", None, None),
    (patched(CRC_AT, "i", 5), ChecksumError, "CRC does not match",
     "0x00000005", f"{zlib.crc32(b'hi') & INT_MAX:#010x}"),
    (patched(FLAG_AT, "i", 0x10, WHOLE[:SIZE_AT] + struct.pack(">i", LEAST) + WHOLE[4:LEAST]),
     TruncatedRecordError, "inside its fixed fields", "100 bytes", f"{LEAST} bytes"),
]  # fmt: skip
"""Bytes, the error, a part of its sentence, and what was expected and found."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[2])
def test_a_fault_is_named_with_its_place(
    fault: tuple[bytes, type[CorruptionError], str, object, object],
) -> None:
    data, kind, reason, expected, got = fault
    with pytest.raises(kind, match=reason) as raised:
        check_record(data, AT, check_crc=True, property_crc=False)
    assert raised.value.phy_offset == AT
    assert (raised.value.expected, raised.value.got) == (expected, got)
    assert type(raised.value) is kind


def test_what_lies_at_a_limit_is_a_record() -> None:
    for plain in (
        replace(PLAIN, queue_offset=0), replace(PLAIN, queue_offset=(1 << 58) - 1),
        replace(PLAIN, body=b""), replace(PLAIN, properties=b""),
        replace(PLAIN, topic=b"t" * 127), replace(PLAIN, topic=b"t" * 128),
        replace(PLAIN, properties=b"a\x01" + b"b" * 32764 + b"\x02"),
    ):  # fmt: skip
        data = plain.encode()
        found = check_record(data, AT, check_crc=True, property_crc=False)
        assert found.topic.encode() == plain.topic
        assert found.properties_bytes == plain.properties
        assert found.body == plain.body
        size = len(data)
        assert record_span(data, 0, size + 8, AT) == size
        (scanned,) = scan_block(data, AT, size + 8, ScanRules(), TopicCache())
        assert (scanned.size, scanned.queue_offset) == (size, plain.queue_offset)
    least = replace(PLAIN, topic=b"", body=b"", properties=b"").encode()
    assert len(least) == LEAST
    assert record_span(least, 0, LEAST + 8, AT) == LEAST
    assert StoredMessage(least).topic == ""
    no_crc = patched(CRC_AT, "i", 5, replace(PLAIN, body=b"").encode())
    check_record(no_crc, AT, check_crc=True, property_crc=False)  # nothing to check


def test_a_record_leaves_room_for_the_blank_one_behind_it() -> None:
    size = len(WHOLE)
    for left in (size + 7, size):
        with pytest.raises(TruncatedRecordError, match="invalid record size") as raised:
            record_span(WHOLE, 0, left, AT)
        assert raised.value.expected == f"{LEAST} to {left - 8} bytes"
        assert raised.value.got == f"{size} bytes"
        with pytest.raises(TruncatedRecordError):
            [*scan_block(WHOLE, AT, left, ScanRules(), TopicCache())]
    short = struct.pack(">iI", LEAST - 1, 0xDAA320A7)
    with pytest.raises(TruncatedRecordError):
        record_span(short, 0, 1000, AT)
    blank = struct.pack(">iI", 64, 0xCBD43194)
    assert record_span(b"xx" + blank, 2, 64, AT) == 0
    for left in (63, 65):
        with pytest.raises(CorruptionError, match="does not extend to the end") as raised_too:
            record_span(blank, 0, left, AT)
        assert (raised_too.value.expected, raised_too.value.got) == (f"{left} bytes", "64 bytes")


@pytest.mark.parametrize("cut", [1, 8, len(WHOLE) - 40, len(WHOLE) - 1])
def test_a_scan_stops_before_what_the_block_cuts_off(cut: int) -> None:
    second = replace(PLAIN, phy_offset=AT + len(WHOLE), queue_offset=8).encode()
    data = WHOLE + second
    found = [*scan_block(data[:-cut], AT, 1000, ScanRules(), TopicCache())]
    assert [(record.phy_offset, record.size) for record in found] == [(AT, len(WHOLE))]
    assert len([*scan_block(data, AT, 1000, ScanRules(), TopicCache())]) == 2


def encoder(**settings: Any) -> CoreEncoder:
    return CoreEncoder(StoreConfig(**settings))


def test_a_body_is_as_long_as_the_settings_say() -> None:
    small = encoder(max_message_size=10)
    assert len(small.encode(Message("t", b"x" * 10))) == LEAST + 1 + 10
    small.rules.check(Message("t", b"x" * 10))
    with pytest.raises(IllegalMessageError, match="body too large: 11 bytes, at most 10"):
        small.encode(Message("t", b"x" * 11))
    for body in (bytearray(b"x"), memoryview(b"x")):
        assert small.encode(Message("t", body)).endswith(b"x\x01t\0\0")  # type: ignore[arg-type]


def test_topics_by_version_and_limit() -> None:
    old = encoder(auto_message_version_on_topic_len=False)
    assert old.encode(Message("t" * 127, b""))[4:8].hex() == "daa320a7"
    with pytest.raises(
        IllegalMessageError, match="topic too long: 128 bytes, at most 127 in a V1 record"
    ):
        old.encode(Message("t" * 128, b""))
    new = encoder(auto_message_version_on_topic_len=True)
    for topic, magic in (
        ("t" * 127, "a7"), ("t" * 128, "ab"), ("t" * 255, "ab"), ("é" * 63, "a7"),
    ):  # fmt: skip
        assert new.encode(Message(topic, b""))[7:8].hex() == magic
    with pytest.raises(IllegalMessageError, match="topic too long: 256 bytes, at most 255"):
        new.encode(Message("t" * 256, b""))
    with pytest.raises(IllegalMessageError, match="at most 127 in a V1 record"):  # 64 characters
        new.encode(Message("é" * 64, b""))


RANGES = {
    "queue_id": (0, INT_MAX),
    "flag": (-INT_MAX - 1, INT_MAX),
    "born_timestamp": (-LONG_MAX - 1, LONG_MAX),
    "reconsume_times": (-INT_MAX - 1, INT_MAX),
    "prepared_transaction_offset": (-LONG_MAX - 1, LONG_MAX),
}


@pytest.mark.parametrize("name", [*RANGES, "sys_flag"])
def test_numbers_fit_java_s(name: str) -> None:
    least, most = RANGES.get(name, (-INT_MAX - 1, INT_MAX))
    for value in (least, most):
        assert fault_of(Message(**{"topic": "t", "body": b"", name: value})) is None  # type: ignore[arg-type]
        if name in RANGES:
            message = Message(**{"topic": "t", "body": b"", name: value})  # type: ignore[arg-type]
            encoder().encode(message)
            encoder().rules.check(message)
    for value in (least - 1, most + 1):
        message = Message(**{"topic": "t", "body": b"", name: value})  # type: ignore[arg-type]
        assert str(fault_of(message)).endswith(f", not between {least} and {most}")
        with pytest.raises(IllegalMessageError):
            encoder().encode(message)


def one_of_batch(size: int, body_size: int, rest: bytes) -> bytes:
    return struct.pack(">iiiii", size, 0, 0, 5, body_size) + rest


SOUND = one_of_batch(32, 2, b"hi" + b"\0\x08" + b"a\x01bcdef\x02")
ADD_UP = "inconsistent lengths in the message at byte 32"


@pytest.mark.parametrize(
    ("bad", "reported"),
    [
        (SOUND[:19], "the batch is truncated inside the message head at byte 32"),
        (one_of_batch(22, -1, b"\0\0"), ADD_UP),
        (one_of_batch(22, 1, b"\0\0"), ADD_UP),
        (one_of_batch(23, 0, b"\0\0"), ADD_UP),
        (one_of_batch(22, 0, b"\0\x01"), ADD_UP),
        (one_of_batch(23, 0, b"\0\0x"), ADD_UP),
    ],
)
def test_the_lengths_of_a_client_batch_add_up(bad: bytes, reported: str) -> None:
    """Behind one sound message."""
    with pytest.raises(IllegalMessageError) as raised:
        decode_client_batch(Message("t", SOUND + bad))
    assert raised.value.reason == reported


def test_messages_of_a_client_batch_have_its_fields_and_their_own() -> None:
    hosts = Host.of("::1", 1), Host.of("::2", 2)
    batch = Message("t", SOUND * 2, 3, {"own": "x"}, 1, 8, 9, *hosts, 4)
    expected = Message("t", b"hi", 3, {"a": "bcdef"}, 5, 8, 9, *hosts, 4)
    assert decode_client_batch(batch) == [expected] * 2
    assert decode_client_batch(Message("t", b"")) == []
    least = decode_client_batch(Message("t", one_of_batch(22, 0, b"\0\0")))
    assert (least[0].body, least[0].properties) == (b"", {})


def test_a_cache_never_holds_more_than_its_bytes() -> None:
    most = 1024 * (ENTRY_BYTES + 40)
    cache = BoundedCache[int, int](most)
    assert cache.learn(0, 7, 11) == 7
    assert cache == {}, "an entry may take a 1024th"
    for number in range(1024):
        cache.learn(number, number, 10)
    assert len(cache) == 1024
    assert cache.learn(1024, 1024, 10) == 1024
    assert len(cache) == 1024, "full: one goes for one that comes"
    assert cache[1024] == 1024
    for number in range(1023):
        cache.learn(number, number, 10)
    assert len(cache) == 1024
