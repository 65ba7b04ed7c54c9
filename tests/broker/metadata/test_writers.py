"""A writer a form: against the bytes that RocketMQ's managers wrote, and back into the model."""

import json
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from cqstore.broker.metadata.form_limits import refusals
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.writing import differences, write_form
from cqstore.cq_rocksdb.engine.raw_builder import build_database
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths
from tests.kit.metadata_forms import raw_rows, the_one

each_form = pytest.mark.parametrize("form", list(Form))
in_rocksdb = pytest.mark.parametrize("form", [Form.V1, Form.SINGLE, Form.V2])
PULL_VERSION = b"\x01\x00\x02\x01data_version"
"""RocketMQ counts the commits of pull offsets with the others; both tables get what it then had."""


def held_by(form: Form, found: BrokerMetadata) -> BrokerMetadata:
    """Return ``found`` without the tables that ``form`` has not."""
    if form is Form.V2:
        return replace(found, forbidden={})
    return replace(found, pull_offsets={})


# ---- against RocketMQ's bytes


@in_rocksdb
def test_every_row_is_byte_for_byte_that_of_rocketmq(
    golden: Path, tmp_path: Path, form: Form
) -> None:
    write_form(the_one(golden / form), form, tmp_path)
    expected, written = raw_rows(golden / form), raw_rows(tmp_path)
    assert written.keys() == expected.keys()
    assert len(written) > 60
    unlike = {key[2] for key, value in written.items() if value != expected[key]}
    assert unlike == ({PULL_VERSION} if form is Form.V2 else set())


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset"])
def test_every_field_of_a_json_file_is_that_of_rocketmq(
    golden: Path, tmp_path: Path, name: str
) -> None:
    write_form(the_one(golden / Form.JSON), Form.JSON, tmp_path)
    path = tmp_path / "config" / f"{name}.json"
    written, expected = json_in(path), json_in(golden / Form.JSON / "config" / f"{name}.json")
    for each in (written, expected):  # the order of a set of Java's is no order
        for topics in each.get("groupTopicMap", {}).values():
            topics.sort()
    assert written == expected
    assert path.with_name(f"{path.name}.bak").read_bytes() == path.read_bytes()


def json_in(path: Path) -> dict[str, Any]:
    return broker_object(path.read_bytes())


@each_form
@pytest.mark.parametrize("to", list(Form))
def test_what_one_form_holds_comes_back_from_every_other(
    golden: Path, tmp_path: Path, form: Form, to: Form
) -> None:
    whole = the_one(golden / form)
    found = held_by(to, whole)
    write_form(found, to, tmp_path)
    back = the_one(tmp_path)
    assert back.form is to
    assert not list(differences(found, back))
    assert (back.topics, back.groups, back.offsets) == (found.topics, found.groups, found.offsets)
    assert back.versions == found.versions


def test_a_light_group_s_offset_is_in_the_file_that_a_broker_with_lmq_reads(
    tmp_path: Path,
) -> None:
    offsets = {"%LMQ%a@%LMQ%g": {0: 3}, "t@%LMQ%g": {0: 4, 2: 5}, "t@g": {1: 9}}
    found = BrokerMetadata(Form.V1, tmp_path, offsets=offsets)
    write_form(found, Form.JSON, tmp_path, lmq=True)
    path = tmp_path / "config" / "lmqConsumerOffset.json"
    written = json.loads(path.read_bytes())
    assert written["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 3, "t@%LMQ%g": 4}
    assert written["offsetTable"] == {"t@g": {"1": 9}, "t@%LMQ%g": {"0": 4, "2": 5}}
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (path.parent / name).unlink()
    assert the_one(tmp_path).offsets == offsets


def test_delay_levels_come_with_every_form(golden: Path, tmp_path: Path) -> None:
    found = replace(the_one(golden / Form.V1), delay_offsets={3: 120, 18: 7})
    write_form(found, Form.SINGLE, tmp_path)
    assert the_one(tmp_path).delay_offsets == {3: 120, 18: 7}


# ---- models of any kind

names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12
) | st.sampled_from(["@", "a@b", "b@", "@a", "测试", "a", "b", "%LMQ%a", "%RETRY%a"])
longs = st.integers(-(1 << 63), (1 << 63) - 1)
queue_ids = st.integers(-(1 << 31), (1 << 31) - 1)
rows = st.dictionaries(queue_ids, longs, min_size=1, max_size=4)
keys = st.tuples(names, names).map("@".join)
bits = st.dictionaries(names, st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=3)
json_values = st.none() | st.booleans() | longs | st.text(max_size=5) | st.floats(allow_nan=False)


ints = st.integers(-(1 << 31), (1 << 31) - 1)
known_fields = {
    "perm": ints, "brokerId": longs, "retryQueueNums": ints, "consumeEnable": st.booleans(),
    "attributes": st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
}  # fmt: skip


def configs(kind: str) -> st.SearchStrategy[dict[str, dict[str, object]]]:
    fields = st.fixed_dictionaries({}, optional=known_fields | {"ours": json_values})
    table = st.dictionaries(names, fields, max_size=4)
    return table.map(lambda made: {name: {**each, kind: name} for name, each in made.items()})


@st.composite
def models(draw: st.DrawFn) -> BrokerMetadata:
    offsets, pull_offsets = (draw(st.dictionaries(keys, rows, max_size=4)) for _ in range(2))
    return BrokerMetadata(
        Form.JSON,
        Path("config"),
        topics=draw(configs("topicName")),
        groups=draw(configs("groupName")),
        forbidden=draw(st.dictionaries(names, bits, max_size=2)),
        offsets=offsets,
        pull_offsets=pull_offsets,
        delay_offsets=draw(st.dictionaries(st.integers(1, 18), longs, max_size=2)),
        versions=draw(
            st.dictionaries(
                st.sampled_from(list(Table)), st.builds(DataVersion, longs, longs, longs)
            )
        ),
    )


@each_form
@settings(max_examples=25, deadline=None)
@given(model=models())
def test_a_model_comes_back_whole_or_is_refused_before_anything_is_written(
    form: Form, model: BrokerMetadata
) -> None:
    found = held_by(form, model)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        refused = list(refusals(found, form))
        if refused:
            with pytest.raises(RefusedStoreError, match="cannot store the metadata in the form"):
                write_form(found, form, root)
            assert not list(root.iterdir())
            return
        write_form(found, form, root)
        back = the_one(root)
        for table in ("topics", "groups", "forbidden", "offsets", "pull_offsets", "versions"):
            assert getattr(back, table) == getattr(found, table), table
        assert back.delay_offsets == found.delay_offsets
        assert not list(differences(found, back))


# ---- what a form cannot hold


def one(**tables: Any) -> BrokerMetadata:
    return BrokerMetadata(Form.JSON, Path("config"), **tables)


def topic(name: str) -> dict[str, object]:
    return {name: {"topicName": name}}


REFUSED = [
    (Form.V2, one(forbidden={"billing1": {"orders": 8}}), "billing1"),
    (Form.JSON, one(pull_offsets={"orders@billing": {0: 1}}), "orders@billing"),
    (Form.V1, one(pull_offsets={"orders@billing": {0: 1}}), "orders@billing"),
    (Form.SINGLE, one(pull_offsets={"orders@billing": {0: 1}}), "orders@billing"),
    (Form.V2, one(offsets={"a@b@c": {0: 1}}), "topic 'a' of group 'b@c' or topic 'a@b'"),
    (Form.V2, one(offsets={"nothing": {0: 1}}), "'nothing'"),
    (Form.V2, one(topics=topic("x" * 32768)), "32768 bytes"),
    (Form.V2, one(topics={"orders": {"topicName": "other"}}), "'other'"),
    (
        Form.JSON,
        one(offsets={"a@b": {1 << 31: 1}}),
        f"queue {1 << 31}: the queue ID does not fit in 32 bits",
    ),
    (Form.JSON, one(offsets={"a@b": {0: 1 << 63}}), f"queue 0: {1 << 63} does not fit in 64 bits"),
    (Form.V1, one(forbidden={"g": {"t": 1 << 31}}), "32 bits"),
    (Form.V1, one(topics={"\ud800": {}}), r"the name '\ud800' is not valid UTF-8"),
    (Form.JSON, one(groups={"": {}}), "empty"),
    (Form.JSON, one(groups={"g": {"retryMaxTimes": float("inf")}}), "'g' has a number"),
    (Form.V2, one(versions={Table.TOPICS: DataVersion(0, 0, 1 << 63)}), "64 bits"),
]


@pytest.mark.parametrize(("form", "model", "word"), REFUSED)
def test_what_a_form_does_not_hold_is_refused_by_name(
    tmp_path: Path, form: Form, model: BrokerMetadata, word: str
) -> None:
    with pytest.raises(RefusedStoreError) as refused:
        write_form(model, form, tmp_path)
    assert word in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("topics", "groups", "refused"),
    [
        ({"a"}, {"b@c"}, 0), ({"a@b"}, {"c"}, 0), ({"a@b"}, set(), 0),
        (set(), {"b@c"}, 0), ({"a", "a@b"}, {"b@c"}, 0), ({"a", "a@b"}, set(), 1),
        ({"a", "a@b"}, {"b@c", "c"}, 1),
    ],
)  # fmt: skip
def test_a_key_with_two_signs_is_taken_apart_by_the_tables(
    topics: set[str], groups: set[str], refused: int
) -> None:
    model = one(
        topics={name: {"topicName": name} for name in topics},
        groups={name: {"groupName": name} for name in groups},
        offsets={"a@b@c": {0: 1}},
    )
    assert len(list(refusals(model, Form.V2))) == refused


def test_a_retry_topic_is_that_of_its_group(tmp_path: Path) -> None:
    write_form(one(offsets={"%RETRY%g@x@g@x": {0: 1}}), Form.V2, tmp_path)
    (key,) = [key for _, _, key in raw_rows(tmp_path)]
    assert key[4:] == b"\0\x03g@x\x01\0\x0a%RETRY%g@x\x01\0\0\0\0"


def test_a_folder_that_is_not_empty_is_left_alone(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "config" / "rdb").mkdir(parents=True)
    other = tmp_path / "config" / "rdb" / "other"
    other.write_bytes(b"1")
    with pytest.raises(StoreIOError, match="not empty"):
        write_form(the_one(golden / Form.V2), Form.V2, tmp_path)
    assert list(other.parent.iterdir()) == [other]


# ---- what readers make of rows that only a fault writes


def v2_offset(group: str, topic_name: str, offset: int) -> tuple[bytes, bytes]:
    names = [struct.pack(">H", len(each)) + each.encode() for each in (group, topic_name)]
    return b"\1\0\1\2" + b"\1".join([*names, bytes(4)]), struct.pack(">q", offset)


def test_two_rows_of_one_key_are_named_and_the_last_one_counts(tmp_path: Path) -> None:
    rows_of_v2 = [v2_offset("b@c", "a", 5), v2_offset("c", "a@b", 7)]
    build_database(tmp_path / "config" / "rdb", {"default": rows_of_v2})
    (found,) = read_forms(StorePaths(tmp_path))
    order = sorted(rows_of_v2)
    assert found.offsets == {"a@b@c": {0: struct.unpack(">q", order[-1][1])[0]}}
    (fault,) = found.faults
    assert isinstance(fault, CorruptionError)
    assert "topic@group" in str(fault)


TOPIC, GROUP, OFFSET = b"\1\0\3\2", b"\1\0\4\2", b"\1\0\1\2"
NUMBER = struct.pack(">q", 5)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (b"\2\0\3\2\0\1a", b"\1{}", "the key does not belong to a table"),
        (b"\1\0\5\2\0\1a", b"\1{}", "5 is not a valid TableId"),
        (b"\1\0\0\2\0\1a", b"\1{}", "0 is not a valid TableId"),
        *[
            (bytes([1, 0, table, kind]) + b"\0\1a", b"\1{}", f"{kind} is not a valid RowKind")
            for table in (1, 2, 3, 4)
            for kind in (0, 3, 255)
        ],
        (b"\1\0\3\1data_versio", 3 * NUMBER, "the key is not the key of a data version"),
        (b"\1\0\2\1data_versions", 3 * NUMBER, "the key is not the key of a data version"),
        (b"\1\0\3\1data_version", 2 * NUMBER, "requires a buffer of 24 bytes"),
        (TOPIC + b"\0\1ab", b"\1{}", "the key has 1 more bytes after the name"),
        (GROUP + b"\0\1a" + b"xyz", b"\1{}", "the key has 3 more bytes after the name"),
        (TOPIC + b"\0\1a", b"\2{}", "the value has type 02: expected JSON"),
        (GROUP + b"\0\1a", b"", "the value has type none: expected JSON"),
        (TOPIC + b"\0\3ab", b"\1{}", "a name has 3 bytes, but only 2 follow"),
        (TOPIC + b"\0", b"\1{}", "requires a buffer of at least 2 bytes"),
        (OFFSET + b"\0\1a\0\0\1b\1" + bytes(4), NUMBER, "no byte 1 follows a name"),
        (OFFSET + b"\0\1a\1\0\1b\2" + bytes(4), NUMBER, "no byte 1 follows a name"),
        (OFFSET + b"\0\1a\1\0\1b\1" + bytes(3), NUMBER, "requires a buffer of 4 bytes"),
        (OFFSET + b"\0\1a\1\0\1b\1" + bytes(4), NUMBER[1:], "requires a buffer of 8 bytes"),
        (b"\1\0\3", b"\1{}", "requires a buffer of at least 4 bytes"),
    ],
)
def test_a_row_that_no_release_writes_is_named_and_the_others_are_read(
    tmp_path: Path, key: bytes, value: bytes, sentence: str
) -> None:
    rows_of_v2 = [(TOPIC + b"\0\4good", b'\1{"order":true}'), v2_offset("g", "good", 7)]
    rows = {"default": sorted([*rows_of_v2, (key, value)])}
    build_database(folder := tmp_path / "config" / "rdb", rows)
    (found,) = read_forms(StorePaths(tmp_path))
    (fault,) = found.faults
    assert isinstance(fault, CorruptionError)
    assert fault.path == folder
    assert f"invalid row {key!r}: " in str(fault)
    assert sentence in str(fault)
    assert (found.topics, found.groups) == ({"good": {"order": True}}, {})
    assert (found.offsets, found.pull_offsets) == ({"good@g": {0: 7}}, {})
    assert not found.versions


def test_a_damaged_log_of_the_database_is_named_and_what_is_before_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "rdb"
    folder.parent.mkdir()
    with closing(Rdict(str(tmp_path / "open"), Options(raw_mode=True))) as database:
        for name in (b"a", b"b", b"c"):
            database[TOPIC + b"\0\1" + name] = b"\1{}"
        shutil.copytree(tmp_path / "open", folder)  # before a close takes them into a table
    (log,) = folder.glob("*.log")
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    log.write_bytes(damaged)
    (found,) = read_forms(StorePaths(tmp_path))
    (fault,) = found.faults
    assert isinstance(fault, CorruptionError)
    assert fault.path == folder
    assert found.topics == {"a": {}}


def unlike() -> Iterator[tuple[BrokerMetadata, BrokerMetadata, str]]:
    yield one(topics={"a": {"order": True}}), one(topics={"a": {"order": 1}}), "topics"
    yield one(offsets={"a@b": {0: 1}}), one(offsets={"a@b": {0: 2}}), "offsets"
    yield one(versions={Table.TOPICS: DataVersion(0, 0, 1)}), one(), "versions"
    yield one(delay_offsets={1: 2}), one(), "delay_offsets"


@pytest.mark.parametrize(("left", "right", "table"), list(unlike()))
def test_any_field_that_differs_is_named(
    left: BrokerMetadata, right: BrokerMetadata, table: str
) -> None:
    (sentence,) = differences(left, right)
    assert sentence.startswith(f"{table} differ")


def test_an_empty_row_is_as_none() -> None:
    assert not list(differences(one(offsets={"a@b": {}}, forbidden={"g": {}}), one()))
