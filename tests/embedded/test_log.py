"""The log: puts by key, the table of topics, reads by time, and what is refused."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import cqstore
from cqstore import (
    IllegalMessageError,
    MessageStore,
    PutMessageStatus,
    PutRefusedError,
    ReadOnlyStoreError,
    RefusedStoreError,
    StoreClosedError,
    StoreLockedError,
)
from cqstore.store.errors import CorruptionError, StoreError, StoreIOError
from cqstore.store.record.message import Message
from cqstore.store.service.opening.components import components_of
from tests.embedded.test_tail import take
from tests.kit.faults import ENOSPC, Faults
from tests.kit.logs import BACKENDS, CONFIG, opened
from tests.kit.own_threads import own_threads
from tests.kit.tree import unchanged
from tests.kit.waiting import run

KEYS = ["a", "order-42", "polygenelubricants", "prüfung"]


def java_string_hash(text: str) -> int:
    """As the documentation of ``java.lang.String.hashCode`` says, in signed 32 bits."""
    found = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        found = (31 * found + int.from_bytes(data[at : at + 2])) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def topics_file(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config" / "topics.json").read_text())
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_put_is_read_after_a_restart(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend) as log:
        for number in range(50):
            log.put("orders", b"%d" % number, key=f"k{number}", tags="new", properties={"a": "b"})
    with opened(tmp_path, backend) as log:
        found = list(log.read("orders"))
        assert [message.body for message in found] == [b"%d" % number for number in range(50)]
        assert [message.key for message in found] == [f"k{number}" for number in range(50)]
        assert {(message.topic, message.tags) for message in found} == {("orders", "new")}
        assert found[0].properties["a"] == "b"
        assert log.topics() == ["orders"]
        assert list(log.read("nothing")) == []
    times = [message.store_timestamp for message in found]
    assert times == sorted(times)
    assert found[0].stored_at == datetime.fromtimestamp(times[0] / 1000, UTC)


@pytest.mark.parametrize("key", [*KEYS, "\U0001f600", "x" * 100])
def test_a_key_chooses_the_queue_that_a_producer_of_rocketmq_would(
    tmp_path: Path, key: str
) -> None:
    """``SelectMessageQueueByHash``: the hash modulo the queues, its absolute value."""
    with opened(tmp_path, queues=7) as log:
        results = [log.put("t", b"x", key=key) for _ in range(3)]
    hashed = java_string_hash(key)
    wanted = abs(int(hashed - 7 * int(hashed / 7)))  # Java's remainder is towards zero
    with MessageStore.open(tmp_path, read_only=True) as store:
        assert store.max_offset("t", wanted) == 3
    assert [result.queue_offset for result in results] == [0, 1, 2]


def test_without_a_key_each_queue_has_its_turn(tmp_path: Path) -> None:
    with opened(tmp_path, queues=3) as log:
        for _ in range(9):
            log.put("t", b"x")
        assert [log.store.max_offset("t", queue_id) for queue_id in range(4)] == [3, 3, 3, 0]
        log.put("t", b"x", queue_id=1)
        assert log.store.max_offset("t", 1) == 4
        for queue_id in (-1, 3):
            with pytest.raises(RefusedStoreError, match=r"has no queue (-1|3): expected 0 to 2"):
                log.put("t", b"x", queue_id=queue_id)


def test_the_queues_of_a_topic_are_fixed_at_its_first_put(tmp_path: Path) -> None:
    with opened(tmp_path, queues=2) as log:
        log.put("t", b"x", key="k")
        row = topics_file(tmp_path)["topicConfigTable"]["t"]
        assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (2, 2, 6)
    with opened(tmp_path, queues=9) as log:
        assert log.create_topic("t") == 2
        assert log.create_topic("t", 2) == 2
        with pytest.raises(RefusedStoreError, match="has 2 queues, not 3: the number is fixed"):
            log.create_topic("t", 3)
        assert log.create_topic("wide", 64) == 64
        log.put("u", b"x")
    with opened(tmp_path) as log:
        assert [log.create_topic(name) for name in ("t", "u", "wide")] == [2, 9, 64]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"key": "customer 42"},
            "invalid key 'customer 42': a key must not be empty or contain a space",
        ),
        ({"key": ""}, "invalid key '': a key must not be empty"),
        ({"key": " "}, "a space, which separates keys"),
        ({"key": "a\x01b"}, "separators 0x01 and 0x02"),
        ({"tags": "a || b"}, "which separates the tags of a filter"),
        ({"tags": "a||b"}, "which separates the tags of a filter"),
        ({"tags": " a"}, "which separates the tags of a filter"),
        ({"tags": "a\x02b"}, "separators 0x01 and 0x02"),
        ({"properties": {"own": "a\x02KEYS\x01b"}}, "separators 0x01 and 0x02"),
    ],
)
def test_what_could_never_be_found_again_is_refused(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with opened(tmp_path) as log:
        log.put("t", b"x", key="k", tags="a")
        end = log.store.max_phy_offset()
        with pytest.raises(StoreError, match=said):
            log.put("t", b"x", **given)
        with pytest.raises(StoreError, match=said):
            asyncio.run(log.put_async("t", b"x", **given))
        assert log.store.max_phy_offset() == end
        log.put("t", b"both", properties={"KEYS": "customer 42"})
        for key in ("customer", "42"):
            assert [each.body for each in log.store.query_message("t", key)] == [b"both"]


def test_the_table_is_on_disk_before_the_first_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    with opened(tmp_path) as log:
        faults.fail("write", ENOSPC, "/config/topics.json")
        with pytest.raises(StoreIOError, match="No space left"):
            log.put("t", b"x")
        assert log.store.max_phy_offset() <= 0
        faults.heal()
        log.put("t", b"x")


def test_queues_that_were_there_before_the_table_are_counted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("t", b"x", 5))
    with opened(tmp_path, queues=2) as log:
        log.put("t", b"x", key="k")
        assert topics_file(tmp_path)["topicConfigTable"]["t"]["writeQueueNums"] == 6


def test_a_brokers_topics_are_used_and_stay(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    theirs = {
        "topicConfigTable": {
            "t": {"topicName": "t", "readQueueNums": 16, "writeQueueNums": 12, "perm": 6, "new": 1},
            "closed": {"topicName": "closed", "readQueueNums": 4, "writeQueueNums": 4, "perm": 4},
            "odd": {"topicName": "odd", "readQueueNums": 4, "writeQueueNums": -4, "perm": 6},
        },
        "later": [1],
    }
    (tmp_path / "config" / "topics.json").write_text(json.dumps(theirs))
    with opened(tmp_path) as log:
        for _ in range(24):
            log.put("t", b"x")
        assert [log.store.max_offset("t", queue_id) for queue_id in (0, 11, 12)] == [2, 2, 0]
        tail = log.tail("t", group="g")
        assert log._members["t", "g"]._queue_ids == [*range(16)]
        tail.close()
        with pytest.raises(RefusedStoreError, match=r"is not writable: perm is 4"):
            log.put("closed", b"x")
        with pytest.raises(
            CorruptionError, match=r"invalid writeQueueNums of topic 'odd'.* found -4"
        ):
            log.put("odd", b"x")
        log.put("ours", b"x")
    found = topics_file(tmp_path)
    assert found["later"] == [1]
    ours = found["topicConfigTable"].pop("ours")
    assert ours["writeQueueNums"] == 4
    assert found["topicConfigTable"] == theirs["topicConfigTable"]


@pytest.mark.parametrize("drained", ["writeQueueNums", "readQueueNums"])
def test_a_topic_that_is_being_drained_is_read_to_its_end(tmp_path: Path, drained: str) -> None:
    with opened(tmp_path, queues=2) as log:
        for _ in range(4):
            log.put("t", b"x")
    table = topics_file(tmp_path)
    table["topicConfigTable"]["t"][drained] = 0
    (tmp_path / "config" / "topics.json").write_text(json.dumps(table))
    with opened(tmp_path) as log:
        tail = log.tail("t", group="g")
        assert log._members["t", "g"]._queue_ids == [0, 1]
        assert len(run(take(tail, 4))) == 4
        tail.close()
        if drained == "writeQueueNums":
            for queue_id in (None, 0):
                with pytest.raises(RefusedStoreError, match=r"being drained \(writeQueueNums=0\)"):
                    log.put("t", b"x", queue_id=queue_id)
        else:
            log.put("t", b"x")
        assert len([*log.read("t")]) == 4 + (drained == "readQueueNums")


@pytest.mark.parametrize("backend", BACKENDS)
def test_reads_are_bounded_by_times(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend) as log:
        for number in range(40):
            log.put("t", b"%d" % number, tags="even" if number % 2 == 0 else "odd")
        every = list(log.read("t"))
        times = [message.store_timestamp for message in every]
        middle = times[20]
        wanted = [message.body for message in every if message.store_timestamp >= middle]
        assert [message.body for message in log.read("t", middle)] == wanted
        moment = datetime.fromtimestamp(middle / 1000, UTC)
        for begin in (moment, moment.replace(tzinfo=None), moment.astimezone()):
            assert [message.body for message in log.read("t", begin=begin)] == wanted
        rest = list(log.read("t", end=moment - timedelta(milliseconds=1)))
        assert len(rest) + len(wanted) == 40
        odd = [message.body for message in log.read("t", tags="odd")]
        assert odd == [b"%d" % number for number in range(1, 40, 2)]
        assert {message.queue_id for message in log.read("t", queue_ids=[1, 2])} == {1, 2}


def test_a_read_message_stays_when_the_log_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.put("t", b"x" * 5000, key="k")
        (message,) = log.read("t")
        later = log.read("t")
    assert message.body == b"x" * 5000
    assert message.key == "k"
    with pytest.raises(StoreClosedError):
        list(later)
    with pytest.raises(StoreClosedError):
        log.put("t", b"x")


async def test_puts_of_tasks(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for number in range(10):
            assert (await log.put_async("t", b"%d" % number, key="k")).ok
        assert [message.body for message in log.read("t")] == [b"%d" % at for at in range(10)]


# ---- what is refused


@pytest.mark.parametrize(
    "topic", ["", "a/b", "a b", "a@b", "é", "x" * 128, "TBW102", "rmq_sys_x", "%LMQ%light"]
)
def test_a_topic_that_no_broker_would_take_is_refused(tmp_path: Path, topic: str) -> None:
    with opened(tmp_path) as log:
        with pytest.raises(IllegalMessageError):
            log.put(topic, b"x")
        assert not (tmp_path / "config" / "topics.json").exists()


def test_a_message_that_is_refused_is_an_error_with_its_status(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        with pytest.raises(PutRefusedError, match="was not stored") as met:
            log.put("t", b"x" * (5 << 20))
        assert met.value.status is PutMessageStatus.MESSAGE_ILLEGAL
        with pytest.raises(PutRefusedError):
            log.put("t", b"x", properties={"a": "\x01"})
        assert list(log.read("t")) == []


@pytest.mark.parametrize("queues", [0, -1, 1 << 17, 1.0, True])
def test_no_topic_has_such_a_number_of_queues(tmp_path: Path, queues: Any) -> None:
    with pytest.raises(
        RefusedStoreError, match=r"invalid number of queues .*: expected 1 to 65536"
    ):
        opened(tmp_path, queues=queues)
    with opened(tmp_path) as log, pytest.raises(RefusedStoreError):
        log.create_topic("t", queues)


def test_a_second_opener_is_refused_in_a_sentence(tmp_path: Path) -> None:
    code = "import cqstore, sys; cqstore.open(sys.argv[1])"
    with opened(tmp_path) as log:
        log.put("t", b"x")
        with pytest.raises(StoreLockedError, match="only one process can write a log"):
            opened(tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert "only one process can write a log" in done.stderr


def test_a_reader_beside_it_changes_nothing_and_has_no_groups(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.put("t", b"x")
        log.flush()
        with cqstore.open(tmp_path, read_only=True) as beside:
            assert [message.body for message in beside.read("t")] == [b"x"]
            assert beside.topics() == ["t"]
            with pytest.raises(
                ReadOnlyStoreError, match="only the process that writes the log can use groups"
            ):
                beside.tail("t", group="g")
            with pytest.raises(ReadOnlyStoreError):
                beside.put("t", b"x")
            with pytest.raises(ReadOnlyStoreError):
                beside.committed("g", "t")
    with unchanged(tmp_path), cqstore.open(tmp_path, read_only=True) as later:
        assert [message.body for message in later.read("t")] == [b"x"]


def test_a_close_ends_all_threads_and_a_second_one_does_nothing(tmp_path: Path) -> None:
    before = own_threads()
    log = opened(tmp_path)
    log.put("t", b"x")
    assert len(own_threads()) > len(before)
    log.close()
    log.close()
    assert own_threads() == before
    with opened(tmp_path) as again:
        assert again.store.last_exit_ok


def test_an_opening_that_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("[]")
    before = own_threads()
    with pytest.raises(CorruptionError, match=r"topics\.json"):
        opened(tmp_path)
    assert own_threads() == before
    (tmp_path / "config" / "topics.json").write_text("{}")
    opened(tmp_path).close()


def test_the_package_opens_it(tmp_path: Path) -> None:
    with cqstore.open(str(tmp_path), backend="rocksdb", config=CONFIG) as log:
        assert isinstance(log, cqstore.EmbeddedLog)
        log.put("t", b"x")
    with MessageStore.open(tmp_path, read_only=True) as store:
        assert components_of(store).queues.name == "rocksdb"
