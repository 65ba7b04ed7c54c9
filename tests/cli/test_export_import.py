"""``cqstore export`` and ``import``: what is selected, wrong files, what a failure leaves."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cqstore.cli.message_files import text_files as message_files
from cqstore.cli.message_files.import_position import ImportPosition
from cqstore.cli.message_files.message_arrow import schema
from cqstore.cli.message_files.message_lines import IllegalLineError, MessageLine
from cqstore.cli.message_files.text_files import read_csv, read_json_lines
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import COMMAND, cqstore, run

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000)
SIZES = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=2000\n"
COUNT = 50

ODD = [
    b"", b"\xff\xfe\0", b"\r\n,\"'", "\u2028\u00e9\U0001f600".encode(), b" ", b"0", b"null",
]  # fmt: skip


def later(*values: object) -> list[object]:
    """Return cases that only a long run has."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def message(number: int) -> Message:
    body = ODD[number] if number < len(ODD) else f"body {number}".encode()
    properties = {"n": str(number), "\u00e9 =": '"\\\r\n,'} if number % 2 else {}
    if number % 5 == 0:
        properties["KEYS"] = f"k{number}"
    return Message(
        "t" if number % 10 else "u", body, number % 3, properties, -number, 0,
        1_700_000_000_000 + number, Host.of("::1" if number % 7 == 0 else "10.0.0.1", number),
        Host.of("10.0.0.2", 10911), number % 4, number * 1000,
    )  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        assert all(each.ok for each in store.put_messages(map(message, range(COUNT))))
    return root


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(SIZES)
    return path


def exported(root: Path, *words: object) -> list[dict[str, Any]]:
    done = cqstore("export", root, *words)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def made(root: Path, path: Path) -> Path:
    cqstore("export", root, "--to", path)
    return path


def put_into(root: Path) -> list[tuple[Any, ...]]:
    """Return all that a store has, by topic and queue."""
    found = []
    with MessageStore.open(root, read_only=True) as store:
        for topic, queue_id in sorted(store.queue_keys()):
            for each in store.get_message(topic, queue_id, 0, 10_000).messages():
                head, tail = each.head, each.tail
                found.append(
                    (topic, queue_id, each.body, each.properties, head.flag, each.born_host,
                     each.store_host, head.born_timestamp, tail.reconsume_times,
                     tail.prepared_transaction_offset)
                )  # fmt: skip
    return found


@pytest.mark.parametrize("form", ["csv", "arrow", *later("jsonl", "parquet")])
def test_bodies_and_properties_of_any_kind_come_back(
    form: str, root: Path, tmp_path: Path, conf: Path
) -> None:
    path = made(root, tmp_path / f"a.{form}")
    done = cqstore("import", tmp_path / "new", path, "--new", "--config", conf, "--output", "json")
    assert json.loads(done.stdout) | {"phy": 0} == {"put": COUNT, "next": COUNT + 1, "phy": 0}
    assert put_into(tmp_path / "new") == put_into(root)
    assert not [*tmp_path.glob("*.part*")]


def test_messages_are_selected(root: Path) -> None:
    rows = exported(root)
    assert [row["topic"] for row in rows] == ["t"] * 45 + ["u"] * 5
    assert exported(root, "--topic", "u") == rows[45:]
    assert exported(root, "--topic", "u", "--topic", "t", "--queue-id", 1) == [
        row for row in rows if row["queueId"] == 1
    ]
    assert [row["properties"]["KEYS"] for row in exported(root, "--key", "k25")] == ["k25"]
    assert [row["body"] for row in exported(root, "--grep", "^body 4[0-1]$")] == [
        "body 41", "body 40",
    ]  # fmt: skip
    stamp = rows[0]["storeTimestamp"]
    assert len(exported(root, "--begin", stamp, "--end", stamp + 100_000)) == COUNT
    assert exported(root, "--begin", stamp + 100_000) == []
    done = cqstore("export", root, "--topic", "u", "--format", "%t:%o")
    assert done.stdout == "u:0\nu:0\nu:0\nu:1\nu:1\n"


def test_an_exported_store_has_the_topics_that_a_broker_needs(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "new"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for topic, queue_id in (("kept", 1), ("made", 2), ("%LMQ%light", 0)):
            assert store.put_message(Message(topic, b"x", queue_id)).ok
    row = {"topicName": "kept", "readQueueNums": 8, "writeQueueNums": 8, "perm": 4, "ours": 1}
    table = {"topicConfigTable": {"kept": row, "not exported": {"perm": 6}}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps(table))
    cqstore("export", root, "--to", target, "--format", "store")
    content = json.loads((target / "config" / "topics.json").read_text())
    rows = content["topicConfigTable"]
    assert rows["kept"] == row
    assert (rows["made"]["readQueueNums"], rows["made"]["writeQueueNums"]) == (3, 3)
    assert rows.keys() == {"kept", "made"}
    assert content["dataVersion"]["counter"] == 1
    (root / "config" / "topics.json").write_text("{")
    done = cqstore("export", root, "--to", tmp_path / "other", "--format", "store")
    assert "the topics of the new store are created from its queues" in done.stderr
    made = json.loads((tmp_path / "other" / "config" / "topics.json").read_text())
    assert made["topicConfigTable"]["kept"]["readQueueNums"] == 2


@pytest.mark.parametrize("form", ["jsonl", "arrow", "store"])
def test_what_is_there_is_not_written_over(form: str, root: Path, tmp_path: Path) -> None:
    there = tmp_path / f"a.{form}"
    there.write_text("mine")
    done = cqstore("export", root, "--to", there, "--format", form, code=2)
    assert "the target already exists and is not overwritten" in done.stderr
    assert there.read_text() == "mine"
    unfinished = tmp_path / f"b.{form}.part"
    unfinished.write_text("mine")
    done = cqstore("export", root, "--to", tmp_path / f"b.{form}", "--format", form, code=2)
    assert "found an unfinished export: " in done.stderr
    assert unfinished.read_text() == "mine"
    assert len([*tmp_path.iterdir()]) == 2


def damage(root: Path, queue_offset: int) -> None:
    """Change a byte of the body of a message of ``t``."""
    with MessageStore.open(root, read_only=True) as store:
        (found,) = store.get_message("t", 1, queue_offset, 1).messages()
        position, body = found.phy_offset, found.body
    log = next((root / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    at = data.index(body, position)
    data[at] ^= 1
    log.write_bytes(data)


def test_what_is_damaged_is_named_and_all_else_written(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_messages([Message("t", b"body %d" % at, at % 2) for at in range(10)])
    damage(root, 2)
    for form in ("jsonl", "store"):
        target = tmp_path / f"a.{form}"
        done = cqstore("export", root, "--to", target, "--format", form, code=1)
        assert "t, queue 1: unit 2 is skipped: the body's CRC does not match" in done.stderr
        assert "9 messages" in done.stderr
        assert target.exists()
    done = cqstore("import", tmp_path / "new", root, "--new", code=1)
    assert "topic 't' has damaged messages" in done.stderr
    assert "--continue-from" in done.stderr


@pytest.mark.parametrize("form", ["csv", *later("jsonl")])
def test_an_export_that_was_killed_goes_on(form: str, root: Path, tmp_path: Path) -> None:
    whole, target = tmp_path / "whole", tmp_path / "a"
    cqstore("export", root, "--to", whole, "--format", form)
    killed = run_killed(root, target, form)
    assert killed == -signal.SIGKILL
    part = tmp_path / "a.part"
    assert part.exists()
    assert not target.exists()
    done = cqstore("export", root, "--to", target, "--format", form, code=2)
    assert "continue with --resume, or remove it" in done.stderr
    done = cqstore(
        "export", root, "--to", target, "--format", form, "--key", "k", "--resume", code=2
    )
    assert "cannot resume: the export has other options" in done.stderr
    with part.open("ab") as file:  # of a write that was not noted
        file.write(bytes(whole.stat().st_size))
    done = cqstore("export", root, "--to", target, "--format", form, "--resume")
    assert "20 messages were already written before the interruption" in done.stderr
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "whole"]


def run_killed(root: Path, target: Path, form: str) -> int:
    """Export and kill the process in the 30th message, with positions up to the 20th."""
    script = (
        "import os, signal, sys\n"
        "from cqstore.cli.message_files import export_file\n"
        "from cqstore.cli.app import main\n"
        "note, count = export_file.PartFile.note, [0]\n"
        "def noted(part, **_):\n"
        "    count[0] += 1\n"
        "    if count[0] == 21: note(part, now=True)\n"  # the first is that of the begin
        "    if count[0] == 1: note(part, now=True)\n"
        "    if count[0] == 31:\n"
        "        part.file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "export_file.PartFile.note = noted\n"
        "main()\n"
    )
    words = ["export", str(root), "--to", str(target), "--format", form]
    # A process of its own: it is killed.
    return subprocess.run(
        [*_python(), "-c", script, *words], check=False, cwd=Path(__file__).parents[2]
    ).returncode


def _python() -> list[str]:
    return [str(Path(COMMAND[0]).with_name("python"))]


@pytest.mark.parametrize("form", ["jsonl", *later("parquet", "store")])
def test_a_full_disk_leaves_what_can_be_gone_on_with_and_no_more(
    form: str, root: Path, tmp_path: Path
) -> None:
    target, whole = tmp_path / f"a.{form}", tmp_path / "whole"
    words = f"{COMMAND[0]} export {root} --to {target} --format {form}"
    done = subprocess.run(  # ulimit counts KiB
        ["bash", "-c", f"ulimit -f 4; {words}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == (["a.jsonl.part", "a.jsonl.part.position"] if form == "jsonl" else [])
    if form == "jsonl":
        cqstore("export", root, "--to", target, "--resume")
        cqstore("export", root, "--to", whole)
        assert target.read_bytes() == whole.read_bytes()


BROKEN_LINES = [
    (
        b'{"topic":"t","bornHost":"x"}\n',
        "line 3: invalid bornHost 'x': expected an address, a space",
    ),
    (b'{"topic":"t","bornHost":"1.2.3.4 99999999999"}\n', "line 3: invalid bornHost '1.2.3.4 9999"),
    (b'{"topic":"t","storeTimestamp":"1"}\n', 'storeTimestamp is "1", not a whole number'),
    (b'{"topic":"t","msgId":1}\n', "msgId is 1, not a string"),
    (b'{"topic":"t","sysFlag":2147483648}\n', "sysFlag is 2147483648, not within"),
    (b'{"topic":"t","sysFlag":1793}\n', "invalid sysFlag 1793: unknown compression type 7"),
    (b'{"topic":"t","bo', "line 3: invalid JSON: Unterminated string starting at (character 14)"),
    (b'{"topic":"t","body":"a"\n', "line 3: invalid JSON: Expecting ',' delimiter (character 24)"),
]


def broken(path: Path, data: bytes, sentence: str) -> list[MessageLine]:
    """Return the messages before what is none, which ``sentence`` tells."""
    path.write_bytes(data)
    read, found = (read_csv if path.suffix == ".csv" else read_json_lines), list[MessageLine]()
    with pytest.raises(IllegalLineError) as refused:
        found.extend(read(path, 1))
    assert sentence in str(refused.value)
    assert refused.value.number == len(found) + 1
    return found


@pytest.mark.parametrize(("line", "sentence"), BROKEN_LINES, ids=range(len(BROKEN_LINES)))
def test_a_broken_line_is_named_and_those_before_it_are_messages(
    line: bytes, sentence: str, tmp_path: Path
) -> None:
    assert len(broken(tmp_path / "a.jsonl", b'{"topic":"t"}\n' * 2 + line, sentence)) == 2


def test_a_line_without_an_end_fills_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_files, "MAX_LINE_BYTES", 100)
    data = b'{"topic":"t"}\n' + b"x" * 101
    broken(tmp_path / "a.jsonl", data, "line 2 has more than 100 bytes")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            b'{"topic":"t"\n',
            "cqstore: line 51: invalid JSON: Expecting ',' delimiter (character 13) (",
        ),
        (b'{"topic":"t","sysFlag":128}\n', "row 51 was refused: an inner batch"),
    ],
)
def test_a_row_that_is_refused_ends_an_import_and_all_before_it_are_put(
    line: bytes, sentence: str, root: Path, tmp_path: Path, conf: Path
) -> None:
    path = made(root, tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes() + line + b'{"topic":"t","body":"behind"}\n')
    done = cqstore("import", tmp_path / "new", path, "--new", "--config", conf, code=2)
    assert sentence in done.stderr
    assert "(50 messages before it were appended; continue with --continue-from 51)" in done.stderr
    assert str(path) in done.stderr
    assert put_into(tmp_path / "new") == put_into(root)
    cqstore("import", tmp_path / "new", path, "--config", conf, "--continue-from", 52)
    assert len(put_into(tmp_path / "new")) == COUNT + 1


def csv_of(*rows: str) -> bytes:
    return ("topic,queueId,properties,body,bodyBase64\n" + "".join(rows)).encode()


BROKEN_CSV = [
    (b"", "line 1: the header has no column topic"),
    (b"topic,colour\n", "line 1: unknown columns: colour; known columns: topic, queueId"),
    (csv_of('t,0,{},a,\nt,x,{},b,\n'), "row 2 (line 3): queueId is 'x', not a whole number"),
    (csv_of('t,0,{},a,\nt,0,{},b\n'), "row 2 (line 3): 4 values, but the header has 5 columns"),
    (csv_of('t,0,"{""a"":1}",a,\n'), "row 1 (line 2): property a is 1, not a string"),
    (csv_of('t,0,{,a,\n'), "row 1 (line 2): properties are not JSON: Expecting property"),
    (csv_of('t,0,{},a,YQ==\n'), "row 1 (line 2): body and bodyBase64 are both given"),
    (csv_of('t,0,{},a,\n') + b't,0,{},"b', "row 2 (line 3): invalid CSV"),
    (csv_of('t,0,{},a,\n') + b't,0,{},\xff,\n', "invalid CSV: 'utf-8' codec can't decode"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "sentence"), BROKEN_CSV, ids=range(len(BROKEN_CSV)))
def test_a_damaged_csv_is_named_by_row_and_line(data: bytes, sentence: str, tmp_path: Path) -> None:
    broken(tmp_path / "a.csv", data, sentence)


def test_a_csv_of_some_columns_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(csv_of('t,4,"{""a"":""1""}",,YQ==\n', "u,0,,,\n"))
    first, second = (line.message for line in read_csv(path, 1))
    assert (first.topic, first.queue_id, first.properties, first.body) == ("t", 4, {"a": "1"}, b"a")
    assert (second.topic, second.properties, second.body) == ("u", {}, b"")
    assert [line.number for line in read_csv(path, 2)] == [2]


@pytest.mark.parametrize("form", ["parquet", *later("arrow")])
def test_a_damaged_file_of_columns_is_refused(
    form: str, root: Path, tmp_path: Path, conf: Path
) -> None:
    path = made(root, tmp_path / f"a.{form}")
    data = path.read_bytes()
    middle = len(data) // 3
    flipped = data[:middle] + bytes(64) + data[middle + 64 :]
    for number, damaged in enumerate((data[:-30], data[: len(data) // 2], flipped)):
        path.write_bytes(damaged)
        new = tmp_path / f"new{number}"
        done = run(["import", new, path, "--new", "--config", conf])
        assert "Traceback" not in done.stderr
        assert done.returncode in ({1} if number < 2 else {0, 1, 2}), done.stderr
        if number < 2:
            assert f"cannot read the {form} file after row 0" in done.stderr
            assert "(0 messages before it were appended" in done.stderr


def test_columns_of_another_type_are_refused(tmp_path: Path, conf: Path) -> None:
    path = tmp_path / "a.parquet"

    def refused(table: pa.Table) -> str:
        pq.write_table(table, path)
        return cqstore("import", tmp_path / "new", path, "--new", "--config", conf, code=2).stderr

    assert "unknown column 'colour'" in refused(pa.table({"topic": ["t"], "colour": ["red"]}))
    assert "column topic is missing" in refused(pa.table({"body": [b"x"]}))
    reported = refused(pa.table({"topic": ["t"], "body": ["x"]}))
    assert "column body has the wrong type" in reported
    assert "expected binary, found string" in reported
    pq.write_table(pa.table({"topic": ["t", None], "body": [b"x", b"y"]}), path)
    done = cqstore("import", tmp_path / "new", path, "--new", "--config", conf, code=2)
    assert "row 2: topic is null, not a string" in done.stderr
    assert "(1 messages before it were appended; continue with --continue-from 2)" in done.stderr
    assert len(put_into(tmp_path / "new")) == 1


def test_a_schema_has_all_that_is_kept() -> None:
    assert schema().names[-2:] == ["properties", "body"]
    assert str(schema().field("storeTimestamp").type) == "timestamp[ms, tz=UTC]"


def test_import_refuses_before_it_puts(root: Path, tmp_path: Path, conf: Path) -> None:
    path = made(root, tmp_path / "a.jsonl")
    done = cqstore("import", tmp_path / "none", path, code=2)
    assert "no such folder" in done.stderr
    assert "(use --new to create a store)" in done.stderr
    assert not (tmp_path / "none").exists()
    assert "no such file" in cqstore("import", root, tmp_path / "b.jsonl", code=2).stderr
    odd = tmp_path / "a.txt"
    odd.write_text("")
    assert "give --format" in cqstore("import", root, odd, code=2).stderr
    assert "cannot import a store into itself" in cqstore("import", root, root, code=2).stderr
    before = put_into(root)
    with MessageStore.open(root, CONFIG):
        done = cqstore("import", root, path, "--config", conf, code=2)
        assert f"process {os.getpid()}" in done.stderr
    assert put_into(root) == before


@pytest.mark.parametrize("noted", [5, *later(0)])
def test_an_import_that_was_killed_puts_nothing_twice(
    noted: int, root: Path, tmp_path: Path, conf: Path
) -> None:
    path, new, position = made(root, tmp_path / "a.jsonl"), tmp_path / "new", tmp_path / "position"
    words = ["import", new, path, "--new", "--config", conf, "--position", position]
    script = (
        "import os, signal\n"
        "from cqstore.cli.app import main\n"
        "from cqstore.cli.commands.import_ import _Import\n"
        "put, count = _Import._put, [0]\n"
        "def killed(self, row):\n"
        "    if count[0] == 20: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    put(self, row)\n"
        "    count[0] += 1\n"
        f"    if count[0] == {noted}: self.count, self.next_row = 5, row.number + 1; self.note()\n"
        "_Import._put = killed\n"
        "main()\n"
    )
    killed = subprocess.run(
        [*_python(), "-c", script, *map(str, words)], check=False, cwd=Path(__file__).parents[2]
    )
    assert killed.returncode == -signal.SIGKILL
    assert ImportPosition.read(position, path).next_row == noted + 1
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:20]))
    assert json.loads(cqstore(*words, "--output", "json").stdout)["put"] == 0
    assert ImportPosition.read(position, path).next_row == 21
    path.write_bytes(whole)
    second = cqstore(*words, "--output", "json")
    assert json.loads(second.stdout)["put"] == COUNT - 20
    assert put_into(new) == put_into(root)
    assert json.loads(cqstore(*words, "--output", "json").stdout)["put"] == 0
    with MessageStore.open(new, CONFIG) as store:
        assert store.put_message(Message("t", b"another writer's")).ok
    path.write_bytes(path.read_bytes() + b'{"topic":"t","body":"more"}\n')
    done = cqstore(*words, code=2)
    assert "another writer has appended a message since (row 51 differs)" in done.stderr
    other = made(root, tmp_path / "b.jsonl")
    done = cqstore("import", new, other, "--config", conf, "--position", position, code=2)
    assert "the position belongs to another file" in done.stderr
    position.write_text("{}")
    assert "invalid import position" in cqstore(*words, code=1).stderr


def test_ctrl_c_ends_an_import_between_two_messages_and_says_how_to_go_on(
    root: Path, tmp_path: Path, conf: Path
) -> None:
    path, new = made(root, tmp_path / "a.jsonl"), tmp_path / "new"
    words = ["import", new, path, "--new", "--config", conf]
    script = (
        "import os, signal\n"
        "from cqstore.cli.app import main\n"
        "from cqstore.cli.commands.import_ import _Import\n"
        "put, count = _Import._put, [0]\n"
        "def interrupted(self, row):\n"
        "    count[0] += 1\n"
        "    if count[0] == 20: os.kill(os.getpid(), signal.SIGINT)\n"
        "    put(self, row)\n"
        "_Import._put = interrupted\n"
        "main()\n"
    )
    done = subprocess.run(
        [*_python(), "-c", script, *map(str, words)], check=False, cwd=Path(__file__).parents[2],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 130
    assert "20 messages before it were appended; continue with --continue-from 21" in done.stderr
    assert len(put_into(new)) == 20
    cqstore(*words, "--continue-from", 21)
    assert put_into(new) == put_into(root)
