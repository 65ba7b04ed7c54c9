"""``cqstore dlq``: dead letters that RocketMQ's store took, and some as its broker makes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.dlq import dead_letters
from cqstore.broker.dlq.dead_letters import origin_topic
from cqstore.cli.commands.import_ import import_
from cqstore.cli.message_files.message_lines import message_lines
from cqstore.store.errors import NoSuchQueueError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from tests.kit.golden import load_dump
from tests.kit.operating import SMALL, call, rows, write_offsets
from tests.kit.tree import unchanged

NEVER_MS = 10_000_000
FIRST = "7F00000100002A9F0000000000000000"


def dead(group: str, topic: str | None, times: int = 17, **more: str) -> Message:
    """Return what ``consumerSendMsgBack`` puts for a message of ``topic``; ``None``: says nothing.

    ``setWaitStoreMsgOK(false)``, ``setDelayTimeLevel(0)``, and the two properties of its origin.
    """
    properties = {"KEYS": "k", "TAGS": "a", "UNIQ_KEY": "u", **more}
    if topic is not None:
        properties |= {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": FIRST}
    properties |= {"WAIT": "false", "DELAY": "0"}
    body = f"{group} {topic} {times}".encode()
    return Message(f"%DLQ%{group}", body, 0, properties, 7, reconsume_times=times)


LETTERS = [
    dead("billing", "orders"),
    dead("billing", "orders", 1),
    dead("billing", "%RETRY%billing+refunds", 17, **{"1ST_POP_TIME": "5"}),
    dead("billing", "%RETRY%billing_refunds", 3),
    dead("billing", None),
    dead("audit", "orders", DLQ_ORIGIN_TOPIC="ledger", DLQ_ORIGIN_MESSAGE_ID="x"),
]


def put(root: Path, backend: str, messages: list[Message]) -> list[int]:
    """Put ``messages``; return their store times."""
    with MessageStore.open(root, SMALL, backend=backend) as store:
        done = store.put_messages(messages)
        assert {result.status for result in done} == {PutMessageStatus.PUT_OK}
        return [each.appended.store_timestamp for each in done if each.appended is not None]


@pytest.fixture
def store(tmp_path: Path, backend: str) -> Path:
    root = tmp_path / "store"
    orders = [Message("orders", b"x", queue_id) for queue_id in (0, 2, 5)]
    retries = [Message(topic, b"x") for topic in ("%RETRY%billing", "%RETRY%billing_refunds")]
    put(root, backend, [*LETTERS, *orders, *retries, *retries])
    return root


def shown(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found]


@pytest.mark.parametrize("name", ["wide-default", "wide-defaultRocksDB"])
def test_dead_letters_are_those_that_rocketmq_stored(golden_folder: Path, name: str) -> None:
    root = golden_folder / name
    put_there = [m for m in load_dump(name)["messages"] if m["topic"].startswith("%DLQ%")]
    (row,) = rows("dlq", root)
    printed = rows("dlq", root, "1")
    times = [m["storeTimestamp"] for m in put_there]
    names = ("group", "originTopic", "messages", "firstStoreTimestamp", "lastStoreTimestamp")
    assert shown([row], *names) == [("1", None, len(put_there), min(times), max(times))]
    assert sorted(line["phy"] for line in printed) == sorted(m["phy"] for m in put_there)
    assert len(put_there) > 1


def test_a_row_tells_where_they_came_from_and_how_often_they_were_tried(store: Path) -> None:
    with unchanged(store):
        found = rows("dlq", store)
    names = ("group", "originTopic", "messages", "leastReconsumeTimes", "mostReconsumeTimes")
    assert sorted(shown(found, *names), key=str) == sorted([
        ("audit", "ledger", 1, 17, 17), ("billing", "orders", 2, 1, 17),
        ("billing", "refunds", 2, 3, 17), ("billing", None, 1, 17, 17),
    ], key=str)  # fmt: skip
    assert call("dlq", store).stderr == "cqstore: 6 dead letters of 2 groups\n"
    by_times = rows("dlq", store, "--by", "times", "--topic", "orders")
    assert shown(by_times, "originTopic", "reconsumeTimes", "messages") == [
        ("orders", 1, 1), ("orders", 17, 1)
    ]  # fmt: skip


def test_by_group_the_backlog_of_retries_stands_beside(store: Path) -> None:
    requested = "dlq", store, "--by", "group", "--sort", "group"
    names = ("group", "topics", "messages", "retryLag")
    assert shown(rows(*requested), *names) == [("audit", 1, 1, None), ("billing", 3, 5, None)]
    assert "no broker metadata found: retryLag is unknown" in call(*requested).stderr
    write_offsets(store, {"%RETRY%billing@billing": {0: 1}, "orders@billing": {0: 0}})
    assert shown(rows(*requested), *names) == [("audit", 1, 1, 0), ("billing", 3, 5, 3)]
    write_offsets(
        store, {"%RETRY%billing@billing": {0: 1}, "%RETRY%billing_refunds@billing": {0: 9}}
    )
    assert shown(rows(*requested), *names) == [("audit", 1, 1, 0), ("billing", 3, 5, 1)]
    by_group = {row["group"]: row["retryLag"] for row in rows("groups", store)}
    assert by_group["billing"] == 1
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-9])
    rows(*requested, code=1)
    assert str(path) in call(*requested).stderr
    assert len(rows("dlq", store)) == 4  # by topic no offset is asked for


def test_times_select(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    (first,) = put(root, backend, [dead("g", "a")])
    later = first
    while later == first:
        (later,) = put(root, backend, [dead("g", "b")])
    (row,) = rows("dlq", root, "--end", first)
    assert shown([row], "originTopic", "lastStoreTimestamp") == [("a", first)]
    assert {row["originTopic"] for row in rows("dlq", root, "--begin", later)} == {"b"}
    assert call("dlq", root, "g", "--begin", later, "--format", "%t %h").stdout.startswith("%DLQ%g")
    assert rows("dlq", root, "--end", 5) == []
    assert call("dlq", root, "--end", 5).stderr == "cqstore: 0 dead letters of 0 groups\n"


def test_the_lines_of_a_group_are_those_that_get_prints(store: Path) -> None:
    with unchanged(store):
        lines = rows("dlq", store, "billing")
    assert [line["body"] for line in lines] == [
        letter.body.decode() for letter in LETTERS if letter.topic == "%DLQ%billing"
    ]
    assert lines == rows("dlq", store, "%DLQ%billing")
    assert len(rows("dlq", store, "billing", "--limit", 2)) == 2
    assert shown(lines[:1], "topic", "reconsumeTimes", "flag") == [("%DLQ%billing", 17, 7)]
    assert lines[0]["properties"]["RETRY_TOPIC"] == "orders"


def taken_back(root: Path, *words: object, code: int = 0) -> list[Message]:
    """Return what ``put`` and ``import`` make of the lines."""
    done = call("dlq", root, *words)
    assert done.exit_code == code, done.output
    return [each.message for each in message_lines(done.stdout.encode().splitlines())]


KEPT = {"KEYS": "k", "TAGS": "a", "UNIQ_KEY": "u"}


def test_again_they_are_what_they_were_before_they_failed(store: Path) -> None:
    found = taken_back(store, "billing", "--again", "topic", code=1)
    assert [(each.topic, each.queue_id) for each in found] == [
        ("orders", 0), ("orders", 2), ("refunds", 0), ("refunds", 0)
    ]  # fmt: skip
    assert {each.reconsume_times for each in found} == {0}  # else the next failure is the last
    assert {each.flag for each in found} == {7}
    for each in found:
        assert each.properties == {**KEPT, "ORIGIN_MESSAGE_ID": FIRST}
    assert found[0].body == LETTERS[0].body
    said = call("dlq", store, "billing", "--again", "topic").stderr
    assert "1 messages without an original topic are skipped" in said
    (ledger,) = taken_back(store, "audit", "--again", "topic")
    assert ledger.topic == "ledger"
    assert "DLQ_ORIGIN_TOPIC" not in ledger.properties


def test_again_to_the_group_no_other_group_gets_them(store: Path) -> None:
    found = taken_back(store, "billing", "--again", "group")
    where = [(each.topic, each.properties.get("RETRY_TOPIC")) for each in found]
    assert where == [
        ("%RETRY%billing", "orders"), ("%RETRY%billing", "orders"),
        ("%RETRY%billing_refunds", None), ("%RETRY%billing_refunds", None),
        ("%RETRY%billing", None),
    ]  # fmt: skip


def test_what_was_printed_can_be_imported(store: Path, tmp_path: Path, backend: str) -> None:
    path = tmp_path / "again.jsonl"
    path.write_text(call("dlq", store, "audit", "--again", "topic").stdout)
    import_(store, path, backend=backend)
    with MessageStore.open(store, read_only=True, backend=backend, housekeeping=False) as opened:
        (message,) = opened.get_message("ledger", 0, 0).messages()
    assert message.body == LETTERS[-1].body
    assert message.tail.reconsume_times == 0


KEYS = ["a", "b", "a", "b", "polygenelubricants"]
"""``hashCode``: 97, 98, and the least number that an ``int`` can be."""


def test_one_sharding_key_stays_in_one_queue(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    letters = [dead("g", "orders", __SHARDINGKEY=key) for key in KEYS]
    put(root, backend, [*letters, *(Message("orders", b"", at) for at in range(3))])
    found = taken_back(root, "g", "--again", "topic")
    # SelectMessageQueueByHash: the rest of 3, without its sign
    assert [each.queue_id for each in found] == [1, 2, 1, 2, 2]


def test_of_too_many_topics_the_rest_is_summed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_PARTS", 3)
    root = tmp_path / "store"
    put(root, "file", [dead("g", f"t{number % 5}") for number in range(10)])
    found = {row["originTopic"]: row["messages"] for row in rows("dlq", root)}
    assert found == {"t0": 2, "t1": 2, "t2": 2, "(others)": 4}


def test_what_no_queue_shows_yet_is_read_from_the_log(tmp_path: Path) -> None:
    config = SMALL.model_copy(update={
        "flush_interval_commit_log": NEVER_MS, "flush_interval_consume_queue": NEVER_MS,
    })  # fmt: skip
    root = tmp_path / "store"
    with MessageStore.open(root, config, backend="file") as store:
        assert store.put_message(dead("g", "orders")).ok
        assert store.metrics.snapshot().dispatch_lag_bytes > 0  # its unit waits
        assert shown(rows("dlq", root), "originTopic", "messages") == [("orders", 1)]
        assert len(rows("dlq", root, "g")) == 1


def test_damage_is_named_and_ends_in_1(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    put(root, backend, [dead("g", "orders"), dead("g", "orders")])
    path = next((root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[data.index(b"g orders 17")] ^= 1
    path.write_bytes(data)
    found = rows("dlq", root, code=1)
    assert shown(found, "messages") == [(1,)]
    assert "%DLQ%g, queue 0: unit 0 is skipped" in call("dlq", root).stderr


def test_a_group_without_dead_letters_is_refused_with_near_names(store: Path) -> None:
    done = call("dlq", store, "bilingg")
    assert isinstance(done.exception, NoSuchQueueError)
    assert "did you mean 'billing'?" in str(done.exception)


def test_csv_and_tables_are_printed_too(store: Path) -> None:
    head, *lines = call("dlq", store, "--output", "csv", "--sort", "group").stdout.splitlines()
    assert head.startswith("group,originTopic,messages,leastReconsumeTimes")
    assert len(lines) == 4
    assert "originTopic" in call("dlq", store).stdout
    assert len(json.loads(call("dlq", store, "billing", "--output", "json").stdout)) == 5


@pytest.mark.parametrize(
    ("named", "origin"),
    [
        ("orders", "orders"), ("%RETRY%g+orders", "orders"), ("%RETRY%g_a_b", "a_b"),
        ("%RETRY%g", "%RETRY%g"), ("%RETRY%g+", "%RETRY%g+"), ("%RETRY%gg+x", "%RETRY%gg+x"),
        ("%DLQ%other", "%DLQ%other"), ("", None),
    ],
)  # fmt: skip
def test_the_original_topic_is_that_of_parse_normal_topic(named: str, origin: str | None) -> None:
    assert origin_topic("g", {"RETRY_TOPIC": named}) == origin
