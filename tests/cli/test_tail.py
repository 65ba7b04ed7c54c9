"""``cqstore tail`` and what it shares with ``get``: the last messages, those that come, formats."""

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cli.commands.tail import messages_of_tail
from cqstore.cli.message_files.message_format import PARTS
from cqstore.cli.selection import SelectedReads, Selection
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.commands import COMMAND, cqstore, run
from tests.kit.quiet_config import quiet_config
from tests.kit.tree import unchanged

CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 16, rocksdb_memory_bytes=16 << 20,


)  # fmt: skip
BACKENDS = ["file", "rocksdb"]


def put(store: MessageStore, *bodies: str, **properties: str) -> None:
    for at, body in enumerate(bodies):
        result = store.put_message(Message("t", body.encode(), at % 3, dict(properties)))
        assert result.ok


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is closed, with twelve messages of ``t`` in three queues."""
    root = tmp_path_factory.mktemp("made") / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        put(store, *(f"body {number}" for number in range(10)), TAGS="A", KEYS="k1 k2")
        odd = Message(
            "t", b"\xff\0", 1, {"UNIQ_KEY": "u"}, 7, born_timestamp=1_700_000_000_123,
            born_host=Host.of("::1", 5),
        )  # fmt: skip
        assert store.put_message(odd).ok
        put(store, 'comma, "quote"\nline', TAGS="B")
    return root


def tailed(root: Path, *words: object, code: int = 0) -> str:
    return cqstore("tail", root, "t", *words, code=code).stdout


def bodies(text: str) -> list[str]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [row.get("body", row.get("bodyBase64")) for row in rows]


def test_the_last_messages_over_all_queues_in_the_order_of_the_log(root: Path) -> None:
    with unchanged(root):
        assert bodies(tailed(root, "-n", 4)) == ["body 8", "body 9", "/wA=", 'comma, "quote"\nline']
        assert len(bodies(tailed(root))) == 10
        assert len(bodies(tailed(root, "--count", 100))) == 12
        assert tailed(root, "-n", 0) == ""
        assert bodies(tailed(root, "-n", 2, "--queue-id", 0)) == ["body 9", 'comma, "quote"\nline']


def test_of_the_last_ones_those_that_are_asked_for(root: Path) -> None:
    assert bodies(tailed(root, "--tags", "B")) == ['comma, "quote"\nline']
    assert len(bodies(tailed(root, "--key", "k2"))) == 8
    assert bodies(tailed(root, "--key", "u")) == ["/wA="]
    assert bodies(tailed(root, "--grep", "body [5-6]|\\xff")) == ["body 5", "body 6", "/wA="]


def test_a_line_of_a_format_has_every_field(root: Path) -> None:
    fields = "".join(f"%{letter}|" for letter in PARTS)
    lines = tailed(root, "-n", 2, "--format", f"{fields}\\t\\\\").split("\n")
    (row,) = json.loads(run(["get", root, "--topic", "t", "--queue-id", 1, "--offset", 3,
                             "--output", "json"]).stdout)  # fmt: skip
    moment = lines[0].split("|")[9]
    assert lines[0] == (
        f't|1|3|{row["phy"]}|{row["msgId"]}|||u|{{"UNIQ_KEY":"u"}}|{moment}'
        f"|{row['storeTimestamp']}|2023-11-14T22:13:20.123+00:00|1700000000123|0:0:0:0:0:0:0:1 5"
        "|2|/wA=|%|\t\\"
    )
    assert lines[1].startswith("t|0|4|")
    assert lines[1].endswith('|comma, "quote"')
    assert run(["get", root, "--topic", "t", "--offset", 1, "--count", 1, "--format", "%k:%b"]
               ).stdout == "k1 k2:body 3\n"  # fmt: skip
    assert run(["query", root, "--topic", "t", "--key", "u", "--format", "%u %S"]).stdout == "u 2\n"


def test_the_page_has_every_field_of_a_format() -> None:
    page = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
    for letter, (meaning, _) in PARTS.items():
        assert f"| `%{letter}` | {meaning.partition(' (')[0]}" in page


def test_rows_of_csv_all_have_the_same_columns(root: Path) -> None:
    text = tailed(root, "-n", 3, "--output", "csv")
    assert tailed(root, "-n", 3, "--format", "csv") == text
    rows = [*csv.DictReader(io.StringIO(text, newline=""))]
    assert [row["body"] for row in rows] == ["body 9", "", 'comma, "quote"\nline']
    assert [row["bodyBase64"] for row in rows] == ["", "/wA=", ""]
    assert json.loads(rows[1]["properties"]) == {"UNIQ_KEY": "u"}


def test_get_reads_all_queues_between_two_times(root: Path) -> None:
    rows = [json.loads(line) for line in tailed(root, "-n", 12).splitlines()]
    first, last = rows[3]["storeTimestamp"], rows[8]["storeTimestamp"]
    within = [row for row in rows if first <= row["storeTimestamp"] <= last]
    span = ["--begin", first, "--end", last]
    done = run(["get", root, "--topic", "t", *span])
    assert [json.loads(line) for line in done.stdout.splitlines()] == within
    assert f"{len(within)} messages" in done.stderr
    done = run(["get", root, "--topic", "t", "--begin", 0, "--count", 5])
    last_of_more = rows[4] | {"has_more": True}
    assert [json.loads(line) for line in done.stdout.splitlines()] == [*rows[:4], last_of_more]
    done = run(["get", root, "--topic", "t", "--queue-id", 2, "--end", last + 1000])
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        row for row in rows if row["queueId"] == 2
    ]
    for words, sentence in (
        (["--begin", "soon"], "invalid time 'soon': expected ms since the epoch, or ISO 8601"),
        (["--begin", "2", "--end", "1"], "--begin 2 is later than --end 1"),
        (["--begin", "2", "--offset", "1"], "--offset cannot be combined with --begin or --end"),
    ):
        done = run(["get", root, "--topic", "t", *words])
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in " ".join(done.stderr.replace("│", " ").split())


def following(store: MessageStore, count: int, *steps: Callable[[], object]) -> list[str]:
    """Follow ``t``, and take a step each time that there is nothing more."""
    reads, left = SelectedReads(store, Selection()), iter(steps)

    def wait() -> bool:
        step = next(left, None)
        if step is not None:
            step()
        return step is not None

    found = messages_of_tail(store, reads, "t", count, wait)
    return [bytes(read.message.body).decode() for read in found]


@pytest.mark.parametrize("backend", BACKENDS)
def test_beside_a_writer_each_message_comes_once(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as writer:
        put(writer, "a", "b", "c", "d")
        writer.flush()
        put(writer, "e", "f")  # of which RocksDB has the units in memory alone

        def more() -> None:
            put(writer, "g", "h", "i")
            writer.put_message(Message("other", b"none"))

        with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
            found = following(store, 3, more, lambda: None, lambda: put(writer, "j"))
            assert found == ["d", "e", "f", "g", "h", "i", "j"]
            assert following(store, 0, lambda: put(writer, "k")) == ["k"]


@pytest.mark.parametrize("backend", ["file", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_a_process_follows_until_ctrl_c(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as writer:
        put(writer, "a", "b")
        words = [*COMMAND, "tail", str(tmp_path), "t", "-f", "-n", "1", "--format", "%q %o %b"]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as tail:
            assert tail.stdout is not None
            assert tail.stderr is not None
            try:
                assert tail.stdout.readline() == "1 0 b\n"
                put(writer, "c", "d")
                assert tail.stdout.readline() == "0 1 c\n"
                assert tail.stdout.readline() == "1 1 d\n"
                tail.send_signal(signal.SIGINT)
                assert tail.wait() == 130
                assert tail.stdout.read() == ""
                assert "Traceback" not in tail.stderr.read()
            finally:
                tail.kill()
        assert writer.put_message(Message("t", b"x")).ok


def test_a_reader_that_has_gone_ends_it_though_nothing_comes(root: Path) -> None:
    words = [*COMMAND, "tail", str(root), "t", "-f", "-n", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            tail.stdout.readline()
            tail.stdout.close()
            assert tail.wait(120) == 141
            assert tail.stderr.read() == b""
        finally:
            tail.kill()


def test_pyarrow_is_imported_by_no_verb_that_needs_it_not(root: Path) -> None:
    script = (
        "import sys; from cqstore.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name == 'pyarrow'], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "export", str(root), "--format", "csv"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "[]"
    assert len(done.stdout.splitlines()) > 5
