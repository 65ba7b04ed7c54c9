"""Timer messages that wait: wheels and databases made by hand, in RocketMQ's bytes."""

import os
import struct
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.record.message import TIMER_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.operating import SMALL, call, rows, write_database
from tests.kit.tree import unchanged

SLOTS, SLOT_BYTES = 1_209_600, 32
SECOND = 1_000_000_000  # since the epoch: all of it is overdue
FAR = 4_000_000_000


@pytest.fixture(params=["file", "rocksdb"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with seven messages in the timer's queue."""
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend=request.param) as store:
        for _ in range(7):
            store.put_message(Message(TIMER_TOPIC, b"x", properties={"REAL_TOPIC": "orders"}))
    (root / "config").mkdir(exist_ok=True)
    return root


def write_wheel(path: Path, slots: dict[int, int], precision: int = 1000, skew: int = 0) -> None:
    """Write a wheel: time in seconds → messages; ``skew`` puts them into a wrong slot."""
    with path.open("wb") as file:
        file.truncate(SLOTS * SLOT_BYTES)
        for second, number in slots.items():
            time = second * 1000 // precision
            file.seek((time + skew) % SLOTS * SLOT_BYTES)
            file.write(struct.pack(">qqqii", time, 0, 52, number, 0))


def write_check(root: Path, last_read_time: int, queue_offset: int) -> None:
    data = struct.pack(">qqq", last_read_time, 0, queue_offset).ljust(4096, b"\0")
    (root / "config" / "timercheck").write_bytes(data)


def test_slots_from_the_time_delivered_on_are_what_waits(root: Path) -> None:
    write_wheel(root / "timerwheel", {SECOND - 1: 9, SECOND: 2, SECOND + 60: 3, FAR: 1, FAR + 1: 0})
    write_check(root, SECOND * 1000 + 7, 5)
    with unchanged(root):
        found = {row["source"]: row for row in rows("pending", root)}
    assert set(found) == {"timer", "timer-queue"}
    wheel = found["timer"]
    assert (wheel["pending"], wheel["overdue"]) == (6, 5)
    assert (wheel["firstDueTimestamp"], wheel["lastDueTimestamp"]) == (SECOND * 1000, FAR * 1000)
    queue = found["timer-queue"]
    assert (queue["position"], queue["max"], queue["pending"]) == (5, 7, 2)
    assert queue["oldestStoreTimestamp"] > SECOND * 1000
    assert call("pending", root).stderr.endswith("; 8 timer messages pending\n")
    assert [row["source"] for row in rows("pending", root, "--of", "timer")] == ["timer"]


def test_a_slot_may_be_of_another_precision(root: Path) -> None:
    write_wheel(root / "timerwheel", {SECOND: 2}, precision=100)
    write_check(root, 0, 7)
    (row,) = rows("pending", root, "--of", "timer", "--timer-precision", "100")
    assert (row["pending"], row["firstDueTimestamp"]) == (2, SECOND * 1000)


def test_the_newest_wheel_is_read(root: Path) -> None:
    write_wheel(root / "timerwheel", {SECOND: 1})
    write_wheel(root / "timerwheel.104", {SECOND: 4})
    write_wheel(root / "timerwheel.tmp", {SECOND: 8})
    for name, at in (("timerwheel", 1), ("timerwheel.104", 2), ("timerwheel.tmp", 3)):
        os.utime(root / name, (at, at))
    assert rows("pending", root, "--of", "timer")[0]["pending"] == 4
    os.utime(root / "timerwheel", (9, 9))
    assert rows("pending", root, "--of", "timer")[0]["pending"] == 1


def test_without_positions_all_of_the_queue_waits(root: Path) -> None:
    (row,) = rows("pending", root)
    assert (row["source"], row["position"], row["pending"]) == ("timer-queue", 0, 7)


def test_a_slot_of_another_time_ends_in_a_sentence(root: Path) -> None:
    write_wheel(root / "timerwheel", {SECOND: 2}, skew=1)
    done = call("pending", root)
    assert isinstance(done.exception, CorruptionError)
    at = (SECOND + 1) % SLOTS
    assert f"slot {at} of the timer wheel, at byte {at * SLOT_BYTES}" in str(done.exception)
    assert str(SECOND) in str(done.exception)


@pytest.mark.parametrize("name", ["timerwheel", "config/timercheck"])
def test_a_file_that_is_cut_ends_in_a_sentence(root: Path, name: str) -> None:
    write_wheel(root / "timerwheel", {SECOND: 2})
    write_check(root, 0, 0)
    path = root / name
    os.truncate(path, 40)
    done = call("pending", root)
    assert isinstance(done.exception, CorruptionError)
    assert str(path) in str(done.exception)
    assert "40 bytes" in str(done.exception)


def timer_key(second: int, name: str) -> bytes:
    return struct.pack(">q", second * 1000) + name.encode()


RECORD = struct.pack(">iq", 200, 4096)


def test_timer_messages_of_rocksdb_wait_from_the_checkpoint_on(root: Path) -> None:
    write_database(root / "rocksdbstore", "timer", {
        b"\0": RECORD, timer_key(1, "z"): b"of a newer release",
        timer_key(SECOND - 1, "a"): RECORD, timer_key(SECOND, "b"): RECORD,
        timer_key(SECOND, "c"): RECORD, timer_key(FAR, "d"): RECORD,
        b"timeline_checkpoint": struct.pack(">q", SECOND * 1000),
        b"sys_topic_scan_offset_checkpoint": struct.pack(">q", 6),
        b"timeline_roll_checkpoint": struct.pack(">q", 1),  # of a newer release
    })  # fmt: skip
    write_check(root, 0, 2)
    found = {row["source"]: row for row in rows("pending", root)}
    timer = found["rocksdb-timer"]
    assert (timer["position"], timer["pending"], timer["overdue"]) == (6, 3, 2)
    assert (timer["firstDueTimestamp"], timer["lastDueTimestamp"]) == (SECOND * 1000, FAR * 1000)
    assert found["timer-queue"]["pending"] == 1  # what the database has taken waits there


def test_half_messages_of_rocksdb_are_counted(root: Path) -> None:
    value = struct.pack(">ii", 2, 200)
    write_database(root / "rocksdbstore", "trans", {
        struct.pack(">q", 100) + b"@orders@u1": value,
        struct.pack(">q", 300) + b"@orders@u2": value,
        b"lastOffsetPy": struct.pack(">q", 500),
    })  # fmt: skip
    (row,) = rows("pending", root, "--of", "rocksdb-half")
    assert row["pending"] == 2
    assert "2 half messages undecided" in call("pending", root).stderr


def test_a_checkpoint_that_is_no_number_ends_in_a_sentence(root: Path) -> None:
    write_database(root / "rocksdbstore", "timer", {b"timeline_checkpoint": b"short"})
    done = call("pending", root)
    assert isinstance(done.exception, CorruptionError)
    assert "timeline_checkpoint" in str(done.exception)
    assert str(root / "rocksdbstore") in str(done.exception)


def test_timer_messages_are_not_listed(root: Path) -> None:
    done = call("pending", root, "--list", "--of", "timer")
    assert done.exit_code == 2
    assert "not supported for --of timer" in done.output
