"""Hashes, checksums and properties: the core says what oracles say, whatever it is given."""

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record import _encode
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.record.properties import (
    DispatchProperties,
    decode_properties,
    dispatch_properties,
    dispatch_properties_of,
)
from cqstore.store.settings.config import StoreConfig
from tests.kit.core_encoder import CoreEncoder
from tests.kit.oracle import java_hash as hash_oracle
from tests.kit.oracle.encoder import MessageEncoder, assemble

NAMES = [value for name, value in vars(MessageProperty).items() if name.isupper()]
PIECES = st.sampled_from([
    *[name.encode() for name in NAMES], b"\x01", b"\x02", b"a", b"\xe4\xbd\xa0", b"\xff",
    b"\xe4\xbd", b"\xed\xa0\x80", b"\x00", b"TAG", b"TAGSS",
])  # fmt: skip
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=6)
WORDS = st.one_of(st.sampled_from(NAMES), ANY_TEXT)
CORE_ENCODER, ORACLE = CoreEncoder(), MessageEncoder(StoreConfig(), lambda _: None)
STORED = 1_700_000_000_000


@given(st.text(st.characters(codec=None, categories=None)))
def test_a_hash_is_the_same(text: str) -> None:
    assert java_hash(text) == hash_oracle.java_hash(text)


@pytest.mark.parametrize("folded", [True, False])
def test_a_checksum_is_zlibs_at_every_length_and_place(*, folded: bool) -> None:
    """Steps are of 64, 16 and 8 bytes and of one; a body begins anywhere."""
    data = bytes((at * at * 31 + at // 7) % 256 for at in range(5000))
    for size in (*range(300), 1023, 1024, 4096, 4983):
        for start in (0, 1, 7, 16):
            part = data[start : start + size]
            assert _encode.crc32(part, folded=folded) == zlib.crc32(part), (size, start)


@given(st.binary(max_size=400))
def test_a_checksum_is_zlibs(data: bytes) -> None:
    assert _encode.crc32(data) == _encode.crc32(data, folded=False) == zlib.crc32(data)


def test_a_hash_is_javas() -> None:
    """As ``"…".hashCode()`` says in Java."""
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_hash("你好") == 652829
    assert java_hash("\U0001f600") == 1772899


@given(st.lists(PIECES, max_size=14).map(b"".join))
def test_properties_are_read_alike(data: bytes) -> None:
    found = dispatch_properties(data)
    assert found == dispatch_properties_of(decode_properties(data))
    assert type(found) is DispatchProperties


def by_core(properties: dict[str, str]) -> object:
    """Return the record of a message with these properties, or the sentence that refuses it."""
    message = Message("t", b"x", 0, properties, born_timestamp=1)
    try:
        return CORE_ENCODER.encode(message, store_timestamp=STORED)
    except (IllegalMessageError, TypeError) as exc:
        return type(exc), str(exc)


def by_oracle(properties: dict[str, str]) -> object:
    try:
        record = ORACLE.encode(Message("t", b"x", 0, properties, born_timestamp=1))
    except (IllegalMessageError, TypeError) as exc:
        return type(exc), str(exc)
    return record.start + assemble(record, 0, 0, STORED)


@given(st.dictionaries(WORDS, WORDS, max_size=5))
def test_properties_are_written_alike(properties: dict[str, str]) -> None:
    written = by_core(properties)
    assert written == by_oracle(properties)
    if isinstance(written, bytes):
        assert StoredMessage(written).properties == properties


class Text(str):
    """A text that is no plain one."""

    __slots__ = ()


@pytest.mark.parametrize(
    "properties",
    [
        {"a": 1}, {1: "a"}, {"a": Text("b")}, {Text("a"): "b"}, {"same": "same"}, {"": "x"},
        {"x": ""}, {"a": "\x01"}, {"a": "\x02"}, {"a\x01": "b"}, {"a": "\ud800"}, {},
        {"TAGS": "t"}, {"KEYS": "k", "TAGS": "t"}, {"TAGS": "\ud83d\ude00"[:1]},
        {"a": "x" * 32_764}, {"a": "x" * 32_765}, {"a": "é" * 16_382}, {"a": "é" * 16_383},
    ],
)  # fmt: skip
def test_odd_properties_are_refused_or_written_alike(properties: dict[str, str]) -> None:
    assert by_core(properties) == by_oracle(properties)


@pytest.mark.parametrize("wrong", [None, 1, b"bytes", ["a"]])
def test_only_text_is_hashed(wrong: object) -> None:
    with pytest.raises((TypeError, AttributeError)):
        java_hash(wrong)  # type: ignore[arg-type]


def started(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    "code",
    [
        "import cqstore.store.core", "from cqstore import Message",
        "import cqstore.store.log.mapped_file", "import cqstore.store.queue.units",
    ],
)  # fmt: skip
def test_a_core_that_was_not_built_is_told_in_a_sentence(code: str) -> None:
    """Whatever is imported first."""
    done = started(f"import sys; sys.modules['cqstore.store.core._faults'] = None; {code}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: the compiled core of cqstore is missing: install a wheel, or the source"
    )
