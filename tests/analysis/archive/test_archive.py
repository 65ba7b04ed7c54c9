"""What an archive holds, against RocketMQ's dumps, what was put, and records made by hand."""

import ipaddress
import json
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Host, Message, SysFlag, is_queued
from cqstore.store.record.record_layout import HEAD
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.cli.test_export_golden import NAMED_ALIKE
from tests.kit.archived import Row, archive, archived
from tests.kit.golden import NAMES, load_dump
from tests.kit.oracle.encoder import MessageEncoder, assemble
from tests.kit.tree import unchanged

QUICK = {"special-combine", "crash-default"}
EACH = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.long, id=name) for name in NAMES
]
DAY = 86_400_000
GIVEN_UP = b"stands in for a damaged record"
SMALL = StoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=2000)


def ms(row: Row, name: str) -> int:
    time: datetime = row[name]
    return round(time.timestamp() * 1000)


@pytest.mark.parametrize("name", EACH)
def test_rows_are_what_rocketmq_read(name: str, golden_folder: Path, tmp_path: Path) -> None:
    root = golden_folder / name
    with unchanged(root):
        done = archive(tmp_path / "archive", broker=root)
    assert done.faults == []
    messages = load_dump(name)["messages"]  # of topics that RocketMQ deleted, too
    expected = {each["phy"]: each for each in messages if is_queued(each["sysFlag"])}
    rows = archived(tmp_path / "archive")
    assert len(rows) == len(expected) == sum(each.messages for each in done.sources)
    for row in rows:
        message = expected.pop(row["phy"])
        assert (row["source"], row["topic"]) == ("broker", message["topic"])
        row |= {name: ms(row, name) for name in ("storeTimestamp", "bornTimestamp")}
        for field in NAMED_ALIKE:
            assert row[field] == message[field], (field, message)
        assert row["msgId"] == message_id(message)
        properties = message["properties"]
        assert row["tags"] == properties.get("TAGS")
        assert row["keys"] == properties.get("KEYS")
        assert row["uniqKey"] == properties.get("UNIQ_KEY")
        assert row["day"] == day(message["storeTimestamp"])


def message_id(message: Row) -> str:
    address, port = message["storeHost"].split(" ")
    place = int(port).to_bytes(4, "big") + int(message["phy"]).to_bytes(8, "big")
    return (ipaddress.ip_address(address).packed + place).hex().upper()


def day(stamp: int) -> str:
    return str(datetime.fromtimestamp(stamp // 1000, UTC).date())


# ---- records made by hand


def make_log(root: Path, messages: Iterable[tuple[Message, int]]) -> None:
    """Write a log of one file; each message has a store time."""
    encoder = MessageEncoder(StoreConfig(), lambda _: None)
    data = bytearray()
    for at, (message, stored) in enumerate(messages):
        record, start = encoder.encode(message), len(data)
        data += record.start + assemble(record, 10 * at, start, stored)
        if message.body == GIVEN_UP:
            data[start + HEAD.offset("sys_flag")] |= SysFlag.PASSED_OVER >> 24
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(1 << 16, b"\0"))


def by_place(rows: Iterable[Row], *fields: str) -> list[tuple[Any, ...]]:
    ordered = sorted(rows, key=lambda row: (row["phy"], row["queueOffset"]))
    return [tuple(row[field] for field in fields) for row in ordered]


def test_records_that_are_no_message_of_a_queue_are_left_out_and_batches_taken_apart(
    tmp_path: Path,
) -> None:
    inner = [Message("", b"one", properties={"KEYS": "a b"}, flag=1), Message("", b"two", flag=2)]
    batch = Message("t", encode_client_batch(inner), 3, sys_flag=int(SysFlag.INNER_BATCH))
    make_log(
        tmp_path / "store",
        [(Message("t", b"plain", properties={"TAGS": "x", "UNIQ_KEY": "u"}), DAY),
         (Message("t", b"half", sys_flag=int(SysFlag.TRANSACTION_PREPARED)), DAY),
         (Message("t", b"back", sys_flag=int(SysFlag.TRANSACTION_ROLLBACK)), DAY),
         (Message("t", b"done", sys_flag=int(SysFlag.TRANSACTION_COMMIT)), DAY),
         (Message("t", GIVEN_UP), DAY),
         (batch, 2 * DAY - 1),
         (Message("t", b"no batch", sys_flag=int(SysFlag.INNER_BATCH)), 2 * DAY),
         (Message("t", zlib.compress(b"long"), sys_flag=1, born_host=Host.of("::1", 5)), 2 * DAY)],
    )  # fmt: skip
    done = archive(tmp_path / "archive", s=tmp_path / "store")
    found = by_place(archived(tmp_path / "archive"), "body", "queueOffset", "flag", "day")
    assert found == [
        (b"plain", 0, 0, "1970-01-02"), (b"done", 30, 0, "1970-01-02"),
        (b"one", 50, 1, "1970-01-02"), (b"two", 51, 2, "1970-01-02"),
        (b"no batch", 60, 0, "1970-01-03"), (b"long", 70, 0, "1970-01-03"),
    ]  # fmt: skip
    rows = archived(tmp_path / "archive")
    assert by_place(rows, "tags", "keys", "uniqKey")[:3:2] == [
        ("x", None, "u"), (None, "a b", None)
    ]  # fmt: skip
    assert by_place(rows, "bornHost", "sysFlag")[-1] == ("0:0:0:0:0:0:0:1 5", 0x11)
    assert done.sources[0].messages == 6


def test_times_of_no_calendar_keep_their_messages(tmp_path: Path) -> None:
    times = [-1, 0, (1 << 63) - 1, -(1 << 63), 253_402_300_800_000]
    make_log(
        tmp_path / "store",
        [(Message("t", b"%d" % at, born_timestamp=each), each) for at, each in enumerate(times)],
    )
    archive(tmp_path / "archive", s=tmp_path / "store")
    found = ds.dataset(tmp_path / "archive", partitioning="hive").to_table(["day", "body", "phy"])
    days = found.sort_by("phy")["day"].to_pylist()
    assert days == ["1969-12-31", "1970-01-01", "9999-12-31", "0001-01-01", "9999-12-31"]


def test_odd_topics_have_folders_that_arrow_reads(tmp_path: Path) -> None:
    topics = ["%RETRY%g", "a/b", "=", "Größe", "..", "x" * 127, "#'\"?*:{[^"]
    make_log(tmp_path / "store", [(Message(each, each.encode()), DAY) for each in topics])
    archive(tmp_path / "archive", s=tmp_path / "store")
    assert {row["topic"] for row in archived(tmp_path / "archive")} == set(topics)
    found = ds.dataset(tmp_path / "archive", partitioning="hive").to_table(["topic", "body"])
    assert found["topic"].to_pylist() == [body.decode() for body in found["body"].to_pylist()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.analysis.archive.staging._MAX_NAME", 60)
        archive(tmp_path / "short", s=tmp_path / "store")
    assert {row["topic"] for row in archived(tmp_path / "short")} == set(topics)


# ---- damage


def flip(root: Path, phy: int, at: int) -> None:
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[phy + at] ^= 0xFF
    path.write_bytes(data)


def test_a_damaged_body_is_passed_over_and_told(tmp_path: Path) -> None:
    messages = [(Message("t", b"body %d" % at), DAY) for at in range(5)]
    make_log(tmp_path / "store", messages)
    archive(tmp_path / "whole", s=tmp_path / "store")
    places = [phy for (phy,) in by_place(archived(tmp_path / "whole"), "phy")]
    flip(tmp_path / "store", places[2], 88)
    done = archive(tmp_path / "archive", s=tmp_path / "store")
    assert len(done.faults) == 1
    assert f"phy_offset {places[2]}" in done.faults[0]
    found = by_place(archived(tmp_path / "archive"), "body", "phy")
    assert found == [(b"body %d" % at, places[at]) for at in (0, 1, 3, 4)]
    assert done.sources[0].messages == 4


def test_a_body_that_cannot_be_decompressed_is_passed_over(tmp_path: Path) -> None:
    make_log(
        tmp_path / "store",
        [(Message("t", b"no zlib", sys_flag=1), DAY), (Message("t", b"sound"), DAY),
         (Message("t", b"no zlib", sys_flag=int(SysFlag.INNER_BATCH) | 1), DAY)],
    )  # fmt: skip
    done = archive(tmp_path / "archive", s=tmp_path / "store")
    assert by_place(archived(tmp_path / "archive"), "body") == [(b"sound",)]
    assert len(done.faults) == 2
    assert all("cannot decompress the" in fault for fault in done.faults)


def test_a_record_whose_size_is_wrong_ends_the_run_and_adds_nothing(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    with MessageStore.open(root, SMALL) as store:  # several files: the first is not looked at
        places = [store.put_message(Message("t", b"%d" % at)).phy_offset for at in range(100)]
    archive(folder, s=root)
    with unchanged(folder):
        flip(root, places[5], 2)
        with pytest.raises(CorruptionError) as caught:
            archive(folder, other=root)
        assert caught.value.phy_offset == places[5]


@pytest.mark.parametrize("behind", [False, True])
def test_a_size_that_leads_nowhere_is_not_believed(tmp_path: Path, *, behind: bool) -> None:
    """Not one that leads into the zeros behind the log either."""
    root = tmp_path / "store"
    make_log(root, [(Message("t", b"body %d" % at), DAY) for at in range(4)])
    archive(tmp_path / "whole", s=root)
    places = [phy for (phy,) in by_place(archived(tmp_path / "whole"), "phy")]
    flip(root, places[1], 2 if behind else 3)
    with pytest.raises(CorruptionError) as caught:
        archive(tmp_path / "archive", s=root)
    assert caught.value.phy_offset == places[1]
    assert list((tmp_path / "archive").iterdir()) == []


def test_messages_of_deleted_topics_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL) as store:
        for at in range(6):
            store.put_message(Message("ab"[at % 2], b"before"))
        store.delete_topics(["a"])
        store.put_message(Message("a", b"again"))
    archive(tmp_path / "archive", s=root)
    found = by_place(archived(tmp_path / "archive"), "topic", "body")
    assert found == [("b", b"before")] * 3 + [("a", b"again")]


def test_manifests_say_what_is_there(tmp_path: Path) -> None:
    make_log(tmp_path / "store", [(Message("t", b"x"), DAY), (Message("u", b"y"), DAY)])
    archive(tmp_path / "archive", s=tmp_path / "store")
    text = (tmp_path / "archive" / "batch=00000001" / "_manifest.json").read_text(encoding="utf-8")
    found = json.loads(text)
    assert [each["path"] for each in found["files"]] == [
        "topic=t/day=1970-01-02/part-00000.parquet", "topic=u/day=1970-01-02/part-00000.parquet",
    ]  # fmt: skip
    (source,) = found["sources"]
    assert (source["name"], source["begin"], source["messages"]) == ("s", 0, 2)
    assert [each.name for each in (tmp_path / "archive").iterdir()] == ["batch=00000001"]
