"""Text that is no JSON, and what fastjson2 makes of it: each value was read by RocketMQ 5.5.1.

``tests/interop/test_json_tables.py`` compares with RocketMQ itself.
"""

from pathlib import Path

import pytest

from cqstore.broker.metadata.table_kinds import FILE_KINDS, TOPIC
from cqstore.store.broker_files.fastjson import broker_object, broker_row, object_in
from cqstore.store.broker_files.fastjson_kinds import UnclearJsonError
from cqstore.store.broker_files.file_names import OFFSETS_FILE, TOPICS_FILE
from cqstore.store.errors import CorruptionError, RefusedStoreError

OFFSETS, TOPICS = FILE_KINDS[OFFSETS_FILE], FILE_KINDS[TOPICS_FILE]
TEXT = '{"dataVersion":{"counter":1},"offsetTable":{"t@g":{0:8,1:9}}}'
WHOLE = {"dataVersion": {"counter": 1}, "offsetTable": {"t@g": {0: 8, 1: 9}}}


@pytest.mark.parametrize(
    "text",
    [
        TEXT, "\ufeff" + TEXT, " \ufeff" + TEXT, TEXT + "\0" * 40, "\0" + TEXT, TEXT + "\x1a",
        TEXT + ",", TEXT + " // by hand", "/* by\nhand */" + TEXT, TEXT.replace("9}", "9,}"),
        TEXT.replace('"', "'"), TEXT.replace("8", "8.0"), TEXT.replace("8", "+8"),
        TEXT.replace("8", "08"), TEXT.replace("8", "8L"), TEXT.replace("8", "0.8e1"),
        TEXT.replace("8", '"8"'), TEXT.replace("8", "8.9"), TEXT.replace("0:", '"0":'),
        TEXT.replace("1}", '"1"}'), TEXT.replace("1}", "true}"), TEXT.replace('},"o', '}"o'),
        TEXT.replace("0:8", "0:/*x*/8"),
        TEXT.replace("\"counter\"", "\"count\\u0065r\""), TEXT.replace("}}}", "},}}"),
    ],
)  # fmt: skip
def test_a_broker_reads_it_and_so_do_we(text: str) -> None:
    assert broker_object(text.encode(), OFFSETS) == WHOLE


@pytest.mark.parametrize(
    "text",
    [
        TEXT[:-1], TEXT[:-3], TEXT + "x", TEXT + "}", TEXT + "\x0b", "[]", "5", "", " ",
        "# by hand\n" + TEXT, TEXT.replace('"counter"', "counter"), TEXT.replace("8", "8l"),
        TEXT.replace("8", "null"), TEXT.replace("8", '"x"'), TEXT.replace("8", "NaN"),
        TEXT.replace("8", str(1 << 63)), TEXT.replace('{"counter":1}', "1"),
        TEXT.replace("{0:8,1:9}", "null"), TEXT.replace("{0:8,1:9}", "8"),
        TEXT.replace("0:", "99999999999:"), TEXT.replace("8,", "8,,"), TEXT.replace('{"d', '{,"d'),
        '{"x":1 "offsetTable":{}}', '{"x":[1,],"offsetTable":{}}', '{"x":1,"x":"\\q"}',
        TEXT.replace("0:8", '"t":8'), "{" * 3000, "[" * 3000,
    ],
)  # fmt: skip
def test_a_broker_refuses_it_and_so_do_we(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|null|nested") as caught:
        broker_object(text.encode(), OFFSETS)
    assert not isinstance(caught.value, UnclearJsonError)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("{0:8,1:9}", '{"$ref":"$"}'), TEXT.replace("8", '"2020-01-01 00:00:00"'),
        TEXT.replace("8,", "8\u00a0,"), TEXT.replace("t@g", "\\u00G0"), TEXT.replace("8", "1e9999"),
        TEXT.replace("8", "9" * 500 + ".5"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_taken_for_torn(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnclearJsonError):
        broker_object(text.encode(), OFFSETS)
    with pytest.raises(RefusedStoreError, match="cannot determine how a broker reads this file"):
        object_in(tmp_path / "x", text.encode(), OFFSETS)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("readQueueNums", "null", 0), ("readQueueNums", '""', 0), ("readQueueNums", '"8"', 8),
        ("readQueueNums", "[8]", 8), ("readQueueNums", "{}", 0), ("readQueueNums", "8D", 8),
        ("readQueueNums", '"1,000"', 1000), ("readQueueNums", "1e30", (1 << 31) - 1),
        ("readQueueNums", "9223372036854775807.5", -1), ("readQueueNums", '"1e2"', 100),
        ("order", "1", True), ("order", "-1", True), ("order", "2", False), ("order", "1L", False),
        ("order", '"TRUE"', True), ("order", '"Y"', True), ("order", "null", False),
        ("topicFilterType", '"multi_tag"', "MULTI_TAG"), ("topicFilterType", "1", "MULTI_TAG"),
        ("topicFilterType", '"X"', None), ("topicName", '"a\nb"', "a\nb"),
        ("topicName", "'a\"b'", 'a"b'), ("topicName", '"\\x41\\v\\7"', "A\v\7"),
        ("topicName", '"\\ud83d\\ude00"', "\U0001f600"), ("topicName", "8.50", "8.50"),
        ("topicName", "1e2", "100.0"), ("topicName", "1e30", "1.0E30"),
        ("topicName", "true", "true"),
        ("topicName", "[1, {'a': 2}]", '[1,{"a":2}]'), ("attributes", "null", None),
        ("attributes", '{"a":null}', {"a": None}), ("attributes", '{"a":5 "b":1.50}',
         {"a": "5", "b": "1.50"}),
    ],
)  # fmt: skip
def test_a_field_is_converted_as_its_kind_says(field: str, text: str, value: object) -> None:
    assert broker_row(f'{{"{field}":{text}}}'.encode(), TOPIC) == {field: value}
    table = f'{{"topicConfigTable":{{"t":{{"{field}":{text},}}}}}}'  # by the lenient reader
    assert broker_object(table.encode(), TOPICS) == {"topicConfigTable": {"t": {field: value}}}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("readQueueNums", '"x"'), ("readQueueNums", str(1 << 31)), ("readQueueNums", "[]"),
        ("order", '"yes"'), ("order", '"T"'), ("order", "+1"), ("order", "{}"),
        ("topicFilterType", "2"), ("topicFilterType", "true"), ("topicName", ".5"),
        ("attributes", "[]"), ("attributes", '{"a":"b"/*x*/}'),
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_refused_by_name(field: str, text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*expected"):
        broker_row(f'{{"{field}":{text}}}'.encode(), TOPIC)


def test_fields_that_a_broker_does_not_know_stay_as_they_are() -> None:
    row = broker_row(b'{"perm":6,"new":{"a":[1,2.5,null,true,"x"]}}', TOPIC)
    assert row == {"perm": 6, "new": {"a": [1, 2.5, None, True, "x"]}}


def test_null_is_a_file_without_tables_and_no_row(tmp_path: Path) -> None:
    assert broker_object(b"null", OFFSETS) == {}
    with pytest.raises(ValueError, match="null"):
        broker_row(b"null", TOPIC)
    with pytest.raises(CorruptionError, match=r"a broker cannot read this file: char 0"):
        object_in(tmp_path / "x", b"nul", OFFSETS)


def test_bytes_that_are_no_text_are_read_as_java_reads_them() -> None:
    assert broker_object(b'{"topicConfigTable":{"\xff\xfe":{}}}', TOPICS) == {
        "topicConfigTable": {"\ufffd\ufffd": {}}
    }
