"""The compiled core and its Python twins say the same, whatever they are given."""

import os
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.core import COMPILED, SWITCH
from store.errors import IllegalMessageError
from store.record import _encode
from store.record.java_hash import java_hash
from store.record.message import MessageProperty
from store.record.properties import (
    DispatchProperties,
    decode_properties,
    dispatch_properties,
    dispatch_properties_of,
    encode_for_dispatch,
    encode_properties,
)
from tests.kit.oracle import java_hash as hash_oracle

NAMES = [value for name, value in vars(MessageProperty).items() if name.isupper()]
PIECES = st.sampled_from([
    *[name.encode() for name in NAMES], b"\x01", b"\x02", b"a", b"\xe4\xbd\xa0", b"\xff",
    b"\xe4\xbd", b"\xed\xa0\x80", b"\x00", b"TAG", b"TAGSS",
])  # fmt: skip
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=6)
WORDS = st.one_of(st.sampled_from(NAMES), ANY_TEXT)


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


def outcome(properties: dict[str, str]) -> object:
    try:
        return encode_properties(properties), dispatch_properties_of(properties)
    except (IllegalMessageError, TypeError) as exc:
        return type(exc), str(exc)


def compiled_outcome(properties: dict[str, str]) -> object:
    try:
        return encode_for_dispatch(properties)
    except (IllegalMessageError, TypeError) as exc:
        return type(exc), str(exc)


@given(st.dictionaries(WORDS, WORDS, max_size=5))
def test_properties_are_written_alike(properties: dict[str, str]) -> None:
    assert compiled_outcome(properties) == outcome(properties)


class Text(str):
    """A text that is no plain one."""

    __slots__ = ()


@pytest.mark.parametrize(
    "properties",
    [
        {"a": 1}, {1: "a"}, {"a": Text("b")}, {Text("a"): "b"}, {"same": "same"}, {"": "x"},
        {"x": ""}, {"a": "\x01"}, {"a": "\x02"}, {"a\x01": "b"}, {"a": "\ud800"}, {},
        {"TAGS": "t"}, {"KEYS": "k", "TAGS": "t"}, {"TAGS": "\ud83d\ude00"[:1]},
    ],
)  # fmt: skip
def test_odd_properties_are_refused_or_written_alike(properties: dict[str, str]) -> None:
    assert compiled_outcome(properties) == outcome(properties)


@pytest.mark.parametrize("wrong", [None, 1, b"bytes", ["a"]])
def test_only_text_is_hashed(wrong: object) -> None:
    with pytest.raises((TypeError, AttributeError)):
        java_hash(wrong)  # type: ignore[arg-type]


def started(value: str, code: str = "") -> "subprocess.CompletedProcess[str]":
    told = "from store.core import SLOW_PATH_ONLY, WHICH; print(SLOW_PATH_ONLY, WHICH)"
    return subprocess.run(
        [sys.executable, "-c", code + told], env={**os.environ, SWITCH: value}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0", "True left out where it can be, for CQSTORE_CORE is 0\n"),
        ("1", "False compiled\n"), ("", "False compiled\n"),
    ],
)  # fmt: skip
def test_the_switch_sends_all_the_long_way(value: str, told: str) -> None:
    done = started(value)
    assert (done.stdout, done.stderr) == (told, "")


@pytest.mark.parametrize(
    ("missing", "first"),
    [
        ("store.record._stored", "store.record.decoder"), ("store.core._faults", "store.log"),
        ("store.service.reading._pull", "store.core"),
    ],
)  # fmt: skip
def test_a_read_that_was_not_built_is_told_whatever_is_imported_first(
    missing: str, first: str
) -> None:
    done = started("", f"import sys; sys.modules[{missing!r}] = None; import {first}; ")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: the compiled core of cqstore is missing: install a wheel")
    assert missing in last


def test_another_switch_is_refused() -> None:
    done = started("yes")
    assert done.returncode == 1
    assert "CQSTORE_CORE is 'yes': it can be 0, 1, or not set" in done.stderr


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("store.core._column", "import store.core"),
        ("store.record._message", "from cqstore import Message"),
        ("store.log._tail", "import store.log.mapped_file"),
        ("store.service.writing._put", "import store.queue.units"),
    ],
)
def test_a_core_that_was_not_built_is_told_in_a_sentence(module: str, code: str) -> None:
    """Whatever is imported first, and whichever module lacks."""
    assert module in COMPILED
    done = started("", f"import sys; sys.modules[{module!r}] = None; {code}; ")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: the compiled core of cqstore is missing: install a wheel, or the source"
    )
