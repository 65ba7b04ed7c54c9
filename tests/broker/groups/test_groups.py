"""``cqstore groups``: lag by RocketMQ's own ends, and by stores whose lag is counted by hand."""

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cqstore.broker.commands.groups_show import GroupsBy, narrow
from cqstore.broker.groups.group_watch import group_view
from cqstore.broker.metadata.model import Form
from cqstore.broker.one_form import read_one_form
from cqstore.broker.topic_kind import TopicKind, group_of, topic_kind
from cqstore.cli.table import table
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import cqstore
from tests.kit.golden import load_dump
from tests.kit.metadata_forms import expected_forms, unpack_forms
from tests.kit.operating import SMALL, call, rows, write_config, write_offsets
from tests.kit.tree import unchanged

Golden = Callable[[str], Path]


@pytest.fixture(params=["file", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Ten orders in two queues, three retries and two dead letters of ``billing``."""
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend=request.param) as opened:
        for topic, queue_id, count in (
            ("orders", 0, 6), ("orders", 1, 4), ("%RETRY%billing", 0, 3), ("%DLQ%billing", 0, 2),
            ("other", 0, 5),
        ):  # fmt: skip
            for number in range(count):
                opened.put_message(Message(topic, b"%d" % number, queue_id))
    write_offsets(root, {
        "orders@billing": {0: 2, 1: 4}, "%RETRY%billing@billing": {0: 1}, "orders@audit": {0: 6},
        "other@audit": {0: 9},
    })  # fmt: skip
    write_config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {"idle": {}}})
    return root


@pytest.mark.parametrize("by", GroupsBy)
def test_a_terminal_of_eighty_columns_has_each_row_in_a_line(store: Path, by: GroupsBy) -> None:
    found = rows("groups", store, "--by", by)
    shown = io.StringIO()
    Console(width=80, file=shown).print(table(narrow(found, by), 80))
    lines = shown.getvalue().splitlines()
    heads = [line for line in lines if not re.search(r" \d", line)]
    assert 1 <= len(heads) <= 3
    assert len(lines) - len(heads) == len(found)
    assert "lag" in " ".join(heads).split()


def offsets_beside(queue: dict[str, Any]) -> int:
    """Choose an offset of a queue: below, at, within or at the end, by its id."""
    low, high = int(queue["min"]), int(queue["max"])
    return [low, high, (low + high) // 2, max(low - 1, 0)][int(queue["queueId"]) % 4]


@pytest.mark.parametrize("name", ["wide-defaultRocksDB", "special-default", "basic-combine"])
def test_lag_is_that_to_the_ends_that_rocketmq_tells(golden: Golden, name: str) -> None:
    root, queues = golden(name), load_dump(name)["queues"]
    table: dict[str, dict[int, int]] = {}
    expected = {}
    for queue in queues:
        offset = offsets_beside(queue)
        table.setdefault(f"{queue['topic']}@g", {})[queue["queueId"]] = offset
        key = queue["topic"], queue["queueId"]
        expected[key] = queue["max"] - offset, max(queue["min"] - offset, 0)
    write_offsets(root, table)
    with unchanged(root):
        found = rows("groups", root, "--by", "queue", "--group", "g")
        assert {
            (row["topic"], row["queueId"]): (row["lag"], row["expired"]) for row in found
        } == expected
    assert [row["lag"] for row in found] == sorted(
        (lag for lag, _ in expected.values()), reverse=True
    )
    whole = rows("groups", root)
    assert [(row["group"], row["lag"]) for row in whole if row["group"] == "g"] == [
        ("g", sum(row["lag"] for row in found if row["kind"] not in {"retry"}))
    ]


def test_the_next_message_is_the_one_at_the_offset(golden: Golden) -> None:
    root = golden("wide-defaultRocksDB")
    dumped = load_dump("wide-defaultRocksDB")["queues"]
    queue = max(dumped, key=lambda each: int(each["max"] - each["min"]))
    offset = (queue["min"] + queue["max"]) // 2
    unit = next(each for each in queue["units"] if each is not None and each[0] == offset)
    write_offsets(root, {f"{queue['topic']}@g": {queue["queueId"]: offset}})
    found = rows("groups", root, "--by", "queue", "--group", "g", "--topic", queue["topic"])
    (row,) = [each for each in found if each["queueId"] == queue["queueId"]]
    assert row["nextStoreTimestamp"] == unit[4]
    assert row["ageSeconds"] > 0


def test_a_group_has_its_retries_and_dead_letters_beside_its_lag(store: Path) -> None:
    found = rows("groups", store)
    names = ("group", "topics", "queues", "lag", "beyond", "uncommitted", "retryLag", "deadLetters")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("audit", 2, 3, 4, 4, 1, 0, 0),  # queue 1 of orders has no offset: all of it
        ("billing", 1, 2, 4, 0, 0, 2, 2),
        ("idle", 0, 0, 0, 0, 0, 0, 0),
    ]
    assert [row["nextStoreTimestamp"] is None for row in found] == [False, False, True]


def test_totals_are_said_on_standard_error(store: Path) -> None:
    done = call("groups", store)
    assert done.stderr == (
        "cqstore: lag 8 (0 expired) in 5 queues of 2 topics; retry lag 2, dead letters 2\n"
    )


def test_topics_of_a_group_are_a_row_each(store: Path) -> None:
    found = rows("groups", store, "--by", "topic", "--group", "billing")
    assert [(row["topic"], row["kind"], row["messages"], row["lag"]) for row in found] == [
        ("orders", "topic", 10, 4),
        ("%RETRY%billing", "retry", 3, 2),
        ("%DLQ%billing", "dlq", 2, None),
    ]  # fmt: skip


def test_what_lags_is_shown_alone(store: Path) -> None:
    assert [row["group"] for row in rows("groups", store, "--lagging")] == ["audit", "billing"]
    found = rows("groups", store, "--by", "queue", "--lagging")
    assert [(row["group"], row["topic"], row["queueId"]) for row in found] == [
        ("audit", "orders", 1), ("billing", "orders", 0), ("billing", "%RETRY%billing", 0),
        ("audit", "other", 0), ("billing", "%DLQ%billing", 0),
    ]  # fmt: skip


def test_rows_are_ordered_by_a_column_and_cut(store: Path) -> None:
    assert [row["group"] for row in rows("groups", store, "--sort", "group", "--limit", "2")] == [
        "audit", "billing"
    ]  # fmt: skip
    assert [
        row["deadLetters"] for row in rows("groups", store, "--sort", "deadLetters", "--limit", "1")
    ] == [2]
    done = call("groups", store, "--sort", "size")
    assert done.exit_code == 2
    assert "unknown column 'size': expected group, topics," in done.output.replace("\n", " ")


def test_the_same_columns_are_printed_as_csv(store: Path) -> None:
    lines = call("groups", store, "--by", "topic", "--output", "csv").stdout.splitlines()
    assert lines[0] == (
        "group,topic,kind,queues,messages,lag,expired,beyond,uncommitted,nextStoreTimestamp,ageSeconds"
    )
    assert len(lines) == 6
    assert "billing,%DLQ%billing,dlq,1,2,,0,0,0,," in lines


def test_an_offset_without_a_queue_is_shown(store: Path) -> None:
    write_offsets(store, {"gone@g": {3: 7}, "orders@g": {0: 6, 1: 4, 5: 0}})
    found = {
        (row["topic"], row["queueId"]): row
        for row in rows("groups", store, "--by", "queue", "--group", "g")
    }
    assert sorted(found) == [("gone", 3), ("orders", 0), ("orders", 1), ("orders", 5)]
    assert (found["gone", 3]["max"], found["gone", 3]["beyond"], found["gone", 3]["lag"]) == (
        0,
        7,
        0,
    )


def test_names_with_an_at_sign_are_read_by_what_is_known(store: Path) -> None:
    write_offsets(store, {
        "a@b@c": {0: 1}, "orders@x@y": {0: 1}, "p@q@r": {0: 1}, "only@c": {0: 0},
        "%RETRY%d@e@d@e": {0: 1},
    })  # fmt: skip
    write_config(store, "topics.json", {"topicConfigTable": {"a@b": {}, "orders": {}}})
    found = {(row["topic"], row["group"]) for row in rows("groups", store, "--by", "topic")}
    assert {("a@b", "c"), ("orders", "x@y"), ("p", "q@r"), ("only", "c")} <= found
    assert ("%RETRY%d@e", "d@e") in found
    said = call("groups", store).stderr.splitlines()[1:]
    assert len(said) == 1
    assert "'p@q@r'" in said[0]


@pytest.mark.parametrize("form", list(Form))
def test_every_form_of_the_metadata_gives_the_same_lag(tmp_path: Path, form: Form) -> None:
    unpack_forms(tmp_path / "forms")
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend="file") as opened:
        opened.put_message(Message("orders1", b"x", 0))
    shutil.copytree(tmp_path / "forms" / form / "config", root / "config", dirs_exist_ok=True)
    expected = {
        (key, int(queue)): offset
        for key, row in expected_forms()[form]["offsets"].items()
        for queue, offset in row.items()
        if key.startswith("orders1@")
    }
    found = rows("groups", root, "--by", "queue", "--topic", "orders1")
    shown = {
        (f"{row['topic']}@{row['group']}", row["queueId"]): row["offset"]
        for row in found
        if row["offset"] is not None
    }
    assert expected
    assert shown == expected


def test_of_several_forms_one_has_to_be_named(tmp_path: Path, store: Path) -> None:
    unpack_forms(tmp_path / "forms")
    shutil.copytree(tmp_path / "forms" / Form.V2 / "config", store / "config", dirs_exist_ok=True)
    done = call("groups", store)
    assert isinstance(done.exception, RefusedStoreError)
    assert "json, v2" in str(done.exception)
    assert {row["group"] for row in rows("groups", store, "--form", "json")} == {
        "audit",
        "billing",
        "idle",
    }
    assert "billing1" in {row["group"] for row in rows("groups", store, "--form", "v2")}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("brokerName=a", Form.JSON), ("configManagerVersion=V2 ", Form.V2),
        ("storeType=defaultRocksDB", Form.V1), ("storeType=rocksdb", Form.JSON),
        ("storeType=DefaultRocksDB\nuseSingleRocksDBForAllConfigs=true", Form.SINGLE),
        ("storeType=defaultRocksDB\nuseSingleRocksDBForAllConfigs=1", Form.V1),
    ],
)  # fmt: skip
def test_of_several_forms_the_one_of_the_configuration_is_read(
    tmp_path: Path, store: Path, text: str, form: Form
) -> None:
    unpack_forms(tmp_path / "forms")
    shutil.copytree(tmp_path / "forms" / form / "config", store / "config", dirs_exist_ok=True)
    other = Form.V2 if form is Form.JSON else Form.JSON
    shutil.copytree(tmp_path / "forms" / other / "config", store / "config", dirs_exist_ok=True)
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    assert read_one_form(StorePaths(store), None, conf).form is form
    for words in ([store], ["reset", store, "g", "--topic", "orders", "--to", 0]):
        assert isinstance(call("groups", *words).exception, RefusedStoreError)
        by_form = rows("groups", *words, "--form", form)
        assert rows("groups", *words, "--config", conf) == by_form
    with pytest.raises(RefusedStoreError, match="several forms"):
        top_groups(store)
    assert top_groups(store, conf=conf) == top_groups(store, form=form)


def top_groups(store: Path, form: Form | None = None, conf: Path | None = None) -> set[str]:
    """Return the groups that ``cqstore top --by group`` shows."""
    return {*group_view(store, StoreConfig(), form, conf, 9).watch.sample().groups}


def test_top_reads_the_form_of_the_configuration(tmp_path: Path, store: Path) -> None:
    unpack_forms(tmp_path / "forms")
    shutil.copytree(tmp_path / "forms" / Form.V2 / "config", store / "config", dirs_exist_ok=True)
    conf = tmp_path / "broker.conf"
    conf.write_text("configManagerVersion=v2\n")
    words = ["top", store, "--by", "group", "--output", "jsonl", "--config", conf]
    done = cqstore(*words)
    assert '"billing1"' in done.stdout


def test_without_metadata_there_is_no_lag(store: Path) -> None:
    shutil.rmtree(store / "config")
    done = call("groups", store)
    assert isinstance(done.exception, RefusedStoreError)
    assert str(store / "config") in str(done.exception)


def test_a_torn_table_ends_in_1_and_is_named(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-9])
    done = call("groups", store, "--output", "json")
    assert done.exit_code == 1
    assert str(path) in done.stderr
    assert [row["group"] for row in json.loads(done.stdout)] == [
        "billing",
        "idle",
    ]  # its own topics


@pytest.mark.parametrize(
    ("topic", "kind", "group"),
    [  # names as KeyBuilder and MixAll make them
        ("orders", TopicKind.TOPIC, None),
        ("%RETRY%billing", TopicKind.RETRY, "billing"),
        ("%RETRY%billing+orders", TopicKind.RETRY, "billing"),
        ("%RETRY%billing_orders", TopicKind.RETRY, "billing"),
        ("%RETRY%billing_x_orders", TopicKind.RETRY, "billing_x"),
        ("%RETRY%who_orders", TopicKind.RETRY, "who_orders"),
        ("%DLQ%billing", TopicKind.DLQ, "billing"),
        ("%LMQ%$parent$x", TopicKind.LIGHT, None),
        ("SCHEDULE_TOPIC_XXXX", TopicKind.SYSTEM, None),
        ("rmq_sys_wheel_timer", TopicKind.SYSTEM, None),
        ("RMQ_SYS_TRANS_HALF_TOPIC", TopicKind.SYSTEM, None),
    ],
)
def test_a_name_says_kind_and_group(topic: str, kind: TopicKind, group: str | None) -> None:
    assert topic_kind(topic) is kind
    assert group_of(topic, {"billing", "billing_x"}) == group
