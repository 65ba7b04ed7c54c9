"""Fields of messages: what is in the record of a batch queue, hosts, what the store gives anew."""

import zlib

import lz4.frame
import pytest
import zstandard

from cqstore.cli.message_files.dump_rows import host_text
from cqstore.cli.message_files.message_fields import (
    FIELDS,
    flat_fields,
    host_of,
    message_fields,
    read_messages,
    to_put,
)
from cqstore.cli.message_files.message_lines import to_message
from cqstore.store.errors import CorruptionError, IllegalMessageError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Host, Message, SysFlag
from cqstore.store.settings.config import StoreConfig
from tests.kit.oracle.encoder import MessageEncoder, assemble


def stored(message: Message, queue_offset: int = 40) -> StoredMessage:
    encoder = MessageEncoder(StoreConfig(), lambda _: None)
    record = encoder.encode(message)
    return StoredMessage(record.start + assemble(record, queue_offset, 1000, 5000))


def test_the_messages_of_a_batch_queue_are_those_in_its_records() -> None:
    inner = [
        Message("ignored", b"one", properties={"KEYS": "k1", "a": "b"}, flag=3),
        Message("ignored", b"\xfftwo", properties={"KEYS": "k2"}, flag=4),
    ]
    flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP | SysFlag.COMPRESSED) | 3 << 8
    batch = Message(
        "t", zlib.compress(encode_client_batch(inner)), 7, {"INNER_NUM": "2", "INNER_BASE": "40"},
        9, flag, 123, Host.of("::1", 5),
    )  # fmt: skip
    first, second = map(message_fields, read_messages(40, stored(batch)))
    assert (first["queueOffset"], second["queueOffset"]) == (40, 41)
    assert (first["body"], second["bodyBase64"]) == ("one", "/3R3bw==")
    assert (first["flag"], second["flag"]) == (3, 4)
    assert first["properties"] == {"KEYS": "k1", "a": "b"}
    for each in (first, second):
        assert (each["topic"], each["queueId"], each["bornTimestamp"]) == ("t", 7, 123)
        assert each["sysFlag"] == SysFlag.BORN_HOST_V6
        assert each["bornHost"] == "0:0:0:0:0:0:0:1 5"
        assert to_message(dict(each)).topic == "t"


def test_a_batch_that_cannot_be_taken_apart_stays_one() -> None:
    batch = Message("t", b"no batch", 7, {"INNER_NUM": "2"}, sys_flag=int(SysFlag.INNER_BATCH))
    (only,) = map(message_fields, read_messages(40, stored(batch)))
    assert (only["body"], only["sysFlag"]) == ("no batch", 0x80)


def test_a_body_that_cannot_be_decompressed_is_damage() -> None:
    with pytest.raises(CorruptionError, match="cannot decompress the"):
        list(read_messages(0, stored(Message("t", b"no zlib", sys_flag=1))))


DECOMPRESS = {
    0x001: zlib.decompress,
    0x101: lz4.frame.decompress,
    0x201: zstandard.ZstdDecompressor().decompress,
    0x301: zlib.decompress,
}


@pytest.mark.parametrize("flag", DECOMPRESS)
def test_a_body_is_compressed_again_as_its_flag_says(flag: int) -> None:
    put = to_message({"topic": "t", "body": "x" * 1000, "sysFlag": flag})
    assert (put.sys_flag, len(put.body) < 500) == (flag, True)
    assert DECOMPRESS[flag](bytes(put.body)) == b"x" * 1000
    (read,) = read_messages(0, stored(put))
    assert read.message.body == b"x" * 1000


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(IllegalMessageError, match="unknown compression type 4"):
        to_message({"topic": "t", "body": "x", "sysFlag": 0x401})


def test_what_the_store_gives_each_record_is_left_out() -> None:
    given = {"a": "1", "__CRC32#": "123", "INNER_MULTI_QUEUE_OFFSET": "4", "b": "2"}
    message = Message("t", b"", properties=dict(given))
    assert to_put(message).properties == {"a": "1", "b": "2"}
    assert to_put(message).properties == {"a": "1", "b": "2"}


HOSTS = [
    Host.of("10.1.2.3", 0), Host.of("255.0.0.1", 65535), Host.of("2001:db8::1", 10911),
    Host(bytes(10) + b"\xff\xff\x0a\x01\x02\x03" + bytes(4)),  # IPv4 in IPv6
    Host(b"\x0a\x01\x02\x03\xff\xff\xff\xfe"), Host(bytes(16) + b"\x7f\xff\xff\xff"),
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS, ids=str)
def test_hosts_are_read_as_they_are_shown(host: Host) -> None:
    assert host_of("bornHost", host_text(host)) == host


@pytest.mark.parametrize(
    "text", ["", "10.1.2.3", "10.1.2 5", "10.1.2.3 ", "10.1.2.3 x", "10.1.2.3 2147483648", " 5"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(
        IllegalMessageError, match=r"invalid bornHost '.*': expected an address, a space and"
    ):
        host_of("bornHost", text)


def test_a_flat_row_has_all_fields_in_order() -> None:
    (read,) = read_messages(3, stored(Message("t", b"x")))
    row = flat_fields(read)
    assert tuple(row) == FIELDS
    assert (row["body"], row["bodyBase64"]) == ("x", "")
