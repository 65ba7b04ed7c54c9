"""What the verbs print, field by field: against what was put, and in the words of the operator."""

import json
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from cqstore.cli import info_facts as informing
from cqstore.cli.commands.offset import milliseconds
from cqstore.cli.table import table
from cqstore.store.errors import StoreError, StoreIOError, UnsupportedFormatError
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult
from cqstore.store.settings.config import StoreConfig
from tests.kit.double_write import StoredOffsets, open_store
from tests.kit.faults import EIO, Faults
from tests.kit.golden import load_dump
from tests.kit.tree import unchanged
from tests.kit.verbs import Rows, call, rows
from tests.store.comparing.test_comparison import Database

CONFIG = StoreConfig(
    mapped_file_size_commit_log=2048, mapped_file_size_consume_queue=200, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip
"""Ten units a queue file: that is where a pull ends."""
COUNT = 25
BORN, STORE = Host.of("10.1.2.3", 4567), Host.of("2001:db8::1", 10911)


MORE = {"has_more": True}
"""In the last row of an answer with a limit that has left rows out."""


@dataclass(frozen=True)
class Made:
    """A store, and what was put into it."""

    root: Path
    put: list[tuple[Message, PutMessageResult]]

    def row(self, number: int) -> dict[str, object]:
        """Return what ``get`` should print of a message."""
        message, result = self.put[number]
        assert result.appended is not None
        id_bytes = message.store_host.wire + struct.pack(">q", result.phy_offset)
        body = {"body": "é"} if message.body == "é".encode() else {"bodyBase64": "/w=="}
        return {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": result.queue_offset,
            "phy": result.phy_offset,
            "msgId": id_bytes.hex().upper(),
            "storeTimestamp": self.time(number),
            "bornTimestamp": message.born_timestamp,
            "bornHost": "10.1.2.3 4567",
            "storeHost": "2001:db8:0:0:0:0:0:1 10911",
            "flag": message.flag,
            "sysFlag": 1 << 5,
            "reconsumeTimes": 0,
            "preparedTransactionOffset": 0,
            "properties": message.properties,
            **body,
        }

    def time(self, number: int) -> int:
        appended = self.put[number][1].appended
        assert appended is not None
        return appended.store_timestamp


def message(number: int) -> Message:
    tags = {"TAGS": f"tag{number % 5}", "KEYS": f"all k{number}"}
    body = "é".encode() if number % 2 else b"\xff"
    return Message("t", body, 0, tags, number, 0, 1000 + number, BORN, STORE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("made") / "store"
    put = []
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(COUNT):
            before = time.time_ns() // 1_000_000
            while time.time_ns() // 1_000_000 == before:
                pass  # each has a time of its own
            put.append((message(number), store.put_message(message(number))))
        others = [Message("other", b"\xff", queue_id) for queue_id in (1, 3)]
        put += zip(others, store.put_messages(others), strict=True)
    return Made(root, put)


def first_of(count: int, offset: int) -> str:
    return (
        f"only the first {count} messages are shown: the max offset is 25 (--count; continue with"
        f" --offset {offset})"
    )


@pytest.mark.parametrize(
    ("words", "numbers", "reported"),
    [
        ([], range(25), "FOUND: next offset 25, min 0, max 25"),
        (["--count", 25], range(25), "FOUND: next offset 25, min 0, max 25"),
        (["--count", 24], range(24), first_of(24, 24)),
        (["--offset", 9, "--count", 2], range(9, 11), first_of(2, 11)),
        (["--tags", "tag2"], range(2, 25, 5), "FOUND: next offset 25, min 0, max 25"),
        (["--tags", "tag2 || tag0", "--count", 3], [0, 2, 5], first_of(3, 6)),
        (["--tags", "none"], [], "NO_MATCHED_MESSAGE: next offset 25, min 0, max 25"),
        (["--offset", 25], [], "OFFSET_OVERFLOW_ONE: next offset 25, min 0, max 25"),
        (["--offset", 26], [], "OFFSET_OVERFLOW_BADLY: next offset 25, min 0, max 25"),
        (["--key", "k7"], [7], ""),
        (
            ["--key", "all", "--count", 3],
            [22, 23, 24],
            "only the newest 3 messages are shown: there are older ones (--count)",
        ),
    ],
)
def test_messages_are_printed_as_they_were_put(
    made: Made, words: list[object], numbers: list[int], reported: str
) -> None:
    done = call("get", made.root, "--topic", "t", *words)
    expected = [*map(made.row, numbers)]
    if reported.startswith("only"):
        expected[-1] |= MORE
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected
    assert done.stderr == (f"cqstore: {reported}\n" if reported else "")
    assert done.exit_code == 0


def test_a_message_is_found_by_its_id(made: Made) -> None:
    reported = made.row(11)
    assert rows("get", made.root, "--message-id", reported["msgId"]) == [reported]


def test_missing_units_and_damaged_records_are_said(made: Made, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(COUNT):
            assert store.put_message(message(number)).ok
        bad = store.get_message("t", 0, 12, 1).messages()[0]
        at, end = bad.phy_offset, bad.phy_offset + len(bad.record)  # read before it is damaged
    (root / "consumequeue" / "t" / "0" / f"{0:020d}").write_bytes(bytes(200))
    done = call("get", root, "--topic", "t", "--offset", 0)
    assert done.stdout == ""
    assert "OFFSET_FOUND_NULL, units 0 to 9 are missing: next offset 10, min" in done.stderr
    shown = rows("dump", root, "--topic", "t", "--offset", 8, "--count", 4)
    missing = {"queueOffset": None, "problem": "missing unit"}
    assert shown[:2] == [missing] * 2
    assert [row["queueOffset"] for row in shown[2:]] == [10, 11]
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[at + 4 : end] = bytes(end - at - 4)
    log.write_bytes(data)
    done = call("get", root, "--topic", "t", "--offset", 11, "--count", 3)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["queueOffset"] for row in found] == [11, 13, 14]
    assert done.exit_code == 1
    assert "cqstore: unit 12 is skipped: " in done.stderr
    only = call("get", root, "--topic", "t", "--offset", 12, "--count", 1)
    assert '"queueOffset":13' in only.stdout, "it goes on behind it"
    bare = call("dump", log, "--output", "jsonl")
    assert len(bare.stdout.splitlines()) == 12
    fault = bare.exception
    assert isinstance(fault, StoreError)
    assert f"{log}, position {at}, phy_offset {at}" in str(fault)


def test_queries_take_both_ends_of_a_span_of_time(made: Made) -> None:
    words = ["query", made.root, "--topic", "t", "--key", "all"]
    first, last = made.time(0), made.time(COUNT - 1)
    done = call(*words, "--begin", first, "--end", last)
    every = [*map(made.row, range(COUNT))]
    assert [json.loads(line) for line in done.stdout.splitlines()] == every
    assert done.stderr == f"cqstore: {COUNT} messages\n"
    assert rows(*words, "--max", 2) == [every[-2], every[-1] | MORE]
    assert rows(*words, "--end", first - 1) == rows(*words, "--begin", last + 1) == []
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=first)
    assert made.row(0) in rows(*words, "--end", moment.isoformat())


WRONG_SIZE = (
    "an index file has the wrong size; run cqstore rebuild --index to rebuild the index from the"
    " commit log"
)


def test_without_an_index_a_query_finds_nothing_and_says_why(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        assert store.put_message(message(0)).ok
    (whole,) = (tmp_path / "s" / "index").iterdir()
    odd = tmp_path / "s" / "index" / ("1" * 17)
    odd.write_bytes(b"?" * 100)
    done = call("query", tmp_path / "s", "--topic", "t", "--key", "all")
    assert (done.exit_code, done.stdout.count("\n")) == (1, 1)
    assert f"the file index can be read only in part: {WRONG_SIZE} ({odd})" in done.stderr
    whole.unlink()
    done = call("query", tmp_path / "s", "--topic", "t", "--key", "all")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "this store has no readable key index" in done.stderr


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_a_time_leads_to_an_offset(made: Made, name: str) -> None:
    at = made.time(9)
    (found,) = rows("offset", made.root, "--topic", "t", "--time", at + 0, "--boundary", name)
    assert found == {
        "topic": "t", "queueId": 0, "timestamp": at, "boundary": name, "offset": 9,
        "min": 0, "max": COUNT,
    }  # fmt: skip


def test_times_are_ms_or_iso_8601_to_the_millisecond() -> None:
    assert [*map(milliseconds, ("0", "1700000000123", "-5"))] == [0, 1700000000123, -5]
    start = datetime(1970, 1, 1)  # noqa: DTZ001 - a bare one is UTC
    for ms in (1, -1, 999, 1700000000123, 2167731188121, 3999999999999):
        bare = start + timedelta(milliseconds=ms)
        assert milliseconds(bare.isoformat()) == ms
        assert milliseconds(bare.isoformat() + "Z") == ms
        assert milliseconds(f"{bare.isoformat()}+02:00") == ms - 7_200_000
    with pytest.raises(typer.BadParameter, match="invalid time 'soon'"):
        milliseconds("soon")


def test_queues_are_listed_from_where_and_as_far_as_told(made: Made) -> None:
    def row(topic: str, queue_id: int, high: int) -> dict[str, object]:
        ends = {"type": "SimpleCQ", "min": 0, "max": high, "messages": high}
        return {"topic": topic, "queueId": queue_id, **ends}

    every = [row("other", 1, 1), row("other", 3, 1), row("t", 0, COUNT)]
    assert rows("topics", made.root) == every
    assert rows("topics", made.root, "--limit", 2) == [every[0], every[1] | MORE]
    assert rows("topics", made.root, "--limit", 3) == every
    assert rows("topics", made.root, "--prefix", "o") == every[:2]
    assert rows("topics", made.root, "--prefix", "t", "--limit", 1) == every[2:]
    assert rows("topics", made.root, "--after", "other/1") == every[1:]
    assert rows("topics", made.root, "--after", "other/0") == every
    for after in ("other", "other/", "other/x", "other/²", "/other"):
        done = call("topics", made.root, "--after", after)
        assert done.exit_code == 2, after
        assert "TOPIC/QUEUEID" in done.stderr


def test_units_and_records_are_dumped_as_they_lie(made: Made) -> None:
    def unit(number: int) -> dict[str, object]:
        result = made.put[number][1]
        assert result.appended is not None
        code = 0
        for letter in f"tag{number % 5}":
            code = 31 * code + ord(letter)
        return {
            "queueOffset": number, "phy": result.phy_offset, "size": result.appended.size,
            "tagsCode": code, "storeTimestamp": made.time(number),
        }  # fmt: skip

    words = ["dump", made.root, "--topic", "t"]
    assert rows(*words) == [unit(0) | MORE]
    assert rows(*words, "--offset", 9, "--count", 3) == [unit(9), unit(10), unit(11) | MORE]
    assert rows(*words, "--offset", 24, "--count", 3) == [unit(24)]
    (record,) = rows("dump", made.root, "--commitlog-offset", made.row(3)["phy"])
    assert (record["body"], record["queueOffset"], record["bodyLength"]) == ("é", 3, 2)


def test_a_bare_log_file_ends_with_a_blank_or_with_nothing(made: Made) -> None:
    size = 2048
    dumped: Rows = []
    paths = sorted((made.root / "commitlog").iterdir())
    for number, path in enumerate(paths):
        found = rows("dump", path)
        blank = found.pop() if "blank" in found[-1] else None
        last = found[-1]
        end = last["phy"] + last["storeSize"]
        if blank is not None:
            assert blank == {"phy": end, "blank": (number + 1) * size - end}
        else:
            assert path == paths[-1] or end == (number + 1) * size
        dumped += found
    assert len(paths) > 1
    assert dumped == rows("dump", made.root, "--messages")
    assert [row["phy"] for row in dumped] == [result.phy_offset for _, result in made.put]


@pytest.mark.parametrize(
    ("data", "blank"), [(struct.pack(">ii", 8, -875286124), True), (b"abc", False), (b"", False)]
)
def test_a_bare_log_file_may_hold_less_than_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, *, blank: bool
) -> None:
    path = tmp_path / f"{4096:020d}"
    path.write_bytes(data)
    assert rows("dump", path) == [{"phy": 4096, "blank": 8}] * blank
    Faults(monkeypatch).fail("open", EIO, path.name, after=1)  # `dump` looks what it is first
    fault = call("dump", path).exception
    assert isinstance(fault, StoreIOError)
    assert (fault.path, "cannot read a commit log file" in fault.reason) == (path, True)


def test_a_bare_index_file_has_an_entry_a_key(made: Made) -> None:
    (path,) = (made.root / "index").iterdir()
    found = rows("dump", path)
    assert {row["phy_offset"] for row in found} == {made.row(n)["phy"] for n in range(COUNT)}


def test_a_bare_checkpoint_is_one_row(made: Made) -> None:
    (row,) = rows("dump", made.root / "checkpoint")
    data = (made.root / "checkpoint").read_bytes()
    assert [*row.values()] == [*struct.unpack_from(">6q", data)]
    assert row["confirm_phy_offset"] == made.put[-1][1].phy_offset


@pytest.mark.parametrize("name", ["1" * 16, "1" * 18, "1" * 19, "1" * 21, "x" * 20, "checkpoin"])
def test_a_file_with_another_name_is_none_of_a_store(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(5000))
    done = call("dump", tmp_path / name)
    assert isinstance(done.exception, UnsupportedFormatError)
    assert done.exception.path == tmp_path / name


def test_what_a_store_holds_is_told(made: Made) -> None:
    done = call("info", made.root, "--output", "json")
    printed_output = json.loads(done.stdout)
    log = sorted((made.root / "commitlog").iterdir())
    units = [path for path in (made.root / "consumequeue").rglob("*") if path.is_file()]
    last = made.put[-1][1]
    assert last.appended is not None
    expected = {
        "root": str(made.root),
        "backends": ["file"],
        "state": None,
        "kept_backends": ["file"],
        "last_exit": "clean",
        "opened_by": None,
        "commit_log_files": len(log),
        "commit_log_file_bytes": 2048,
        "min_phy_offset": 0,
        "max_phy_offset": last.phy_offset + last.appended.size,
        "topics": 2,
        "queues": 3,
        "counted_all": True,
        "queues_disk_bytes": sum(512 * path.stat().st_blocks for path in units),
        "index_files": 1,
        "checkpoint_physic_msg_timestamp": last.appended.store_timestamp,
        "checkpoint_confirm_phy_offset": last.phy_offset,
        "file_reserved_hours": 72,
        "delete_when": "04",
        "disk_max_used_percent": 75,
        "warnings": [],
    }
    assert expected.items() <= printed_output.items()
    assert done.stderr == ""


def test_topics_and_queues_are_counted_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG, backend="rocksdb") as store:
        for topic, queue_id in (("a", 0), ("a", 7), ("b", 0)):
            assert store.put_message(Message(topic, b"", queue_id)).ok
    for most, reported in ((4, (2, 3, True)), (3, (2, 3, False)), (2, (1, 2, False))):
        monkeypatch.setattr(informing, "COUNTED_QUEUES", most)
        (facts,) = rows("info", tmp_path / "s")
        assert (facts["topics"], facts["queues"], facts["counted_all"]) == reported


def test_a_look_from_outside_tells_the_same(made: Made) -> None:
    reported = {(row["part"], row["fact"]): row["value"] for row in rows("top", made.root)}
    last = made.put[-1][1]
    assert last.appended is not None
    end = last.phy_offset + last.appended.size
    folders = {
        (name, fact): value
        for name in ("consumequeue", "index")
        for paths in [[path for path in (made.root / name).rglob("*") if path.is_file()]]
        for fact, value in (
            ("files", len(paths)),
            ("on disk, bytes", sum(512 * path.stat().st_blocks for path in paths)),
        )
    }
    disk = os.statvfs(made.root)
    used = disk.f_blocks - disk.f_bfree
    percents = [
        reported.pop(("disk", f"used by the {what}, percent")) for what in ("log's", "queues'")
    ]
    assert percents == pytest.approx([100 * used / (used + disk.f_bavail)] * 2, abs=0.5)
    assert {key: reported.pop(key) for key in folders} == folders
    ages = [fact for part, fact in reported if fact.endswith(", s ago")]
    assert [reported.pop(("checkpoint", fact)) is None for fact in ages] == [False, False, True]
    assert reported.pop(("store", "looked at"))
    assert reported == {
        ("store", "state"): "closed",
        ("log", "files"): 2,
        ("log", "file size, bytes"): 2048,
        ("log", "min phy offset"): 0,
        ("log", "max phy offset"): end,
        ("log", "records since the first look"): 0,
        ("log", "lag of the checkpoint, bytes"): last.appended.size,
        ("checkpoint", "confirm phy offset"): last.phy_offset,
    }


def test_a_store_that_needs_recovery_says_so_and_is_shown_as_it_lies(
    made: Made, tmp_path: Path
) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        assert store.put_message(message(0)).ok
    (tmp_path / "s" / "abort").touch()
    log = tmp_path / "s" / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    end = len(data.rstrip(b"\0"))
    log.write_bytes(data[:end] + b"\0\0torn" + data[end + 6 :])
    with unchanged(tmp_path):
        done = call("info", tmp_path / "s", "--output", "json")
        assert "the store needs recovery and is shown unrecovered (cqstore recover)" in done.stderr
        printed_output = json.loads(done.stdout)
        assert printed_output["last_exit"] == "not clean"
        count, why = printed_output["warnings"]
        assert count == "found 4 bytes after the end of the log"
        assert f"phy_offset {end}" in why
    report = json.loads(call("recover", tmp_path / "s", "--output", "json").stdout)
    saved = report.pop("saved")
    assert [Path(path).read_bytes() for path in saved] == [b"\0\0torn"]
    assert report.pop("firstBad")
    assert report == {
        "lastExit": "not clean", "scanFrom": 0, "scannedRecords": 1, "scannedBytes": end,
        "logEnd": end, "watermarks": {"file": 0}, "dispatchedUnits": 1, "leftBehindWrittenTo": {},
        "queuesCut": 0, "droppedBytes": 4, "passedOver": [], "queuesMended": [],
        "queuesDamaged": [], "indexFilesCut": 0, "indexDropped": None, "restartedQueues": [],
    }  # fmt: skip


def test_findings_are_told_with_their_place(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(COUNT):
            assert store.put_message(message(number)).ok
    done = call("check", root, "--output", "jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "cqstore: 25 records, 25 units checked; 0 damaged\n"
    path = root / "consumequeue" / "t" / "0" / f"{200:020d}"
    data = bytearray(path.read_bytes())
    data[45] ^= 1  # the phy offset of unit 12
    path.write_bytes(data)
    done = call("check", root, "--output", "jsonl")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert f"25 units checked; {len(found)} damaged" in done.stderr
    first = found[0]
    assert (first["severity"], first["topic"], first["queueId"]) == ("damage", "t", 0)
    assert first["queueOffset"] == 12
    assert first["problem"]


def test_what_cannot_be_mended_is_said_and_no_copy_made(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = golden("special-default")
    (root / "consumequeue" / "batch_1" / "9").mkdir(parents=True)
    done = call("check", root, "--repair")
    assert done.exit_code == 1, done.output
    assert "cannot repair: the topic has both simple and batch queues" in done.stderr
    assert [child for child in tmp_path.iterdir() if child != root] == []


def test_a_damaged_batch_queue_is_repaired_in_the_copy(golden: Callable[[str], Path]) -> None:
    root = golden("special-default")
    (path, *_) = sorted((root / "batchconsumequeue").rglob(f"{0:020d}"))
    good = path.read_bytes()
    data = bytearray(good)
    data[7] ^= 1  # the phy offset of its first unit
    path.write_bytes(data)
    done = call("check", root, "--repair")
    assert done.exit_code == 0, done.output
    repaired = root.with_name(f"{root.name}.repaired") / path.relative_to(root)
    assert repaired.read_bytes() == good
    assert path.read_bytes() == bytes(data)


def test_backends_are_compared_and_steps_are_told(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_store(root) as store:
        StoredOffsets().put(store, 50)
        end = store.max_phy_offset()
    reported = "cqstore: 50 units of 5 queues compared, file with rocksdb: {} queues differ\n"
    done = call("mode", root, "--verify", "--output", "jsonl")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", reported.format(0))
    with Database(root) as database:
        database.lose(2, 3, 4)
    done = call("mode", root, "--verify", "--output", "jsonl")
    assert (done.exit_code, done.stderr) == (1, reported.format(2))
    assert done.output.endswith(reported.format(2)), "the sum comes last"
    assert json.loads(done.stdout) == {
        "kind": "hole", "topic": "t", "queueId": 2, "from": 3, "to": 4, "lacking": "rocksdb",
        "field": "", "values": None,
    }  # fmt: skip
    (now,) = rows("mode", root)
    assert "2 units of the rocksdb queues are missing or different" in now.pop(
        "step to double-write-rocksdb"
    )
    assert now == {
        "state": "double-write-file", "set": "by the files of the store and the settings",
        "queues in": "file, rocksdb", "kept, the one that is read first": "file, rocksdb",
        "lagging": {}, "step to file": "possible",
    }  # fmt: skip
    (facts,) = rows("info", root)
    assert facts["warnings"] == ["two backends have queues (double write)"]
    (done_so,) = rows("mode", root, "--to", "file")
    assert done_so == {
        "before": "double-write-file", "state": "file", "lagging": {"rocksdb": end},
        "detached": {}, "dispatchedUnits": 0, "preparedTables": [], "convertedTables": {},
        "olderTables": [],
    }  # fmt: skip
    (now,) = rows("mode", root)
    assert (now["set"], now["lagging"]) == ("by cqstore mode", {"rocksdb": end})
    (facts,) = rows("info", root)
    assert facts["state"] == "file"
    assert facts["warnings"] == [
        "two backends have queues (only the file queues are kept)",
        f"the rocksdb queues are left behind: complete up to phy offset {end}",
    ]


# ---- printing


def test_the_rows_of_a_table_follow_its_head() -> None:
    made = table([{"a": 1, "b": "x"}, {"a": 2, "b": None}])
    assert [column.header for column in made.columns] == ["a", "b"]
    assert [[*column.cells] for column in made.columns] == [["1", "2"], ["x", ""]]


@pytest.mark.parametrize("name", ["special-default", "special-defaultRocksDB"])
def test_queues_begin_where_rocketmqs_do(golden_folder: Path, name: str) -> None:
    """Expired units and batch queues among them; the stores are read, not written."""
    root, queues = golden_folder / name, load_dump(name)["queues"]
    ends = [(queue["topic"], queue["queueId"], queue["min"], queue["max"]) for queue in queues]
    shown = [tuple(row.values()) for row in rows("topics", root)]
    assert {(*row[:2], *row[3:5]) for row in shown} == {*ends}
    assert [row[5] for row in shown] == [row[4] - row[3] for row in shown]
    begun = [queue for queue in queues if queue["units"] and queue["min"]]
    batch = [queue for queue in queues if queue["type"] == "BatchCQ" and queue["units"]]
    for queue in [*begun[:1], *batch[-1:]]:
        key = ["--topic", queue["topic"], "--queue-id", queue["queueId"]]
        low = queue["min"]
        unit = [value for name, value in rows("dump", root, *key)[0].items() if name not in MORE]
        assert unit == queue["units"][0]
        every = rows("dump", root, *key, "--offset", low, "--count", 10_000)
        assert [[*row.values()] for row in every] == queue["units"]
        (first, *_) = rows("get", root, *key, "--count", 1)
        assert (first["queueOffset"], first["phy"]) == tuple(unit[:2])
        (found,) = rows("offset", root, *key, "--time", 0)
        assert (found["offset"], found["min"], found["max"]) == (low, low, queue["max"])
