"""The command line as a user meets it: what it prints, its exit codes, and what it leaves alone."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.commands import COMMAND, cqstore
from tests.kit.golden import CLEAN, CRASHED, NAMES, load_dump
from tests.kit.tree import tree_digest, unchanged

Golden = Callable[[str], Path]
pytestmark = pytest.mark.disk  # `put` makes log files of a gigabyte where it is given no size


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", ["special-default", "basic533-defaultRocksDB", "ext-default"])
def test_dumps_are_rocketmqs_line_by_line_and_change_no_byte(golden: Golden, name: str) -> None:
    root, dump = golden(name), load_dump(name)
    with unchanged(root):
        messages = lines(cqstore("dump", root, "--messages", "--output", "jsonl"))
        for message in messages:
            del message["body"], message["msgId"]
        assert messages == dump["messages"]
        assert lines(cqstore("dump", root, "--queues", "--output", "jsonl")) == dump["queues"]


@pytest.mark.parametrize(
    "name",
    [
        "crash-defaultRocksDB", "torn-default", "basic-combine",
        pytest.param("wide-combine", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_reading_verbs_change_no_byte(golden: Golden, name: str) -> None:
    root, dump = golden(name), load_dump(name)
    before = tree_digest(root)
    topic = dump["queues"][0]["topic"]
    crashed = name in CRASHED
    cqstore("info", root)
    cqstore("check", root, code=1 if crashed else 0)
    cqstore("topics", root, "--prefix", topic)
    cqstore("get", root, "--topic", topic)
    cqstore("offset", root, "--topic", topic, "--time", "0")
    done = cqstore("dump", root, "--messages", "--output", "jsonl")
    assert ("needs recovery" in done.stderr) is crashed
    assert len(lines(done)) == len(dump["messages"])
    assert tree_digest(root) == before


@pytest.mark.parametrize(
    ("name", "value", "allowed", "stored"),
    [
        ("DELAY", "3", "false", False), ("DELAY", "x", "false", False),
        ("TIMER_DELAY_SEC", "60", "false", False), ("TIMER_DELIVER_MS", "1", "false", False),
        ("DELAY", "0", "false", True), ("DELAY", "3", "true", True),
    ],
)  # fmt: skip
def test_a_message_that_asks_for_a_delay_is_refused_and_named(
    tmp_path: Path, name: str, value: str, allowed: str, *, stored: bool
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog=65536\nallowDelayWithoutService={allowed}\n")
    feed = "".join(
        json.dumps({"topic": "t", "body": body, "properties": properties}) + "\n"
        for body, properties in (("first", {}), ("late", {name: value}), ("last", {}))
    )
    first, late, last = lines(
        cqstore("put", root, "--new", "--config", conf, feed=feed, code=0 if stored else 1)
    )
    assert (first["status"], last["status"]) == ("PUT_OK", "PUT_OK")
    assert late["status"] == ("PUT_OK" if stored else "MESSAGE_ILLEGAL")
    assert (f"{name} is {value!r}" in str(late["reason"])) is not stored
    assert ("allowDelayWithoutService" in str(late["reason"])) is not stored
    read = cqstore("get", root, "--topic", "t", "--output", "jsonl")
    got = [line["body"] for line in lines(read)]
    assert got == (["first", "late", "last"] if stored else ["first", "last"])


def test_every_golden_store_is_told_clean_from_crashed(golden: Golden) -> None:
    for name in ("basic-default", "hole-defaultRocksDB"):
        facts = json.loads(cqstore("info", golden(name), "--output", "json").stdout)
        assert facts["last_exit"] == ("clean" if name in CLEAN else "not clean")
    assert set(CLEAN) | set(CRASHED) == set(NAMES)


def test_recover_then_dump_is_what_rocketmq_read_after_its_recovery(golden: Golden) -> None:
    root, dump = golden("torn-defaultRocksDB"), load_dump("torn-defaultRocksDB")
    report = json.loads(cqstore("recover", root, "--output", "json").stdout)
    assert report["droppedBytes"] > 0
    assert lines(cqstore("dump", root, "--queues", "--output", "jsonl")) == dump["queues"]
    again = json.loads(cqstore("recover", root, "--output", "json").stdout)
    assert (again["droppedBytes"], again["dispatchedUnits"]) == (0, 0)
    cqstore("check", root)


def test_put_and_get(tmp_path: Path) -> None:
    root = tmp_path / "new"
    conf = tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\nmappedFileSizeCommitLog=65536\nbrokerName=b\n")
    feed = '{"topic":"t","body":"hé","tags":"A","keys":"k1 k2"}\n\n' * 3
    feed += '{"topic":"t","bodyBase64":"/w==","queueId":1,"properties":{"n":"v"}}\n'
    done = cqstore("put", root, "--new", "--config", conf, feed=feed)
    assert done.stderr == ""
    assert [line["status"] for line in lines(done)] == ["PUT_OK"] * 4
    found = lines(cqstore("get", root, "--topic", "t", "--tags", "A"))
    assert [(line["queueOffset"], line["body"]) for line in found] == [(n, "hé") for n in range(3)]
    (raw,) = lines(cqstore("get", root, "--topic", "t", "--queue-id", "1"))
    assert (raw["bodyBase64"], raw["properties"]) == ("/w==", {"n": "v"})
    assert len(lines(cqstore("get", root, "--topic", "t", "--key", "k2"))) == 3
    by_id = lines(cqstore("get", root, "--message-id", raw["msgId"]))
    assert by_id == [raw]
    one = cqstore("put", root, "--topic", "t", "--body", "x", "--property", "a=b")
    assert lines(one)[0]["queueOffset"] == 3
    cqstore("put", root, "--topic", "t" * 200, "--body", "x", code=1)
    units = lines(
        cqstore("dump", root, "--topic", "t", "--offset", 1, "--count", 2, "--output", "jsonl")
    )
    assert [unit["queueOffset"] for unit in units] == [1, 2]
    record = cqstore("dump", root, "--commitlog-offset", units[0]["phy"], "--output", "json")
    assert json.loads(record.stdout)["queueOffset"] == 1
    lower = cqstore("offset", root, "--topic", "t", "--time", "2001-01-01", "--output", "json")
    assert json.loads(lower.stdout)["offset"] == 0


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("commitlog/00000000000000262144", "storeSize"),
        ("consumequeue/orders_1/0/00000000000000000000", "tags_code"),
        ("batchconsumequeue/batch_1/0/00000000000000000000", "batch_size"),
        ("checkpoint", "physic_msg_timestamp"),
    ],
)
def test_bare_files_are_decoded(golden: Golden, path: str, field: str) -> None:
    rows = lines(cqstore("dump", golden("special-default") / path, "--output", "jsonl"))
    assert field in rows[0]


def test_a_file_taken_out_of_its_folders_is_known_by_its_content(
    golden: Golden, tmp_path: Path
) -> None:
    root = golden("special-default")
    for path, field in (
        ("consumequeue/orders_1/1/00000000000000000000", "tags_code"),
        ("commitlog/00000000000000262144", "storeSize"),
    ):
        taken = tmp_path / "taken" / Path(path).name
        taken.parent.mkdir(exist_ok=True)
        taken.write_bytes((root / path).read_bytes())
        inside = cqstore("dump", root / path, "--output", "jsonl").stdout
        assert cqstore("dump", taken, "--output", "jsonl").stdout == inside
        assert field in inside


def test_a_bare_index_file_is_decoded(golden: Golden) -> None:
    (path, *_) = sorted((golden("special-default") / "index").iterdir())
    rows = lines(cqstore("dump", path, "--output", "jsonl"))
    assert len(rows) > 100
    assert {"key_hash", "phy_offset"} <= rows[0].keys()


@pytest.mark.parametrize("feed", ["not json", "[1]", '{"body":"x"}', '{"topic":"t","colour":1}'])
def test_input_that_is_no_message_is_refused(tmp_path: Path, feed: str) -> None:
    assert "line 1" in cqstore("put", tmp_path / "s", "--new", feed=feed, code=2).stderr


@pytest.mark.parametrize("bad", [1, 300])
def test_what_was_put_before_a_bad_line_is_told_in_a_whole_document(
    tmp_path: Path, bad: int
) -> None:
    feed = '{"topic":"t"}\n' * (bad - 1) + "not json\n"
    for number, form in enumerate(("json", "jsonl", "table")):
        done = cqstore("put", tmp_path / form, "--new", "--output", form, feed=feed, code=2)
        assert f"line {bad}" in done.stderr
        whole = bad - 1
        assert done.stdout.count("PUT_OK") == whole
        way = f"{whole} messages before it were appended; continue with --continue-from {bad}"
        assert way in done.stderr
        if not number:
            assert len(json.loads(done.stdout)) == whole


def test_keys_that_are_not_ours_are_named_where_they_matter(golden: Golden, tmp_path: Path) -> None:
    root, conf = golden("basic-default"), tmp_path / "broker.conf"
    conf.write_text("haListenPort=10912\nbrokerName=b\n")
    assert cqstore("info", root, "--config", conf).stderr == ""
    output = cqstore("--verbose", "info", root, "--config", conf).stderr
    assert output.splitlines() == [
        f"cqstore: {conf}: cqstore ignores brokerName (names, addresses and registration at name"
        " servers)",
        f"cqstore: {conf}: cqstore ignores haListenPort (replication of a broker; follow and feed"
        " have options of their own)",
    ]
    conf.write_text("flushDiskTyp=SYNC_FLUSH\nhaListenPort=10912\n")
    output = cqstore("info", root, "--config", conf).stderr
    assert output == (
        f"cqstore: {conf}: flushDiskTyp is not a setting of cqstore: did you mean flushDiskType?\n"
    )


def test_a_promise_of_replicas_keeps_out_puts_alone(golden: Golden, tmp_path: Path) -> None:
    root, conf = golden("crash-default"), tmp_path / "broker.conf"
    conf.write_text("brokerRole=SYNC_MASTER\n")
    with unchanged(root):
        done = cqstore("put", root, "--topic", "t", "--body", "b", "--config", conf, code=2)
        assert "brokerRole=SYNC_MASTER promises replicas" in done.stderr
    cqstore("recover", root, "--config", conf)
    cqstore("check", root, "--config", conf)


def test_a_reader_that_leaves_is_no_fault(golden: Golden) -> None:
    root = golden("basic-default")
    text = f"{COMMAND[0]} dump {root} --messages --output jsonl | head -1"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["phy"] == 0
    assert done.stderr == ""


def test_the_version_and_the_help() -> None:
    assert cqstore("--version").stdout.startswith("cqstore ")
    for verb in ("info", "check", "dump", "get", "put", "topics", "offset", "recover", "top"):
        assert verb in cqstore(verb, "--help").stdout


def test_messages_are_queried_by_key_and_time(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, backend="file") as store:
        for number in range(5):
            keys = {"KEYS": f"k{number % 2} all"}
            assert store.put_message(Message("t", b"%d" % number, 0, keys)).ok
    found = lines(cqstore("query", root, "--topic", "t", "--key", "k1"))
    assert [(row["body"], row["queueOffset"]) for row in found] == [("1", 1), ("3", 3)]
    assert len(lines(cqstore("query", root, "--topic", "t", "--key", "all", "--max", 2))) == 2
    late = cqstore("query", root, "--topic", "t", "--key", "all", "--begin", "2999-01-01")
    assert lines(late) == []
    assert "0 messages" in late.stderr
    assert cqstore("query", root, "--topic", "u", "--key", "all", code=2).stdout == ""
    cqstore("query", root, "--topic", "t", "--key", "all", "--begin", "soon", code=2)
    cqstore("query", root, "--topic", "t", code=2)
