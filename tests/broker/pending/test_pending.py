"""``cqstore pending``: delayed and half messages that RocketMQ put, and some made by hand."""

import struct
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.pending.delayed import delay_levels, delayed_messages
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.record.message import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from tests.kit.golden import load_dump
from tests.kit.metadata_forms import unpack_forms
from tests.kit.operating import SMALL, call, rows, write_config, write_offsets
from tests.kit.tree import unchanged

Golden = Callable[[str], Path]
SPECIAL = ["special-default", "special-defaultRocksDB", "special-combine"]
GROUP = "CID_RMQ_SYS_TRANS"


def dumped(name: str, topic: str) -> dict[int, list[list[int]]]:
    """Return queue id → units of ``topic``, as RocketMQ printed them."""
    found: dict[int, list[list[int]]] = defaultdict(list)
    for queue in load_dump(name)["queues"]:
        if queue["topic"] == topic:
            found[queue["queueId"]] += [unit for unit in queue["units"] if unit]
    return found


@pytest.mark.parametrize("name", SPECIAL)
def test_levels_wait_from_the_brokers_positions_on(golden: Golden, name: str) -> None:
    root, queues = golden(name), dumped(name, SCHEDULE_TOPIC)
    positions = {1: 1, 2: 1, 18: 1, 40: 7}
    write_config(root, "delayOffset.json", {"offsetTable": positions})
    with unchanged(root):
        found = rows("pending", root, "--of", "delay")
    expected = []
    for queue_id, units in sorted(queues.items()):
        due = [unit[3] for unit in units[positions.get(queue_id + 1, 0) :]]
        times = (min(due), max(due)) if due else (None, None)
        expected.append((queue_id + 1, len(units), len(due), *times))
    names = ("part", "max", "pending", "firstDueTimestamp", "lastDueTimestamp")
    assert [tuple(row[name] for name in names) for row in found] == expected
    assert found[1]["pending"] == 0
    assert found[0]["oldestStoreTimestamp"] == queues[0][1][4]


@pytest.mark.parametrize("name", SPECIAL)
def test_overdue_is_what_was_due_by_then(golden: Golden, name: str) -> None:
    queues = dumped(name, SCHEDULE_TOPIC)
    due = sorted(unit[3] for units in queues.values() for unit in units)
    now = due[len(due) // 2]
    with MessageStore.open(golden(name), read_only=True, housekeeping=False) as store:
        found = {part.part: part.overdue for part in delay_levels(store, {}, now)}
    assert found == {
        queue_id + 1: sum(unit[3] <= now for unit in units) for queue_id, units in queues.items()
    }


def test_without_positions_a_level_waits_from_its_minimum(golden: Golden) -> None:
    root = golden("special-default")
    done = call("pending", root, "--of", "delay")
    assert "no delay level offsets found" in done.stderr
    assert done.exit_code == 0
    units = sum(map(len, dumped("special-default", SCHEDULE_TOPIC).values()))
    assert sum(row["pending"] for row in rows("pending", root, "--of", "delay")) == units


def test_what_is_due_is_told_from_what_is_not(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    levels = SMALL.model_copy(update={"message_delay_level": "1s 4000d"})
    with MessageStore.open(root, levels, backend=backend) as store:
        for level in (1, 2, 2):
            properties = {"DELAY": str(level), "REAL_TOPIC": "orders"}
            delayed = Message(SCHEDULE_TOPIC, b"x", level - 1, properties=properties)
            assert store.put_message(delayed).status is PutMessageStatus.PUT_OK
    far = rows("pending", root, "--of", "delay")[1]
    assert (far["part"], far["pending"], far["overdue"]) == (2, 2, 0)
    listed = rows("pending", root, "--of", "delay", "--list")
    assert [(row["part"], row["queueOffset"], row["topic"]) for row in listed] == [
        (1, 0, "orders"), (2, 0, "orders"), (2, 1, "orders")
    ]  # fmt: skip
    assert [row["dueTimestamp"] - row["storeTimestamp"] for row in listed] == [
        1000, 4000 * 86_400_000, 4000 * 86_400_000
    ]  # fmt: skip


def test_a_deliver_time_that_is_lost_is_the_levels_delay_after_the_put(tmp_path: Path) -> None:
    root = tmp_path / "store"
    levels = SMALL.model_copy(update={"message_delay_level": "4000d"})
    with MessageStore.open(root, levels, backend="file") as store:
        message = Message(SCHEDULE_TOPIC, b"x", properties={"DELAY": "1", "REAL_TOPIC": "orders"})
        assert store.put_message(message).ok
    queue = root / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    struct.pack_into(">q", data, 12, -(1 << 63) + 40)  # leads beside the queue, where nothing is
    queue.write_bytes(data)
    with MessageStore.open(root, levels, read_only=True) as store:
        (level,) = delay_levels(store, {}, now=int(time.time() * 1000))
        (waiting,) = delayed_messages(store, {})
    due = waiting.store_timestamp + 4000 * 86_400_000
    assert (level.overdue, level.first_due, level.last_due, waiting.due) == (0, due, due, due)


@pytest.mark.parametrize("name", SPECIAL)
def test_delayed_messages_are_listed_as_rocketmq_put_them(golden: Golden, name: str) -> None:
    dump = load_dump(name)
    put = {m["phy"]: m for m in dump["messages"] if m["topic"] == SCHEDULE_TOPIC}
    listed = rows("pending", golden(name), "--of", "delay", "--list")
    assert {row["phy"] for row in listed} == set(put)
    for row in listed:
        message = put[row["phy"]]
        assert row["topic"] == message["properties"].get("REAL_TOPIC")
        assert row["storeTimestamp"] == message["storeTimestamp"]
        assert (row["part"], row["queueOffset"]) == (message["queueId"] + 1, message["queueOffset"])


@pytest.mark.parametrize("name", SPECIAL)
def test_half_messages_are_listed_as_rocketmq_put_them(golden: Golden, name: str) -> None:
    dump = load_dump(name)
    put = [m for m in dump["messages"] if m["topic"] == HALF_TOPIC]
    listed = rows("pending", golden(name), "--of", "half", "--list")
    assert put
    assert [(row["queueOffset"], row["phy"], row["uniqKey"], row["topic"]) for row in listed] == [
        (m["queueOffset"], m["phy"], m["properties"]["UNIQ_KEY"], m["properties"]["REAL_TOPIC"])
        for m in put
    ]


def half_store(root: Path, backend: str, ops: list[bytes], tags: str = "d") -> Path:
    """Make five half messages, and op messages with these bodies."""
    with MessageStore.open(root, SMALL, backend=backend) as store:
        for number in range(5):
            properties = {"REAL_TOPIC": "orders", "UNIQ_KEY": f"u{number}"}
            if number == 3:
                properties["TRANSACTION_CHECK_TIMES"] = "4"
            half = Message(HALF_TOPIC, b"x", properties=properties)
            assert store.put_message(half).status is PutMessageStatus.PUT_OK
        for body in ops:
            store.put_message(Message(OP_HALF_TOPIC, body, properties={"TAGS": tags}))
    return root


def states(root: Path, code: int = 0) -> dict[int, Any]:
    listed = rows("pending", root, "--of", "half", "--list", code=code)
    return {row["queueOffset"]: row["opOffset"] for row in listed}


def test_an_op_message_decides_the_half_messages_that_it_names(
    tmp_path: Path, backend: str
) -> None:
    root = half_store(tmp_path / "store", backend, [b"1", b"0,4,"])  # of 4.9 one, of 5.x several
    write_offsets(root, {"t@g": {0: 0}})
    assert states(root) == {0: 1, 1: 0, 2: None, 3: None, 4: 1}
    (row,) = rows("pending", root)
    assert (row["source"], row["part"], row["pending"], row["decided"]) == ("half", 0, 2, 3)
    listed = rows("pending", root, "--list")
    assert [each["checkTimes"] for each in listed] == [None, None, None, 4, None]
    assert row["oldestStoreTimestamp"] == listed[2]["storeTimestamp"]
    assert call("pending", root).stderr == (
        "cqstore: 0 delayed messages pending, 0 of them overdue; "
        "2 half messages undecided, 3 decided; 0 timer messages pending\n"
    )


def test_what_the_broker_has_stepped_over_is_settled(tmp_path: Path, backend: str) -> None:
    root = half_store(tmp_path / "store", backend, [b"0,1,4", b"3,"])
    write_offsets(root, {f"{HALF_TOPIC}@{GROUP}": {0: 2}, f"{OP_HALF_TOPIC}@{GROUP}": {0: 1}})
    assert states(root) == {2: None, 3: 1, 4: None}  # a broker does not read op message 0 again
    assert rows("pending", root)[0]["position"] == 2


def test_other_tags_decide_nothing(tmp_path: Path, backend: str) -> None:
    root = half_store(tmp_path / "store", backend, [b"0"], tags="x")
    assert set(states(root).values()) == {None}


def test_an_op_message_without_offsets_is_named(tmp_path: Path, backend: str) -> None:
    root = half_store(tmp_path / "store", backend, [b"0,x", b"\xff", b"2"])
    assert states(root, code=1) == {0: None, 1: None, 2: 2, 3: None, 4: None}
    said = call("pending", root).stderr
    assert "op message 0 of queue 0 has no valid half message offsets" in said
    assert "op message 1 of queue 0 has no valid half message offsets" in said


def test_of_several_forms_one_has_to_be_named(tmp_path: Path, backend: str) -> None:
    root = half_store(tmp_path / "store", backend, [])
    assert "no broker metadata found: a broker checks half messages" in call("pending", root).stderr
    unpack_forms(tmp_path / "forms")
    (tmp_path / "forms" / "v2" / "config").rename(root / "config")
    write_offsets(root, {f"{HALF_TOPIC}@{GROUP}": {0: 4}})
    done = call("pending", root)
    assert isinstance(done.exception, RefusedStoreError)
    assert rows("pending", root, "--form", "json")[0]["position"] == 4
    assert rows("pending", root, "--form", "v2")[0]["position"] == 0
    assert isinstance(call("pending", root, "--form", "v1").exception, RefusedStoreError)


def test_torn_positions_end_in_1_and_are_named_once(golden: Golden) -> None:
    root = golden("special-default")
    path = write_config(root, "delayOffset.json", {"offsetTable": {"1": 1}})
    path.write_bytes(path.read_bytes()[:-3])
    done = call("pending", root)
    assert done.exit_code == 1
    assert done.stderr.count(f"({path}") + done.stderr.count(f" {path}:") >= 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(set(lines))


def test_a_damaged_record_ends_in_a_sentence(golden: Golden) -> None:
    root = golden("special-default")
    phy = dumped("special-default", HALF_TOPIC)[0][2][1]
    size = 262144
    path = root / "commitlog" / f"{phy // size * size:020d}"
    data = bytearray(path.read_bytes())
    data[phy % size + 4] ^= 0xFF
    path.write_bytes(data)
    done = call("pending", root)
    assert isinstance(done.exception, CorruptionError)
    assert str(phy) in str(done.exception)
