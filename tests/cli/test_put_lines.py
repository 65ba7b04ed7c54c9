"""Lines of JSON that ``put`` reads: what each field may be, and what follows a bad line."""

import json
from pathlib import Path

import pytest

from cqstore.cli.commands.put import put_all
from cqstore.cli.message_files.message_lines import message_lines
from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import cqstore, run

SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16)


def read(*lines: bytes, first: int = 1) -> list[tuple[int, Message]]:
    return [(line.number, line.message) for line in message_lines(lines, first)]


REFUSED = [
    ('{"topic":"t","body":null}', "line 1: body is null, not a string"),
    ('{"topic":"t","body":1}', "line 1: body is 1, not a string"),
    ('{"topic":"t","body":["x"]}', 'line 1: body is ["x"], not a string'),
    ('{"topic":"t","bodyBase64":5}', "line 1: bodyBase64 is 5, not a string"),
    ('{"topic":"t","bodyBase64":"a"}', "line 1: bodyBase64 is not Base64"),
    ('{"topic":"t","bodyBase64":"\u00e9"}', "line 1: bodyBase64 is not Base64"),
    ('{"topic":"t","body":"a","bodyBase64":"YQ=="}', "body and bodyBase64 are both given"),
    ('{"topic":"t","tags":["x"]}', 'line 1: tags is ["x"], not a string'),
    ('{"topic":"t","tags":true}', "line 1: tags is true, not a string"),
    ('{"topic":"t","keys":7}', "line 1: keys is 7, not a string"),
    ('{"topic":"t","keys":["a",1]}', "line 1: an element of keys is 1, not a string"),
    ('{"topic":"t","keys":["a b"]}', "a space, which separates keys"),
    ('{"topic":"t","keys":[""]}', "a space, which separates keys"),
    ('{"topic":"t","tags":"a || b"}', "which separates the tags of a filter"),
    ('{"topic":"t","tags":" "}', "which separates the tags of a filter"),
    ('{"topic":"t","properties":{"a":{"b":1}}}', 'property a is {"b": 1}, not a string'),
    ('{"topic":"t","properties":{"a":null}}', "property a is null, not a string"),
    ('{"topic":"t","properties":[]}', "properties is [], not an object"),
    ('{"topic":"t","properties":{"TAGS":"a"},"tags":"b"}', "tags and the property TAGS are both"),
    ('{"topic":"t","queueId":"0"}', 'queueId is "0", not a whole number'),
    ('{"topic":"t","queueId":true}', "queueId is true, not a whole number"),
    ('{"topic":"t","queueId":1.0}', "queueId is 1.0, not a whole number"),
    ('{"topic":"t","queueId":-1}', "queueId is -1, not within 0 to 2147483647"),
    ('{"topic":"t","flag":2147483648}', "flag is 2147483648, not within"),
    ('{"topic":null}', "topic is null, not a string"),
    ('{"body":"x"}', "topic is null, not a string"),
    ('{"topic":"t","topic":"u"}', "topic is given twice"),
    ('{"topic":"t","properties":{"a":"1","a":"2"}}', "a is given twice"),
    ('{"topic":"t","Body":"x"}', "unknown fields: Body; known fields: topic, queueId, body"),
    ('{"topic":"t","body":"\\ud800"}', "body has an unpaired surrogate at character 1"),
    ("[1]", "[1] is not a JSON object"),
    ("{", "invalid JSON"),
    ("[" * 100_000, "invalid JSON"),
]


@pytest.mark.parametrize(("line", "words"), REFUSED, ids=range(len(REFUSED)))
def test_a_value_of_another_type_is_refused_by_line_and_field(line: str, words: str) -> None:
    with pytest.raises(IllegalMessageError) as refused:
        read(line.encode())
    assert words in str(refused.value)
    assert str(refused.value).startswith("line 1: ")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(IllegalMessageError, match=r"line 2: byte 23 is not UTF-8 .* bodyBase64"):
        read(b"", b'{"topic":"t","body":"a\xff"}')


def test_all_fields_and_those_that_are_left_out() -> None:
    line = {
        "topic": "t", "queueId": 3, "body": "\u00e9\U0001f600", "properties": {"a": "1"},
        "tags": "x", "keys": ["k1", "k2"], "flag": -1,
    }  # fmt: skip
    bare = {"topic": "t", "properties": None, "tags": None, "keys": None}
    (_, one), (_, two), (number, three) = read(
        json.dumps(line).encode(), json.dumps(bare).encode(), b" ",
        b'{"topic":"t","bodyBase64":"/wA=","keys":"a b"}',
    )  # fmt: skip
    assert (one.topic, one.queue_id, one.flag) == ("t", 3, -1)
    assert bytes(one.body) == "\u00e9\U0001f600".encode()
    assert one.properties == {"a": "1", "TAGS": "x", "KEYS": "k1 k2"}
    assert (bytes(two.body), two.properties, two.queue_id, two.flag) == (b"", {}, 0, 0)
    assert (number, bytes(three.body), three.properties) == (4, b"\xff\0", {"KEYS": "a b"})


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 512, 513])
def test_every_line_is_put_whatever_their_number(tmp_path: Path, count: int) -> None:
    with MessageStore.open(tmp_path / "s", SMALL, backend="file") as store:
        lines = message_lines(b'{"topic":"t","flag":%d}' % number for number in range(count))
        results = [*put_all(store, lines)]
        assert [result.queue_offset for result in results] == [*range(count)]
        assert store.max_offset("t", 0) == count


def test_what_follows_a_bad_line_is_put_once_it_is_mended(tmp_path: Path) -> None:
    root = tmp_path / "store"
    MessageStore.open(root, SMALL, backend="file").close()
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\n")
    lines = [json.dumps({"topic": "t", "body": str(number)}) for number in range(600)]
    broken = [*lines[:400], '{"topic":"t","body":null}', *lines[401:]]
    done = cqstore("put", root, "--config", conf, feed="\n".join(broken), code=2)
    assert "line 401: body is null" in done.stderr
    way = "400 messages before it were appended; continue with --continue-from 401"
    assert way in done.stderr
    words = ["put", root, "--config", conf, "--continue-from", 401]
    assert run(words, "\n".join(lines)).returncode == 0
    with MessageStore.open(root, SMALL, backend="file") as store:
        bodies = list[str]()
        while len(bodies) < 600:
            found = store.get_message("t", 0, len(bodies), 600).messages()
            bodies += [bytes(message.body).decode() for message in found]
    assert bodies == [str(number) for number in range(600)]
