"""Records against bytes made by hand and against an encoder that shares nothing with ours."""

import zlib
from datetime import UTC, datetime

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.errors import (
    CorruptionError,
    IllegalMessageError,
    PropertiesTooLongError,
    UnsupportedFormatError,
)
from cqstore.store.record.client_batch import decode_client_batch, encode_client_batch
from cqstore.store.record.compression import compress, decompress
from cqstore.store.record.decoder import StoredMessage, check_record
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import CompressionType, Host, Message, SysFlag
from cqstore.store.record.message_id import decode_message_id, encode_message_id
from cqstore.store.record.properties import CRC_PROPERTY_SIZE, decode_properties, encode_properties
from cqstore.store.record.record_layout import BLANK, MAX_QUEUE_OFFSET, BlankRecord
from cqstore.store.record.scan import ScannedRecord, ScanRules, TopicCache, scan_block
from cqstore.store.settings.config import StoreConfig
from tests.kit.core_encoder import CoreEncoder
from tests.kit.plain_record import PlainRecord

GOLDEN = bytes.fromhex(
    "00000065daa320a758932aac000000010000000000000000000000070000000000000000"
    "000000000000018bcfe568007f000001000004d20000018bcfe568010a00000200002a9f"
    "0000000000000000000000000000000268690154000754414753014102"
)  # fmt: skip
BORN, STORED = 1700000000000, 1700000000001
ENCODER = CoreEncoder(room=5 << 20)
SEALING = CoreEncoder(StoreConfig(enabled_append_prop_crc=True))
MESSAGE = Message(
    "T", b"hi", 1, {"TAGS": "A"}, born_timestamp=BORN,
    born_host=Host.of("127.0.0.1", 1234), store_host=Host.of("10.0.0.2", 10911),
)  # fmt: skip
V6 = Host.of("2001:db8::1", 65535)


def encode(message: Message, *, crc: bool = False, queue_offset: int = 7) -> bytes:
    encoder = SEALING if crc else ENCODER
    return encoder.encode(message, queue_offset=queue_offset, store_timestamp=STORED)


def test_the_golden_record_both_ways() -> None:
    assert encode(MESSAGE) == GOLDEN
    assert PlainRecord().encode() == GOLDEN
    message = StoredMessage(GOLDEN)
    assert (message.topic, message.body, message.properties) == ("T", b"hi", {"TAGS": "A"})
    assert (message.queue_id, message.queue_offset, message.size) == (1, 7, 101)
    assert message.head.body_crc == 0x58932AAC
    assert message.message_id == "0A00000200002A9F0000000000000000"


def test_the_crc_property_stands_with_its_digits_reversed() -> None:
    data = encode(MESSAGE, crc=True)
    assert len(data) == 121
    assert data[-29:-27] == b"\x00\x1b"
    assert data[-20:].hex() == "5f5f435243333223013032323538363638313002"
    check_record(data, 0, check_crc=True, property_crc=True)
    for place in (20, 89, 100):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(CorruptionError):
            check_record(bytes(damaged), 0, check_crc=True, property_crc=True)


def test_the_blank_record() -> None:
    assert BLANK.pack(BlankRecord(1000, -875286124)).hex() == "000003e8cbd43194"


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("A", 65), ("TagA", 2598919), ("TagB", 2598920), ("a||b", 3012833),
     ("polygenelubricants", -2147483648), ("TopicTest#k1", 2746024), ("Aa", 2112), ("BB", 2112)],
)  # fmt: skip
def test_java_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value


@given(st.text(max_size=1200))
def test_java_hashes_follow_the_definition(text: str) -> None:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2])) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == value


@given(st.binary(max_size=2000))
def test_zlibs_crc_is_crcmods(data: bytes) -> None:
    assert zlib.crc32(data) == crcmod.predefined.mkCrcFun("crc-32")(data)


@pytest.mark.parametrize("born", [MESSAGE.born_host, V6])
@pytest.mark.parametrize("stored", [MESSAGE.store_host, V6])
def test_all_four_mixtures_of_hosts(born: Host, stored: Host) -> None:
    message = Message("T", b"hi", 1, {"TAGS": "A"}, born_timestamp=BORN, born_host=born,
                      store_host=stored, sys_flag=0x30)  # fmt: skip
    sys_flag = (0x10 if born.is_v6 else 0) | (0x20 if stored.is_v6 else 0)
    plain = PlainRecord(born_host=born.wire, store_host=stored.wire, sys_flag=sys_flag)
    assert encode(message) == plain.encode()
    back = StoredMessage(plain.encode())
    assert (back.born_host, back.store_host) == (born, stored)
    assert back.store_timestamp == STORED
    (scanned,) = scan_block(plain.encode(), 0, 4096, ScanRules(), TopicCache())
    assert scanned.store_timestamp == STORED


def test_a_mapped_address_is_ipv4() -> None:
    assert Host.of("::ffff:10.0.0.2", 10911) == Host.of("10.0.0.2", 10911)


@pytest.mark.parametrize(
    ("topic", "magic"),
    [("t" * 127, "daa320a7"), ("t" * 128, "daa320ab"), ("t" * 255, "daa320ab"),
     ("é" * 63, "daa320a7")],
)  # fmt: skip
def test_the_length_of_the_topic_decides_on_the_version(topic: str, magic: str) -> None:
    data = encode(Message(topic, b"x"))
    assert data[4:8].hex() == magic
    assert StoredMessage(data).topic == topic


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message("t", b"x" * (4 << 20)), None),
        (Message("t", b"x" * ((4 << 20) + 1)), IllegalMessageError),
        (Message("t", b"x", properties={"k": "v" * 32764}), None),
        (Message("t", b"x", properties={"k": "v" * 32765}), PropertiesTooLongError),
        (Message("t", b"x", properties={"k": "a\x01b"}), IllegalMessageError),
        (Message("t", b"x", properties={"k": "a\ud800"}), IllegalMessageError),
        (Message("t", b"x", queue_id=1 << 31), IllegalMessageError),
        (Message("t", b"x", sys_flag=0x4000_0000), IllegalMessageError),
        (Message("é" * 128, b"x"), IllegalMessageError),
        (Message("é" * 64, b"x"), IllegalMessageError),
    ],
)
def test_what_does_not_fit_is_refused(message: Message, error: type[Exception] | None) -> None:
    if error is None:
        assert StoredMessage(encode(message)).topic == "t"
        ENCODER.rules.check(message)
        return
    with pytest.raises(error):
        ENCODER.encode(message)


def test_a_message_without_a_time_was_born_when_it_was_encoded() -> None:
    before = datetime.now(UTC)
    born = StoredMessage(ENCODER.encode(Message("t", b"x"))).head.born_timestamp
    after = datetime.now(UTC)
    assert int(before.timestamp() * 1000) <= born <= int(after.timestamp() * 1000)


def test_a_body_may_be_any_buffer_of_bytes_and_nothing_else() -> None:
    expected = encode(Message("t", b"abc"))
    for body in (bytearray(b"abc"), memoryview(b"abc")):
        assert encode(Message("t", body)) == expected  # type: ignore[arg-type]
    for wrong in ("abc", [1, 2], 3, None):
        with pytest.raises(IllegalMessageError):
            ENCODER.encode(Message("t", wrong))  # type: ignore[arg-type]


def test_a_crc_of_the_callers_gives_way_to_our_own() -> None:
    data = encode(Message("t", b"", properties={"a": "1", "__CRC32#": "old", "b": "2"}), crc=True)
    own = StoredMessage(data).properties_bytes[:-CRC_PROPERTY_SIZE]
    assert own == b"a\x011\x02b\x012\x02"
    check_record(data, 0, check_crc=True, property_crc=True)


@pytest.mark.parametrize(
    ("pair", "word"),
    [
        (("", "v"), "name and value must not be empty"),
        (("k", ""), "name and value must not be empty"),
        (("k", "a\x02b"), "separator"),
        (("a\x01", "b"), "separator"),
    ],
)
def test_why_a_property_is_refused_is_said(pair: tuple[str, str], word: str) -> None:
    for others in ({}, {"first": "1"}):
        with pytest.raises(IllegalMessageError, match=word):
            encode_properties({**others, pair[0]: pair[1]})


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01\x02c\x01d\x02", {"c": "d"}),
        (b"\x01b\x02", {}),
        (b"ab\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        ("键\x01值\x02".encode(), {"键": "值"}),
    ],
)
def test_properties_are_parsed_as_rocketmq_does(data: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(data) == properties


clean = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)


@given(st.dictionaries(clean, clean, max_size=5))
def test_properties_come_back(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize("host", [Host.of("10.0.0.2", 10911), V6])
def test_message_ids_both_ways(host: Host) -> None:
    text = encode_message_id(host, 1 << 40)
    assert decode_message_id(text) == (host, 1 << 40)
    assert text == text.upper()


IPV4_ID = "0A00000200002A9F0000000000000001"


@pytest.mark.parametrize(
    "text",
    [
        "", "0A", "zz" * 16, "0A" * 17, " ".join(["0A"] * 16),
        "0A000002 00002A9F 00000000000000 ",  # as many characters as an id has
        "0A000002    00002A9F0000000000 01", f"{IPV4_ID[:-2]}  ", f"  {IPV4_ID[2:]}",
        f"{IPV4_ID[:-2]}\t\n", f"{IPV4_ID}\n", f"{IPV4_ID} ", f" {IPV4_ID}",
        f"{IPV4_ID}{' ' * 24}", "0A" * 27 + "\u00a0 ", "\uff10" * 32, f"0x{IPV4_ID[2:]}",
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(IllegalMessageError):
        decode_message_id(text)
    assert decode_message_id(IPV4_ID) == (Host.of("10.0.0.2", 10911), 1)


def test_client_batches_both_ways_and_damaged() -> None:
    inner = [Message("t", b"x" * number, 2, {"TAGS": str(number)}, number) for number in range(4)]
    batch = Message("t", encode_client_batch(inner), 2)
    assert batch.body[:20].hex() == "0000001d" + "00000000" * 4
    back = decode_client_batch(batch)
    assert [(m.body, m.properties, m.flag) for m in back] == [
        (m.body, m.properties, m.flag) for m in inner
    ]
    for damaged in (batch.body[:-1], batch.body[:10], b"\xff" * 30, batch.body + b"\0"):
        with pytest.raises(IllegalMessageError):
            decode_client_batch(Message("t", damaged, 2))


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_bodies(kind: CompressionType) -> None:
    body = b"some body " * 100
    packed, flag = compress(body, kind)
    assert len(packed) < len(body)
    data = PlainRecord(body=packed, sys_flag=flag).encode()
    message = StoredMessage(data)
    assert message.body == body
    assert bytes(message.stored_body) == packed
    with pytest.raises(CorruptionError):
        decompress(packed[:-6], flag)
    with pytest.raises(CorruptionError):
        decompress(b"\x00garbage", flag)


def test_flags_are_those_of_rocketmq() -> None:
    """``MessageSysFlag`` and ``CompressionType``, and one of ours that is none of its bits."""
    assert {name: hex(flag) for name, flag in SysFlag.__members__.items()} == {
        "COMPRESSED": "0x1", "MULTI_TAGS": "0x2", "TRANSACTION_PREPARED": "0x4",
        "TRANSACTION_COMMIT": "0x8", "TRANSACTION_ROLLBACK": "0xc", "BORN_HOST_V6": "0x10",
        "STORE_HOST_V6": "0x20", "NEED_UNWRAP": "0x40", "INNER_BATCH": "0x80",
        "COMPRESSION_TYPE": "0x700", "PASSED_OVER": "0x40000000",
    }  # fmt: skip
    assert {kind.name: int(kind) for kind in CompressionType} == {
        "UNNAMED": 0, "LZ4": 1, "ZSTD": 2, "ZLIB": 3,
    }  # fmt: skip


def test_an_unknown_compression_is_said_to_be_unknown() -> None:
    with pytest.raises(UnsupportedFormatError):
        decompress(b"x", SysFlag.COMPRESSED | 4 << 8)


plain_records = st.builds(
    PlainRecord,
    topic=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
    .map(str.encode),
    body=st.binary(max_size=60),
    properties=st.binary(max_size=40),
    queue_id=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, MAX_QUEUE_OFFSET - 1),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12, 0x700]),
    store_timestamp=st.integers(-(2**63), 2**63 - 1),
)  # fmt: skip


class Forgetful(TopicCache):
    """Knows no topic, and so sends every record to the full check."""

    def learn_name(self, name: bytes) -> str | None:
        return None


@given(plain_records)
def test_a_scan_reads_what_the_plain_encoder_wrote(plain: PlainRecord) -> None:
    data = plain.encode()
    expected = ScannedRecord(
        0, len(data), plain.topic.decode(), plain.queue_id, plain.queue_offset, plain.sys_flag,
        plain.store_timestamp, plain.properties,
    )  # fmt: skip
    topics = TopicCache()
    for known in (Forgetful(), topics, topics):  # slowly, then on the fast path
        assert list(scan_block(data, 0, 4096, ScanRules(), known)) == [expected]


@pytest.mark.parametrize("place", range(len(GOLDEN)))
def test_fast_path_and_full_check_agree_on_every_damaged_byte(place: int) -> None:
    for flip in (0x01, 0x80, 0xFF):
        damaged = bytearray(GOLDEN + bytes(64))
        damaged[place] ^= flip
        data = bytes(damaged)
        outcomes: list[list[object]] = []
        for topics in (Forgetful(), TopicCache()):
            try:
                outcomes.append([*scan_block(data, 0, 4096, ScanRules(), topics)])
            except CorruptionError as exc:
                outcomes.append([type(exc)])
        assert outcomes[0] == outcomes[1]
        try:
            message = check_record(data[:101], 0, check_crc=True, property_crc=False)
            assert [record[2] for record in outcomes[0] if isinstance(record, ScannedRecord)] in (
                [message.topic],
                [],
            )
        except CorruptionError:
            assert not any(isinstance(record, ScannedRecord) for record in outcomes[0])


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_our_errors(data: bytes) -> None:
    for call in (
        lambda: StoredMessage(data),
        lambda: list(scan_block(data, 0, 4096, ScanRules(), TopicCache())),
        lambda: check_record(data, 0, check_crc=True, property_crc=True),
    ):
        try:
            call()
        except CorruptionError:
            continue


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=6))
def test_mutated_records_raise_only_our_errors(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOLDEN)
    for place, value in changes:
        data[place] = value
    try:
        message = StoredMessage(bytes(data))
        _ = message.topic, message.properties, message.message_id, str(message.born_host)
        _ = message.body
    except (CorruptionError, UnsupportedFormatError):
        return
