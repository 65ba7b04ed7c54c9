"""Damage that a scan meets: an error with its place, or a report and all other rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cqstore
from cqstore import CorruptionError, Message, MessageStore, NoSuchQueueError, StoreConfig
from cqstore.store.errors import ChecksumError, QueueGapError
from tests.kit.golden import load_dump
from tests.kit.scanned import flip, rows_of

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
Damages = list[tuple[str, cqstore.TopicDamage]]


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Path, int]:
    """A store whose record of unit 2 of queue 1 has a wrong byte: root, file and phy offset."""
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        results = store.put_messages([Message("t", b"body %d" % at, at % 2) for at in range(10)])
    phy_offset = results[5].phy_offset
    return tmp_path, flip(tmp_path, phy_offset, b"body 5"), phy_offset


def test_a_damaged_body_is_named(damaged: tuple[Path, Path, int]) -> None:
    root, file, phy_offset = damaged
    with pytest.raises(ChecksumError) as met:
        list(cqstore.scan(root).to_batches())
    found = met.value
    assert (found.path, found.phy_offset) == (file, phy_offset)
    assert found.expected != found.got
    reported = str(found)
    assert reported.startswith("t, queue 1, offset 2: the body's CRC does not match")
    assert f"({file}, phy_offset {phy_offset}): expected 0x" in reported
    assert ", found 0x" in reported
    with pytest.raises((pa.ArrowException, OSError), match="CRC does not match") as at_a_consumer:
        pa.table(cqstore.scan(root))
    assert reported in str(at_a_consumer.value)


def test_a_damaged_body_is_passed_over_and_reported(damaged: tuple[Path, Path, int]) -> None:
    reported: Damages = []
    found = cqstore.scan(damaged[0], on_damage=lambda *each: reported.append(each))
    rows = rows_of(found)
    assert sorted(row["body"] for row in rows) == [b"body %d" % at for at in range(10) if at != 5]
    ((topic, damage),) = reported
    assert (topic, *damage[:3]) == ("t", 1, 2, 1)
    assert "CRC does not match" in damage.reason


def test_a_body_that_is_not_asked_for_is_not_checked(damaged: tuple[Path, Path, int]) -> None:
    for columns in (["phy"], ["msgId", "topic"], ["properties"]):
        assert pa.table(cqstore.scan(damaged[0], columns=columns)).num_rows == 10


def test_a_record_that_does_not_lie_there_is_named(damaged: tuple[Path, Path, int]) -> None:
    root, file, phy_offset = damaged
    data = bytearray(file.read_bytes())
    data[phy_offset + 4 : phy_offset + 8] = b"\1\2\3\4"  # the magic code
    file.write_bytes(data)
    with pytest.raises(CorruptionError) as met:
        list(cqstore.scan(root, columns=["flag"]).to_batches())
    assert (met.value.path, met.value.phy_offset) == (file, phy_offset)
    assert met.value.got == "0x01020304"
    assert str(met.value).startswith("t, queue 1, offset 2: no record starts here")
    reported: Damages = []
    found = cqstore.scan(root, columns=["flag"], on_damage=lambda *each: reported.append(each))
    assert pa.table(found).num_rows == 9
    assert len(reported) == 1


@pytest.mark.parametrize("columns", [["phy"], ["phy", "flag"], ["phy", "storeTimestamp"]])
def test_a_unit_without_its_record_is_damage_whatever_is_asked(
    columns: list[str], golden_folder: Path
) -> None:
    root = golden_folder / "torn-default"
    with pytest.raises(CorruptionError) as met:
        list(cqstore.scan(root, columns=columns).to_batches())
    assert met.value.path is not None
    assert met.value.phy_offset == load_dump("torn-default")["commitLog"]["maxPhy"]
    reported: Damages = []
    found = rows_of(
        cqstore.scan(root, columns=columns, on_damage=lambda *each: reported.append(each))
    )
    expected = {each["phy"] for each in load_dump("torn-default")["messages"]}
    assert {row["phy"] for row in found} <= expected
    assert [damage.units for _, damage in reported] == [1]


@pytest.mark.parametrize("columns", [["queueId", "queueOffset"], None])
def test_units_that_are_missing_are_damage(columns: list[str] | None, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        store.put_messages([Message("t", b"%d" % at, at % 2) for at in range(20)])
    queue = tmp_path / "consumequeue" / "t" / "1" / f"{0:020d}"
    data = queue.read_bytes()
    queue.write_bytes(data[: 4 * 20] + bytes(2 * 20) + data[6 * 20 :])
    with pytest.raises(QueueGapError) as met:
        list(cqstore.scan(tmp_path, columns=columns).to_batches())
    assert str(met.value) == (
        f"t, queue 1, offset 4: missing in the queue ({tmp_path}): expected units 4 to 5,"
        " found none"
    )
    reported: Damages = []
    found = cqstore.scan(tmp_path, columns=columns, on_damage=lambda *each: reported.append(each))
    places = [(row["queueId"], row["queueOffset"]) for row in rows_of(found)]
    assert places == [(at, offset) for at in (0, 1) for offset in range(10)
                      if (at, offset) not in {(1, 4), (1, 5)}]  # fmt: skip
    assert reported == [("t", cqstore.TopicDamage(1, 4, 2, "missing in the queue"))]


def test_units_that_are_lost_at_the_end_of_a_queue_are_damage(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        store.put_messages([Message("t", b"%d" % at) for at in range(10)])
    reported: Damages = []
    found = cqstore.scan(tmp_path, columns=["phy"], on_damage=lambda *each: reported.append(each))
    batches = found.to_batches()  # the store is open, and knows where the queue ends
    queue = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
    with queue.open("r+b") as file:
        file.seek(7 * 20)
        file.write(bytes(3 * 20))
    assert sum(batch.num_rows for batch in batches) == 7
    assert reported == [("t", cqstore.TopicDamage(0, 7, 3, "missing in the queue"))]


def test_a_damaged_record_that_no_queue_shows_yet_is_named_once(tmp_path: Path) -> None:
    never = dict.fromkeys(
        ("flush_interval_consume_queue", "flush_consume_queue_thorough_interval"), 3_600_000
    )
    config = CONFIG.model_copy(update=never)
    with MessageStore.open(tmp_path, config, backend="rocksdb") as store:
        store.put_messages([Message("tu"[at % 2], b"body %d" % at) for at in range(6)])
        (log, *_) = sorted((tmp_path / "commitlog").iterdir())
        at = log.read_bytes().index(b"body 2")
        with log.open("r+b") as file:
            file.seek(at)
            file.write(b"B")
        with pytest.raises(ChecksumError, match=r"^t, not dispatched yet: the body's CRC"):
            list(cqstore.scan(tmp_path).to_batches())
        reported: Damages = []
        found = rows_of(cqstore.scan(tmp_path, on_damage=lambda *each: reported.append(each)))
        assert sorted(row["body"] for row in found) == [b"body %d" % at for at in (0, 1, 3, 4, 5)]
        assert [(topic, *damage[:3]) for topic, damage in reported] == [("t", -1, -1, 1)]


@pytest.mark.parametrize("table", ["messages", "units"])
def test_a_topic_that_is_not_there_is_named_with_what_is_near(
    table: Any, golden_folder: Path
) -> None:
    found = cqstore.scan(golden_folder / "special-default", "orders_11", table=table)
    with pytest.raises(
        NoSuchQueueError, match="no topic 'orders_11' in this store; did you mean 'orders_1"
    ):
        list(found.to_batches())
