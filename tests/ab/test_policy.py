"""What classes of topics wrote, against what was put."""

import json
from pathlib import Path

import pytest

from cqstore.ab.live.policy import policy_cost, written_notes
from cqstore.cq_rocksdb.folders import log_folder
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands
from tests.kit.shim.clock import CLOCK

CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, enable_lmq=True, enable_multi_dispatch=True,
    rocksdb_memory_bytes=8 << 20,
)  # fmt: skip
NOW = 1_800_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MessageStore:
    """Two hours of messages: every 10 s one of each kind, in turn."""
    with MessageStore.open(tmp_path / "store", CONFIG, housekeeping=False) as made:
        for number in range(720):
            monkeypatch.setattr(CLOCK, "stopped", (NOW + 10 * number) * 1_000_000_000)
            light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"} if number % 10 == 0 else {}
            topic = "%RETRY%g" if number % 4 == 0 else f"orders{number % 4}"
            assert made.put_message(Message(topic, b"x" * 100, number % 2, light)).ok
    return made


def test_units_and_bytes_of_the_last_hour_are_counted_by_class(store: MessageStore) -> None:
    with MessageStore.open(store.root, CONFIG, read_only=True) as again:
        cost = policy_cost(again, ["orders1", "orders1;orders2;none*"], hottest=2)
        records = list(components_of(again).log.scan(0))[-360:]
    by_class = {row["class"]: row for row in cost.rows()}
    assert cost.seconds == 3600
    counts = {name: row["units"] for name, row in by_class.items()}
    assert counts == {
        "orders1": 90, "orders1;orders2;none*": 90, "%LMQ%*": 36, "%RETRY%*": 90, "%DLQ%*": 0,
        "*": 90, "hot: %RETRY%g": 90, "hot: orders1": 90,
    }  # fmt: skip
    assert cost.units == 360 + 36
    retry = by_class["%RETRY%*"]
    assert (retry["topics"], retry["queues"]) == (1, 1)
    assert retry["unitsPerSecond"] == 90 / 3600
    assert retry["unitBytesPerSecond"] == 90 * 28 / 3600
    mine = sum(each.size for each in records if each.topic == "%RETRY%g")
    assert retry["recordBytesPerSecond"] == round(mine / 3600, 1)
    assert retry["shareOfUnits"] == round(90 / 396, 4)


def test_a_log_that_is_younger_is_counted_over_what_it_has(store: MessageStore) -> None:
    with MessageStore.open(store.root, CONFIG, read_only=True) as again:
        cost = policy_cost(again, hours=24, hottest=0)
    assert cost.seconds == 7190
    assert cost.units == 720 + 72


def test_the_command_prints_it_and_refuses_what_names_nothing(store: MessageStore) -> None:
    command = ["ab", "policy", store.root]
    done = commands.cqstore(*command, "--topics", "orders*", "--hottest", "0", "--output", "json")
    rows = {row["class"]: row for row in json.loads(done.stdout)}
    assert [*rows] == ["orders*", "%LMQ%*", "%RETRY%*", "%DLQ%*", "*"]
    assert (rows["orders*"]["units"], rows["orders*"]["topics"]) == (270, 3)
    assert "receives, not the bytes that it writes: no backend counts" in done.stderr
    assert "times" not in done.stderr
    refused = commands.run([*command, "--topics", ";"])
    assert (refused.returncode, "must name at least one topic" in refused.stderr) == (2, True)


def test_what_a_backend_has_noted_of_its_writing_is_told(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    log_folder(paths).mkdir(parents=True)
    (log_folder(paths) / "LOG").write_text(
        "2026/01/02-03:04:05.678 7 [db/db_impl/db_impl.cc:1076] STATISTICS:\n"
        " rocksdb.bytes.written COUNT : 2000\nrocksdb.wal.bytes COUNT : 0\n"
        "rocksdb.compact.write.bytes COUNT : 900\nrocksdb.flush.write.bytes COUNT : 1600\n"
        "rocksdb.db.get.micros P50 : 0.5 P95 : 0.9 P99 : 1 P100 : 1 COUNT : 3 SUM : 2\n"
    )
    _, reported = written_notes(paths)
    assert reported == (
        "rocksdb wrote 1.25 times the 2,000 bytes that it received, including keys, logged"
        " by RocksDB at 2026/01/02-03:04:05.678 (flush 1,600, compaction 900, wal 0)"
    )


def test_a_store_without_notes_is_told_none(store: MessageStore) -> None:
    assert len(list(written_notes(components_of(store).paths))) == 1
