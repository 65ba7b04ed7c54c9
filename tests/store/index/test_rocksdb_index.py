"""``cqstore query`` by the index that RocketMQ 5.5.1 keeps in RocksDB, against its own answers."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict
from typer.testing import CliRunner, Result

from cqstore.cli.app import app
from cqstore.cq_rocksdb.message_index import open_message_index
from cqstore.store.errors import CorruptionError, StoreClosedError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.rocksdb_index import expected_answers, unpack_indexed
from tests.kit.tree import tree_digest, unchanged

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=500,
    max_index_num=2000,
)  # fmt: skip
HOUR = 3_600_000
LAST = 115
"""A message of orders with a key and a unique key."""
LONG = struct.Struct(">q")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_indexed(tmp_path)


def requested(root: Path, topic: str, key: str, *words: object) -> Result:
    all_words = ["query", str(root), "--topic", topic, "--key", key, *map(str, words)]
    return CliRunner().invoke(app, all_words)


def rows(root: Path, topic: str, key: str, *words: object) -> list[dict[str, Any]]:
    done = requested(root, topic, key, *words)
    assert done.exit_code == 0, (done.output, done.exception)
    return [json.loads(line) for line in done.stdout.splitlines()]


def phys(root: Path, topic: str, key: str, *words: object) -> list[int]:
    return [row["phy"] for row in rows(root, topic, key, *words)]


def change(root: Path, entries: dict[bytes, bytes], *, lose: bool = False) -> None:
    """Write entries into the index; ``lose`` all that was there."""
    options = Options(raw_mode=True)
    families = {name: Options(raw_mode=True) for name in ("default", "timer", "trans")}
    with Rdict(str(root / "rocksdbstore"), options, families) as database:
        for key in [*database.keys()] if lose else ():
            del database[key]
        for key, value in entries.items():
            database[key] = value


def entry(stored: int, topic: str, key: str, phy_offset: int) -> tuple[bytes, bytes]:
    name = f"@{topic}@K@{key}@u@".encode()
    return LONG.pack(stored // HOUR * HOUR) + name + LONG.pack(phy_offset), LONG.pack(stored)


def test_what_rocketmq_finds_is_found(root: Path) -> None:
    """All of it at the index; the command, for a share."""
    index = open_message_index(root)
    assert index is not None
    answers = expected_answers()
    for row in answers:
        found = [*index.phy_offsets(row["topic"], row["key"], 0, 1 << 62)]
        assert found == sorted(row["phyOffsets"], reverse=True), row
    assert index.built_to == max(each for row in answers for each in row["phyOffsets"])
    index.close()
    with unchanged(root):
        for row in answers[::12]:
            if row["key"] != "a":
                assert phys(root, row["topic"], row["key"], "--max", 64) == row["phyOffsets"]


@pytest.mark.parametrize(
    "config", [CONFIG, CONFIG.model_copy(update={"message_index_enable": False})]
)
def test_a_store_is_asked_as_the_command_is(root: Path, config: StoreConfig) -> None:
    before = tree_digest(root)
    with MessageStore.open(root, config, read_only=True) as store:
        for row in expected_answers():
            found = store.query_message(row["topic"], row["key"], 64)
            theirs = [] if row["key"] == "a" else row["phyOffsets"]
            assert [message.phy_offset for message in found] == theirs
        every = store.query_message("orders", "many", 1000)
        places = [message.phy_offset for message in every]
        since = every[-2].store_timestamp
        newer = sum(message.store_timestamp >= since for message in every)

        def requested_keys(*most: int, **times: int) -> list[int]:
            found = store.query_message("orders", "many", *most, **times)
            return [message.phy_offset for message in found]

        assert requested_keys(3) == places[-3:]
        assert requested_keys(0) == requested_keys(-5) == []
        assert requested_keys(begin=since) == places[-newer:]
        assert requested_keys(end=since - 1) == places[:-newer]
        assert store.query_index_files("orders", "many") == []
    with pytest.raises(StoreClosedError):
        store.query_message("orders", "many")
    assert tree_digest(root) == before


def test_a_store_finds_what_it_was_given_beside_what_the_broker_knew(root: Path) -> None:
    (old, last) = phys(root, "orders", "many", "--max", 2)
    with MessageStore.open(root, CONFIG, backend="file") as store:
        new = store.put_message(Message("orders", b"new", 0, {"KEYS": "many"})).phy_offset
        found = [message.phy_offset for message in store.query_message("orders", "many", 2)]
        assert found == [last, new]
        found = [message.phy_offset for message in store.query_message("orders", "many", 3)]
        assert found == [old, last, new]


def test_a_store_whose_other_index_cannot_be_read_says_which(root: Path) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        assert store.put_message(Message("orders", b"new", 0, {"KEYS": "fresh"})).ok
        (row,) = rows(root, "orders", "k3")
        change(root, {entry(row["storeTimestamp"], "orders", "k3", 7)[0]: b"short"})
        assert len(store.query_message("orders", "fresh")) == 1
        with pytest.raises(CorruptionError, match=r"the index entry .*k3.*rocksdbstore"):
            store.query_message("orders", "k3")
        assert store.query_message("orders", "fresh")
    (root / "rocksdbstore" / "CURRENT").write_text("MANIFEST-999999\n")
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        for _ in range(2):
            with pytest.raises(CorruptionError, match="rocksdbstore"):
                store.query_message("orders", "fresh")
        assert len(store.query_index_files("orders", "fresh")) == 1


def test_a_key_that_another_one_goes_on_from_is_none_of_its_records(root: Path) -> None:
    answers = {(each["topic"], each["key"]): each["phyOffsets"] for each in expected_answers()}
    theirs = answers["orders", "a"]
    assert theirs  # those of a@b
    done = requested(root, "orders", "a")
    assert (done.exit_code, done.stdout) == (0, "")
    assert phys(root, "orders", "a@b") == theirs


def test_the_newest_come_first_within_the_times_that_were_asked_for(root: Path) -> None:
    found = rows(root, "orders", "many", "--max", 64)
    assert len(found) > 5
    every = [row["phy"] for row in found]
    assert phys(root, "orders", "many", "--max", 3) == every[-3:]
    stored = [row["storeTimestamp"] for row in found]
    since = stored[len(stored) // 2]
    newer = [row["phy"] for row in found if row["storeTimestamp"] >= since]
    older = [row["phy"] for row in found if row["storeTimestamp"] < since]
    assert phys(root, "orders", "many", "--max", 64, "--begin", since) == newer
    assert phys(root, "orders", "many", "--max", 64, "--end", since - 1) == older
    assert phys(root, "orders", "many", "--begin", stored[-1] + 1) == []


def test_hours_far_apart_are_found_and_unknown_entries_passed_over(root: Path) -> None:
    """As a store has them that was not written for years, or by a newer release."""
    (first, last) = (rows(root, "orders", f"k{number}")[0] for number in (0, LAST))
    change(root, dict([
        entry(HOUR, "orders", "k0", first["phy"]),
        entry(1 << 50, "orders", f"k{LAST}", last["phy"]),
        (b"lastOffsetPy", LONG.pack(last["phy"])), (b"aNewerCheckpoint", b"x"),
        (b"\x00\x01", b""), (LONG.pack(5 * HOUR) + b"?", b"y"),
    ]), lose=True)  # fmt: skip
    assert phys(root, "orders", "k0", "--end", HOUR) == [first["phy"]]
    assert phys(root, "orders", "k0", "--begin", HOUR + 1) == []
    assert phys(root, "orders", "k0") == [first["phy"]]
    assert phys(root, "orders", f"k{LAST}") == [last["phy"]]
    assert phys(root, "orders", "k3") == []


def test_records_put_since_are_found_by_the_files_and_both_are_merged(root: Path) -> None:
    old = phys(root, "orders", "many", "--max", 64)
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(2):
            properties = {"KEYS": f"many k{number}", "UNIQ_KEY": f"NEW{number}"}
            assert store.put_message(Message("orders", b"new", 0, properties)).ok
        new = [message.phy_offset for message in store.query_message("orders", "many", 64)][-2:]
        end = store.max_phy_offset()
    assert phys(root, "orders", "many", "--max", 64) == old + new
    assert phys(root, "orders", "many", "--max", 3) == [old[-1], *new]
    assert phys(root, "orders", "NEW1") == new[1:]
    said = requested(root, "orders", "many").stderr
    index = open_message_index(root)
    assert index is not None
    assert f"up to phy offset {index.built_to}, the log ends at {end}" in said
    index.close()


def test_entries_that_lead_to_no_record_are_said(root: Path) -> None:
    (row,) = rows(root, "orders", "k3")
    wrong = row["phy"] + 1
    change(root, dict([entry(row["storeTimestamp"], "orders", "k3", wrong)]))
    done = requested(root, "orders", "k3")
    assert [json.loads(line)["phy"] for line in done.stdout.splitlines()] == [wrong - 1]
    assert "1 index entries point to no record, the first: " in done.stderr


def test_a_value_that_is_no_time_is_named(root: Path) -> None:
    (row,) = rows(root, "orders", "k3")
    change(root, {entry(row["storeTimestamp"], "orders", "k3", 7)[0]: b"short"})
    done = requested(root, "orders", "k3")
    assert done.exit_code == 1
    assert f"the index in {root / 'rocksdbstore'} can be read only in part" in done.stderr
    assert "8 bytes" in done.stderr


def test_a_database_that_cannot_be_read_is_named_and_the_files_answer(root: Path) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        assert store.put_message(Message("orders", b"new", 0, {"KEYS": "fresh"})).ok
    (root / "rocksdbstore" / "CURRENT").write_text("MANIFEST-999999\n")
    done = requested(root, "orders", "fresh")
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 1
    assert "a key index cannot be read and was skipped" in done.stderr
    assert str(root / "rocksdbstore") in done.stderr


def test_a_database_that_was_never_used_is_not_spoken_of(root: Path) -> None:
    change(root, {}, lose=True)
    assert open_message_index(root) is None
    assert "rocksdbstore" not in requested(root, "orders", "k3").stderr
    shutil.rmtree(root / "rocksdbstore")
    assert open_message_index(root) is None
