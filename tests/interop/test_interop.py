"""RocketMQ opens what we wrote, we open what it wrote, and both go on where the other stopped."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cli.message_files.dump_rows import queue_row
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.settings.config import StoreConfig
from tests.interop.rocketmq import RocketMQ
from tests.interop.started import Row
from tests.kit.golden import load_dump

pytestmark = pytest.mark.interop
KINDS = {"file": "default", "rocksdb": "defaultRocksDB"}
QUEUES = [("orders", 0), ("orders", 3), ("a", 0), ("主题-é", 1)]
SIZES = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
CONFIG = StoreConfig.from_mapping(dict(SIZES))


def write(root: Path, backend: str, count: int, first: int = 0) -> list[int]:
    """Put messages round robin; return where they lie."""
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        return [put(store, number) for number in range(first, first + count)]


def put(store: MessageStore, number: int) -> int:
    topic, queue_id = QUEUES[number % len(QUEUES)]
    message = Message(
        topic,
        f"message {number} ".encode() * (number % 40),
        queue_id,
        {"TAGS": f"Tag{number % 3}", "KEYS": f"key{number}"},
    )
    result = store.put_message(message)
    assert result.ok, result
    return result.phy_offset


def compare(root: Path, rows: list[Row]) -> None:
    """RocketMQ read exactly the records, units and keys that we read."""
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        log = components_of(store).log
        expected = [
            (record.phy_offset, record.size, record.topic, record.queue_id, record.queue_offset)
            for record in log.scan(log.min_phy_offset())
        ]
        queues = {
            (q[0], q[1]): queue_row(components_of(store).queues, q) for q in store.queue_keys()
        }
    fields = ("phy", "storeSize", "topic", "queueId", "queueOffset")
    messages = [row for row in rows if row["kind"] == "message"]
    assert [tuple(row[field] for field in fields) for row in messages] == expected
    for row in rows:
        if row["kind"] == "queue":
            ours = queues[row["topic"], row["queueId"]]
            assert (row["min"], row["max"]) == (ours["min"], ours["max"])
            assert row["units"] == ours["units"]
            assert row["pulled"] == list(range(row["min"], row["max"]))
    keyed = [row for row in messages if "KEYS" in row["properties"]]
    found = {(row["topic"], row["key"]): row["phy"] for row in rows if row["kind"] == "key"}
    for row in keyed:
        assert row["phy"] in found[row["topic"], row["properties"]["KEYS"]]


@pytest.mark.parametrize("backend", list(KINDS))
def test_rocketmq_reads_all_that_we_wrote(tmp_path: Path, rocketmq: RocketMQ, backend: str) -> None:
    root = tmp_path / "store"
    written = write(root, backend, 800)
    rows = rocketmq.dump(root, KINDS[backend], QUEUES, **SIZES)
    assert [row["phy"] for row in rows if row["kind"] == "message"] == written
    compare(root, rows)


@pytest.mark.parametrize("backend", list(KINDS))
def test_rocketmq_goes_on_over_a_record_that_was_passed_over(
    tmp_path: Path, rocketmq: RocketMQ, backend: str
) -> None:
    root = tmp_path / "store"
    written = write(root, backend, 400)
    spoilt = [written[210], written[399]]
    for phy_offset, count in zip(spoilt, (8, 80), strict=True):
        path = root / "commitlog" / f"{phy_offset - phy_offset % 65536:020d}"
        with path.open("r+b") as file:
            file.seek(phy_offset % 65536)
            file.write(b"?" * count)
    MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=spoilt)).close()
    rows = rocketmq.dump(root, KINDS[backend], QUEUES, **SIZES)
    assert [row["phy"] for row in rows if row["kind"] == "message"] == written
    compare(root, rows)
    rocketmq.append(root, KINDS[backend], QUEUES, 3, crash=True, **SIZES)
    with MessageStore.open(root, CONFIG) as store:
        assert [record.phy_offset for record in components_of(store).log.scan(0)][:400] == written
        gone = [
            unit.phy_offset
            for key in QUEUES
            for offset in range(0, store.max_offset(*key), 10)
            for unit in store.get_message(*key, offset, 10).damaged
        ]
        assert set(gone) == set(spoilt)
        assert [finding for finding in store.check() if finding.damage] == []


WRITER = """
import os, signal, sys
from pathlib import Path
from cqstore.store.service.message_store import MessageStore
from tests.interop.test_interop import CONFIG, put
store = MessageStore.open(Path(sys.argv[1]), CONFIG, backend=sys.argv[2])
for number in range(700):
    print(put(store, number), flush=True)
    if number == 350:
        store.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.crash
@pytest.mark.parametrize("backend", list(KINDS))
def test_after_a_kill_rocketmq_finds_every_message_that_was_acknowledged(
    tmp_path: Path, rocketmq: RocketMQ, backend: str
) -> None:
    root = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(root), backend], capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr
    written = [int(line) for line in done.stdout.split()]
    rows = rocketmq.dump(root, KINDS[backend], QUEUES, **SIZES)
    assert [row["phy"] for row in rows if row["kind"] == "message"] == written
    units = sum(len(row["units"]) for row in rows if row["kind"] == "queue")
    assert units == len(written) == 700


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("backend", list(KINDS))
def test_both_go_on_where_the_other_stopped(
    tmp_path: Path, rocketmq: RocketMQ, backend: str, *, crash: bool
) -> None:
    root = tmp_path / "store"
    write(root, backend, 200)
    theirs = rocketmq.append(root, KINDS[backend], QUEUES, 30, crash=crash, **SIZES)
    with MessageStore.open(root, CONFIG) as store:
        assert store.last_exit_ok is not crash
        for row in theirs:
            message = store.message_by_offset(row["phy"])
            assert (message.topic, message.queue_offset) == (row["topic"], row["queueOffset"])
            assert message.message_id == row["msgId"]
        for topic, queue_id in QUEUES:
            assert store.max_offset(topic, queue_id) == 50 + 30
        assert [f for f in store.check() if f.damage] == []
    write(root, backend, 100, first=200)
    rows = rocketmq.dump(root, KINDS[backend], QUEUES, **SIZES)
    assert {row["max"] for row in rows if row["kind"] == "queue"} == {50 + 30 + 25}
    compare(root, rows)


def test_a_double_write_store_is_kept_whole_on_both_sides(
    golden: Callable[[str], Path], rocketmq: RocketMQ
) -> None:
    name = "basic-combine"
    root = golden(name)
    before = {(q["topic"], q["queueId"]): q["max"] for q in load_dump(name)["queues"]}
    sizes = {**SIZES, "mappedFileSizeCommitLog": 262144}
    with MessageStore.open(root) as store:
        for topic, queue_id in before:
            assert store.put_message(Message(topic, b"one more", queue_id)).ok
    for kind, backend in (("default", "file"), ("combine", "rocksdb")):
        rows = rocketmq.dump(root, kind, before, **sizes)
        found = {(r["topic"], r["queueId"]): r["max"] for r in rows if r["kind"] == "queue"}
        assert found == {key: high + 1 for key, high in before.items()}
        with MessageStore.open(root, read_only=True, backend=backend) as store:
            assert {key: store.max_offset(*key) for key in before} == found
            assert [f for f in store.check() if f.damage] == []
