"""Operations: lines of a trace that were recorded or written by hand, and how answers are told."""

import json
from pathlib import Path
from typing import get_args

import pytest

from cqstore.ab.trace.operation_lines import (
    FIELDS,
    MASTER,
    StoreOp,
    first_line,
    last_line,
    operation_line,
)
from cqstore.ab.trace.operations import (
    Operation,
    Pull,
    Put,
    Query,
    TimeSearch,
    read_trace,
    trace_lines,
)
from cqstore.ab.trace.trace_control import record_trace
from cqstore.ab.trace.trace_marks import KILLED
from cqstore.ab.workloads.timing import run_closed
from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from tests.ab.made_store import CONFIG, make_varied_store


def test_the_fields_of_a_recorded_line_are_those_of_the_operation() -> None:
    kinds = {kind.model_fields["op"].default: kind for kind in (*get_args(Operation), Query)}
    for op in StoreOp:
        fields = {field.alias or name for name, field in kinds[op].model_fields.items()}
        assert fields - {"op", "at"} == set(FIELDS[op]), op
    assert kinds.keys() - set(StoreOp) == {"listQueues"}


def test_what_a_store_has_recorded_is_read_and_written_back_alike(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 200)
    path = tmp_path / "trace"
    with MessageStore.open(tmp_path / "s", CONFIG) as store, record_trace(store, path):
        store.get_message("hot", 1, 3, 5, TagFilter("rare || often"))
        store.get_message("half \ud800", 0, -1, 0)
        store.min_offset("hot", 1)
        store.estimate_message_count("hot", 1, 0, 9, TagFilter("often"))
        list(store.topics("h"))
        store.query_message("hot", "k")
        store.put_message(Message("hot", b"12345", 1, {"TAGS": "t"}))
    operations, queries, recorded, missing = read_trace(path)
    assert (queries, recorded, missing) == (1, True, ())
    assert [each.op for each in operations] == [
        "pull", "pull", "minOffset", "estimate", "listTopics", "put",
    ]  # fmt: skip
    assert operations[1].model_dump()["topic"] == "half \ud800"
    again = tmp_path / "again"
    again.write_bytes(b"".join(trace_lines(operations)))
    assert read_trace(again) == (operations, 0, False, ())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "line 2 is not valid JSON"),
        (b"\xff\xfe", "line 2 is not valid JSON"),
        (b'{"op":"pul"}', "line 2 is not a valid operation"),
        (
            b'{"op":"pull","topic":"t","queueId":0}',
            "line 2 is not a valid operation: offset: Field required",
        ),
        (b'{"op":"pull","topic":"t","queueId":"x","offset":1}', "queueId: Input should be a valid"),
        (b'{"op":"pull","topic":5,"queueId":0,"offset":1}', "topic: Input should be"),
        (b'{"op":"minOffset","topic":"t","queueId":0,"more":1}', "more: Extra inputs"),
        (b'{"op":"minOffset","topic":"t","at":-1}', "at: Input should be greater"),
        (b'{"op":"put","topic":"t","size":-1}', "size: Input should be greater"),
        (b'{"op":"put","topic":"t","size":4194305}', "size: Input should be less"),
        (b'{"op":"minOffset","topic":"t","at":Infinity}', "at: Input should be a finite number"),
        (b'{"op":"minOffset","topic":"t","at":NaN}', "at: Input should be a finite number"),
        (b"[]", "line 2 is not a valid operation"),
        (first_line(17), "line 2 is not a valid operation"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: bytes, sentence: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(operation_line(StoreOp.MIN_OFFSET, ("t", 0), 0.5) + line + b"\n")
    with pytest.raises(StoreConfigError) as reported:
        read_trace(path)
    assert sentence in str(reported.value)
    assert str(path) in str(reported.value)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            '{"trace":"made up","time":5}',
            "line 1 is not a valid operation: trace: Input should be 'rec",
        ),
        ('{"trace":"recorded"}', "line 1 is not a valid operation: time: Field required"),
        (
            '{"trace":"recorded","time":5,"op":"put"}',
            "line 1 is not a valid operation: op: Extra inputs",
        ),
    ],
)
def test_a_first_line_is_as_a_store_writes_it(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "trace"
    path.write_text(f'{line}\n{{"op":"minOffset","topic":"t"}}\n')
    with pytest.raises(StoreConfigError) as reported:
        read_trace(path)
    assert sentence in str(reported.value)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"trace":"end"}', "line 3 is not a valid operation: at: Field required"),
        (b'{"trace":"end","at":-1,"missing":[]}', "at: Input should be greater"),
        (b'{"trace":"end","at":1,"missing":"x"}', "missing: Input should be a valid list"),
        (last_line(1.0, []) + last_line(1.0, []), "line 4 follows the last line"),
        (last_line(1.0, []) + b'{"op":"listTopics"}', "line 4 follows the last line"),
        (b'{"trace":"beginning"}', "line 3 is not a valid operation"),
    ],
)
def test_a_last_line_is_last_and_as_a_recording_writes_it(
    tmp_path: Path, line: bytes, sentence: str
) -> None:
    operation = operation_line(StoreOp.MIN_OFFSET, ("t", 0), 0.5)
    (tmp_path / "trace").write_bytes(first_line(17, MASTER) + operation + line)
    with pytest.raises(StoreConfigError, match=sentence):
        read_trace(tmp_path / "trace")


def test_what_a_recording_lacks_is_read_after_the_last_operation_too(tmp_path: Path) -> None:
    path, operation = tmp_path / "trace", operation_line(StoreOp.MIN_OFFSET, ("t", 0), 0.5)
    missing = ['"5" puts\n are missing']
    end = last_line(1.0, missing)
    path.write_bytes(first_line(17, MASTER) + operation * 5 + end)
    assert read_trace(path)[1:] == (0, True, missing)
    found = read_trace(path, limit=2)
    assert (len(found.operations), found.missing) == (2, missing)
    path.write_bytes(first_line(17, MASTER) + operation * 5)
    assert read_trace(path).missing == read_trace(path, limit=2).missing == (KILLED,)
    path.write_bytes(first_line(17) + operation * 5 + b"not read")
    assert read_trace(path, limit=5).missing == ()


def test_a_trace_without_an_operation_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for nothing in (b"\n\n", first_line(17)):
        (tmp_path / "empty").write_bytes(nothing)
        with pytest.raises(StoreConfigError, match="no operation"):
            read_trace(tmp_path / "empty")
    with pytest.raises(RefusedStoreError, match="no such file"):
        read_trace(tmp_path / "nowhere")


def test_lines_without_a_word_are_passed_over_and_counted(tmp_path: Path) -> None:
    line = operation_line(StoreOp.MAX_OFFSET, ("t", 0), 0)
    (tmp_path / "trace").write_bytes(b"\n" + line + b"\n  \n" + line)
    assert len(read_trace(tmp_path / "trace").operations) == 2
    (tmp_path / "trace").write_bytes(b"\n" + line + b"\n  \n{\n")
    with pytest.raises(StoreConfigError, match="line 5 is not valid JSON"):
        read_trace(tmp_path / "trace")


def test_no_more_lines_are_read_than_asked_for(tmp_path: Path) -> None:
    line = operation_line(StoreOp.MAX_OFFSET, ("t", 0), 0)
    (tmp_path / "trace").write_bytes(line * 9)
    assert len(read_trace(tmp_path / "trace", limit=4)[0]) == 4


def test_what_a_line_leaves_out_is_the_first_queue_and_a_batch_of_consumers(tmp_path: Path) -> None:
    short = (
        '{"op":"pull","topic":"t","offset":5}',
        '{"op":"timeSearch","topic":"t","timestamp":7}',
        '{"op":"put","topic":"t"}',
        '{"op":"listTopics"}',
        '{"op":"listQueues"}',
    )
    whole = (
        '{"op":"pull","topic":"t","queueId":0,"offset":5,"count":32}',
        '{"op":"timeSearch","topic":"t","queueId":0,"timestamp":7,"boundary":"lower"}',
        '{"op":"put","topic":"t","queueId":0,"size":0}',
        '{"op":"listTopics","prefix":""}',
        '{"op":"listQueues"}',
    )
    (tmp_path / "short").write_text("\n".join(short))
    (tmp_path / "whole").write_text("\n".join(whole))
    operations = read_trace(tmp_path / "short").operations
    reported = [json.loads(line) for line in trace_lines(operations)]
    assert reported == [json.loads(line) for line in whole]
    assert read_trace(tmp_path / "whole").operations == operations


def test_a_put_has_up_to_four_mebibytes_and_a_byte_at_least(tmp_path: Path) -> None:
    assert Put(topic="t", size=4 << 20).size == 4_194_304
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        for size in (0, 1, 2):
            Put(topic="t", size=size).bind(store)()
        bodies = [message.body for message in store.get_message("t", 0, 0, 3).messages()]
    assert bodies == [bytes(1), bytes(1), bytes(2)]


def test_an_operation_is_a_value() -> None:
    pull = Pull(topic="t", offset=5)
    with pytest.raises(ValueError, match="frozen"):
        pull.offset = 6  # type: ignore[misc]
    assert hash(pull) == hash(Pull(topic="t", offset=5))


def test_an_answer_is_told_by_all_that_a_reader_sees_of_it(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 400)
    pull = Pull(topic="hot", queue_id=1, offset=20, count=4)
    operations: list[Operation] = [
        pull, pull.model_copy(update={"tags": "often"}), pull.model_copy(update={"offset": 10**6}),
        TimeSearch(topic="hot", queue_id=1, timestamp=0), Put(topic="", size=3), Put(topic="new"),
    ]  # fmt: skip
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        expected = store.get_message("hot", 1, 20, 4)
        reported = run_closed(operations, store)
        low, high = store.min_offset("hot", 1), store.max_offset("hot", 1)
    first, filtered, beyond, time, illegal, put = reported.answers
    assert first.startswith(f"FOUND, next 24, min {low}, max {high}, messages 20 to 23")
    assert f"{sum(map(len, expected.records))} bytes" in first
    assert filtered.startswith("FOUND, next ")
    assert beyond.startswith(f"OFFSET_OVERFLOW_BADLY, next {high}, ")
    assert time == str(low)
    assert illegal == "MESSAGE_ILLEGAL, offset -1"
    assert put == "PUT_OK, offset 0"
    assert reported.items == 4 + 4 + 0 + 1 + 0 + 1


def test_one_byte_of_a_record_changes_how_it_is_told(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 200)
    pull = Pull(topic="hot", queue_id=1, offset=15, count=4)
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        result = store.get_message("hot", 1, 15, 4)
        before = pull.to_text(result)
        changed = bytearray(result.records[2])
        changed[-1] ^= 1
        result.records[2] = memoryview(changed)
        assert pull.to_text(result) != before
