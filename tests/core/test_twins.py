"""The compiled core and its Python twins say the same, whatever they are given."""

import importlib.util
import os
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cq_file.compiled import NATIVE
from store.core import CORE, SWITCH, WHICH, beside
from store.errors import IllegalMessageError
from store.index.key_hash import _key_hashes, key_hash, key_hashes
from store.record.java_hash import hash_interpreted, java_hash
from store.record.message import MessageProperty
from store.record.properties import (
    DispatchProperties,
    dispatch_properties,
    dispatch_properties_of,
    encode_for_dispatch,
    encode_properties,
    read_interpreted,
)

BUILT = importlib.util.find_spec("store.core._core") is not None
NAMES = [value for name, value in vars(MessageProperty).items() if name.isupper()]
PIECES = st.sampled_from([
    *[name.encode() for name in NAMES], b"\x01", b"\x02", b"a", b"\xe4\xbd\xa0", b"\xff",
    b"\xe4\xbd", b"\xed\xa0\x80", b"\x00", b"TAG", b"TAGSS",
])  # fmt: skip
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=6)
WORDS = st.one_of(st.sampled_from(NAMES), ANY_TEXT)


def test_the_compiled_twins_run_where_they_were_built() -> None:
    wanted = BUILT and os.environ.get(SWITCH) != "0"
    assert (CORE is not None) is wanted
    assert (java_hash is not hash_interpreted) is wanted
    assert (WHICH == "compiled") is wanted
    assert (NATIVE is not None) is wanted


@given(st.text(st.characters(codec=None, categories=None)))
def test_a_hash_is_the_same(text: str) -> None:
    assert java_hash(text) == hash_interpreted(text)


@pytest.mark.skipif(CORE is None, reason="compares the core")
@pytest.mark.parametrize("folded", [True, False])
def test_a_checksum_is_zlibs_at_every_length_and_place(*, folded: bool) -> None:
    """Steps are of 64, 16 and 8 bytes and of one; a body begins anywhere."""
    assert CORE is not None
    data = bytes((at * at * 31 + at // 7) % 256 for at in range(5000))
    for size in (*range(300), 1023, 1024, 4096, 4983):
        for start in (0, 1, 7, 16):
            part = data[start : start + size]
            assert CORE.crc32(part, folded=folded) == zlib.crc32(part), (size, start)


@pytest.mark.skipif(CORE is None, reason="compares the core")
@given(st.binary(max_size=400))
def test_a_checksum_is_zlibs(data: bytes) -> None:
    assert CORE is not None
    assert CORE.crc32(data) == CORE.crc32(data, folded=False) == zlib.crc32(data)


@given(st.lists(st.tuples(WORDS, WORDS.filter(bool)), min_size=1, max_size=6))
def test_hashes_of_keys_are_the_same(pairs: list[tuple[str, str]]) -> None:
    topics, keys = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    assert key_hashes(topics, keys).tolist() == _key_hashes(topics, keys).tolist()
    assert key_hashes(topics, keys).tolist() == [key_hash(*pair) for pair in pairs]


@pytest.mark.parametrize(("topic", "key"), [("t", "BEHMU\\^"), ("a", "x"), ("", "b")])
def test_hashes_of_keys_are_those_of_one_key(topic: str, key: str) -> None:
    """The first one's is the number that has no positive twin: it counts as 0."""
    assert key_hashes([topic, topic], [key, key]).tolist() == [key_hash(topic, key)] * 2
    assert (java_hash(f"{topic}#{key}") == -(1 << 31)) is (topic == "t")


@pytest.mark.skipif(CORE is None, reason="the core does not run")
def test_a_key_without_a_topic_has_no_hash() -> None:
    assert CORE is not None
    for topics, keys in ([], ["a"]), ([1], ["a"]), (["a"], [None]):
        with pytest.raises((TypeError, ValueError)):
            CORE.key_hashes(topics, keys)


def test_a_hash_is_javas() -> None:
    """As ``"…".hashCode()`` says in Java."""
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_hash("你好") == 652829
    assert java_hash("\U0001f600") == 1772899


@given(st.lists(PIECES, max_size=14).map(b"".join))
def test_properties_are_read_alike(data: bytes) -> None:
    found = dispatch_properties(data)
    assert found == read_interpreted(data)
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


def started(value: str) -> "subprocess.CompletedProcess[str]":
    code = "from store.core import CORE, WHICH; print(CORE is None, WHICH)"
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, SWITCH: value}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


def test_the_switch_leaves_the_core_out() -> None:
    done = started("0")
    assert done.stdout == "True interpreted, for CQSTORE_CORE is 0\n"


def test_another_switch_is_refused() -> None:
    done = started("yes")
    assert done.returncode == 1
    assert "CQSTORE_CORE is 'yes': it can be 0, 1, or not set" in done.stderr


def test_the_switch_demands_the_core() -> None:
    done = started("1")
    assert done.stdout == ("False compiled\n" if BUILT else "")
    assert ("the core was not built" in done.stderr) is not BUILT


@pytest.mark.skipif(CORE is None, reason="nothing stands on a core that does not run")
def test_what_stands_on_the_core_is_demanded_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert beside("cq_file._native") is NATIVE
    assert beside("cq_file._was_not_built") is None
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(ImportError, match=r"is 1, but cq_file\._was_not_built was not built"):
        beside("cq_file._was_not_built")


def test_nothing_stands_on_a_core_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.core.CORE", None)
    assert beside("cq_file._native") is None
