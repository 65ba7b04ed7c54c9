"""Progress: what it says, where it is shown, and that it spoils no output."""

import io
import os
import pty
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.cli import progress as reporting
from cqstore.cli.app import app, main
from cqstore.cli.options import about_end
from cqstore.cli.progress import Tick, progress, span_of_time
from cqstore.cli.streams import guard_streams
from cqstore.cq_rocksdb.commands.compact import TablesLeft
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.migration.commands import app as migrate
from cqstore.store.errors import CorruptionError
from cqstore.store.record.message import Message
from cqstore.store.service.maintenance import check as checking
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.recovering import queue_rebuild
from cqstore.store.settings.config import StoreConfig
from tests.kit.operating import write_database
from tests.kit.told import CONFIG
from tests.kit.verbs import call
from tests.kit.waiting import until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_percent_amount_rate_and_time_left_are_told() -> None:
    clock = Clock()
    tick = Tick("recovering", 4_000_000_000, clock=clock)
    clock.now += 5
    assert tick.sentence() == "recovering: 5 s"
    tick(1_000_000_000)
    clock.now += 10
    tick(2_200_000_000)
    assert tick.sentence() == "recovering: 40 %, 1.2 of 3.0 GB, 120 MB/s, 15 s left"
    tick(5_000_000_000)  # its end was told too low
    assert tick.sentence() == "recovering: 100 %, 3.0 of 3.0 GB, 400 MB/s, 0 s left"
    tick(1_000_000_000)
    assert tick.sentence() == "recovering, pass 2: 0 %, 0.0 of 3.0 GB"
    tick.measure(None)
    tick(1_234_567)
    assert tick.sentence() == "recovering: phy offset 1,234,567"


def test_what_is_counted_has_its_name() -> None:
    clock = Clock()
    tick = Tick("moving", 3_000, "units", clock)
    tick(1_000)  # of the run before
    clock.now += 100
    tick(2_000)
    assert tick.sentence() == "moving: 66 %, 2,000 of 3,000 units, 10 units/s, 1 min 40 s left"
    tick.measure(None, "messages")
    tick(5)
    assert tick.sentence() == "moving: 5 messages"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (3_599, "59 min 59 s"),
        (36_300, "10 h 5 min"),
    ],
)
def test_times_are_told_as_people_do(seconds: float, text: str) -> None:
    assert span_of_time(seconds) == text


# ---- where it is shown


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOWN_AFTER", "REDRAWN_AFTER", "LINE_AFTER"):
        monkeypatch.setattr(reporting, name, 0.001)


def test_without_a_terminal_a_line_comes_now_and_then() -> None:
    notes = io.StringIO()
    with redirect_stderr(notes), progress("outer"), progress("examining", 200) as tick:
        tick(0)
        tick(50)
        until(lambda: notes.getvalue().count("examining: 25 %, 50.0 of 200.0 bytes") > 1)
        with progress("inner"):
            until(lambda: notes.getvalue().endswith("cqstore: inner: 0 s\n"))
    assert set(notes.getvalue()) & {"\r", "\x1b"} == set()
    assert "cqstore-progress" not in {thread.name for thread in threading.enumerate()}


def test_quiet_shows_nothing_before_and_behind_the_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_store(tmp_path / "s")
    shown = []

    @contextmanager
    def noted() -> Iterator[None]:
        shown.append(1)
        yield

    monkeypatch.setattr(reporting, "_shown", noted)
    assert call("info", tmp_path / "s").exit_code == 0
    assert shown == [1]
    assert call("info", tmp_path / "s", "--quiet").exit_code == 0
    assert call("--quiet", "info", tmp_path / "s").exit_code == 0
    assert shown == [1]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make standard error a terminal, and standard output too; give its other side."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    with (
        os.fdopen(slave, "w") as one,
        os.fdopen(os.dup(slave), "w") as two,
        monkeypatch.context() as patched,
    ):
        patched.setattr(sys, "stdout", one)
        patched.setattr(sys, "stderr", two)
        guard_streams()
        yield master
    os.close(master)


def test_on_a_terminal_one_line_is_written_anew_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ""

    with terminal(monkeypatch) as screen:

        def has(text: str) -> bool:
            nonlocal seen
            seen += read(screen)
            return text in seen

        with progress("examining", 100) as tick:
            tick(0)
            tick(50)
            until(lambda: has("\rexamining: 50 %, 50.0 of 100.0 bytes"))
            sys.stdout.write("a row\n")
            until(lambda: has("\x1b[Ka row"))
            until(lambda: has("a row\r\n\rexamining"))
            sys.stdout.write("half a row")
            sys.stdout.flush()
            until(lambda: has("\x1b[Khalf a row"))
        assert not has("half a row\r")
        sys.stdout.write("\n")
    assert seen.endswith("half a row")


def read(screen: int) -> str:
    try:
        return os.read(screen, 1 << 16).decode()
    except BlockingIOError:
        return ""


# ---- that each verb tells it


def typed(*words: object) -> None:
    """Run a command of any layer in this process; 1 is what findings end with."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "registered_commands", [*app.registered_commands])
        patched.setattr(app, "registered_groups", [*app.registered_groups])
        patched.setattr(sys, "argv", ["cqstore", *map(str, words)])
        patched.setattr(sys, "stdout", io.StringIO())
        code: object = 0
        try:
            main()
        except SystemExit as exc:
            code = exc.code
    assert code in {0, 1}, words


def made_store(root: Path, backend: str = "file") -> None:
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        for number in range(50):
            assert store.put_message(Message(f"t{number % 3}", bytes(1000))).ok


def test_of_a_store_that_cannot_be_looked_at_no_end_is_known(tmp_path: Path) -> None:
    """Opening it says why, in more detail than this look has."""
    root = tmp_path / "s"
    made_store(root)
    end = about_end(root, StoreConfig())
    assert end is not None
    with MessageStore.open(root, read_only=True) as store:
        assert 0 <= end - store.max_phy_offset() < 4096
    (root / "cqstore").mkdir(exist_ok=True)
    (root / "cqstore" / "kept").write_bytes(b"damaged\n")
    assert about_end(root, StoreConfig()) is None
    with pytest.raises(CorruptionError, match="the list of the journals is damaged"):
        MessageStore.open(root)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return what the ticks say, label and sentence, whenever they are told."""
    said: list[tuple[str, str]] = []
    take = Tick.__call__

    def noted(self: Tick, at: int) -> None:
        take(self, at)
        said.append((self.label, self.sentence()))

    monkeypatch.setattr(Tick, "__call__", noted)
    monkeypatch.setattr(checking, "_IGNORED_TICKS", 1)
    monkeypatch.setattr(queue_rebuild, "_TICK", 1)
    return said


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (["check", "STORE"], "checking"),
        (["recover", "STORE"], "recovering"),
        (["rebuild", "STORE"], "rebuilding"),
        (["rebuild", "STORE", "--topic", "t0"], "rebuilding"),
        (["backup", "STORE", "COPY"], "copying"),
        (["check", "STORE", "--repair", "--copy-to", "COPY"], "copying"),
    ],
)
def test_a_walk_over_the_log_tells_how_much_of_it_is_done(
    tmp_path: Path, reported: list[tuple[str, str]], words: list[str], label: str
) -> None:
    made_store(tmp_path / "s")
    if words[0] == "recover":
        shutil.rmtree(tmp_path / "s" / "consumequeue")
    elif "--repair" in words:
        (tmp_path / "s" / "abort").touch()
    places = {"STORE": tmp_path / "s", "COPY": tmp_path / "copy"}
    done = call(*(places.get(word, word) for word in words))
    assert done.exit_code == 0, done.output
    said = [sentence for name, sentence in reported if name == label]
    assert said
    assert all(" %, " in sentence for sentence in said)


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["dump", "STORE", "--messages"], "dumping: 9\\d %, .* of .* KB"),
        (["dump", "STORE", "--queues"], "dumping: 66 %, 2 of 3 queues"),
        (["dump", "STORE", "--topic", "t0", "--count", 5], "dumping: 80 %, 4 of 5 units"),
        (["dump", "STORE/commitlog/00000000000000000000"], r"dumping: \d+ rows"),
        (["get", "STORE", "--topic", "t1", "--count", 10], "reading: 90 %, 9 of 10 messages"),
        (["topics", "STORE"], "listing: 66 %, 2 of 3 queues"),
        (["topics", "ROCKSDB"], "listing: 66 %, 2 of 3 queues"),
        (["topics", "STORE", "--limit", 2], "listing: 100 %, 2 of 2 queues"),
        (["topics", "STORE", "--limit", 2, "--prefix", "t"], "listing: 66 %, 2 of 3 queues"),
        (["topics", "STORE", "--after", "t0/0"], "listing: 1 queues"),
        (["topics", "STORE", "--idle", 1], "listing: 66 %, 2 of 3 queues"),
        (["usage", "STORE"], r"counting: 9\d %, 5\S+ of 5\S+ KB"),
        (["usage", "STORE", "--by", "day"], r"counting: 9\d %, 5\S+ of 5\S+ KB"),
        (["usage", "STORE", "--prefix", "t1"], "counting: 66 %, 2 of 3 queues"),
        (["groups", "STORE"], "reading: 66 %, 2 of 3 queues"),
        (["groups", "ROCKSDB"], "reading: 66 %, 2 of 3 queues"),
        (["migrate", "preflight", "STORE"], "examining: 66 %, 2 of 3 queues"),
        (["meta", "STORE", "offsets"], "showing: 50 %, 1 of 2 rows"),
        (["meta", "STORE", "--check"], "comparing: 66 %, 2 of 3 queues"),
        (["rocksdb", "stats", "ROCKSDB", "--topics", 2], "reading topic sizes: 2 topics"),
        (["rocksdb", "audit", "ROCKSDB"], r"auditing: 0 %, 0 of 5\d units"),
    ],
)
def test_what_reads_or_lists_tells_how_much_of_it_is_done(
    tmp_path: Path, reported: list[tuple[str, str]], words: list[object], last: str
) -> None:
    is_rocksdb = "ROCKSDB" in words
    root = tmp_path / "s"
    made_store(root, backend="rocksdb" if is_rocksdb else "file")
    (root / "config").mkdir()
    table = '{"offsetTable": {"t0@g": {"0": 1, "1": 0}}, "dataVersion": {}}'
    (root / "config" / "consumerOffset.json").write_text(table)
    typed(*(re.sub("STORE|ROCKSDB", str(root), str(word)) for word in words))
    assert re.fullmatch(last + "(, .*)?", reported[-1][1]), reported[-1]


@pytest.mark.parametrize("words", [[], ["--list"], ["--of", "half"], ["--of", "delay"]])
def test_all_that_waits_is_read_when_the_last_of_it_is_told(
    golden_folder: Path, reported: list[tuple[str, str]], words: list[str]
) -> None:
    typed("pending", golden_folder / "special-default", *words)
    (done, _), found = reported[-1], re.fullmatch(_ALL_READ, reported[-1][1])
    assert done == "reading"
    assert found, reported[-1]
    assert int(found[1]) > 1


_ALL_READ = r"reading: 100 %, (\d+) of \1 messages(, .*)?"


def test_keys_of_rocksdbstore_are_told(tmp_path: Path, reported: list[tuple[str, str]]) -> None:
    made_store(tmp_path / "s")
    rows = {number.to_bytes(8, "big") + b"key": bytes(12) for number in range(5)}
    write_database(tmp_path / "s" / "rocksdbstore", "timer", rows)
    typed("pending", tmp_path / "s")
    label = "reading column family timer of rocksdbstore"
    assert reported[-1][1].startswith(f"{label}: 80 %, 4 of 5 keys")


@pytest.mark.parametrize("is_file", [True, False])
def test_a_put_tells_messages_and_how_much_of_a_file_was_read(
    tmp_path: Path,
    reported: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_file: bool,
) -> None:
    lines = b'{"topic": "t", "body": "x"}\n' * 600
    (tmp_path / "lines").write_bytes(lines)
    made_store(tmp_path / "s")
    with (tmp_path / "lines").open("rb") as file:
        given = file if is_file else io.BytesIO(lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        typed("put", tmp_path / "s")
    size = len(lines) / 1000
    if is_file:
        wanted = f"appending, 600 messages, [0-9,]+ messages/s: 100 %, {size:.1f} of {size:.1f} KB"
    else:
        wanted = "appending: 600 messages"
    assert re.fullmatch(wanted + "(, .*)?", reported[-1][1]), reported[-1]


def test_a_compaction_tells_how_much_of_the_tables_it_has_taken_up(tmp_path: Path) -> None:
    made_store(tmp_path / "r", backend="rocksdb")
    with MessageStore.open(tmp_path / "r", CONFIG) as store:
        queues = next(iter(components_of(store).queues.backends()))
        assert isinstance(queues, RocksDBConsumeQueueStore)
        queues.flush()
        left = TablesLeft(queues.engine)
        assert (left.done_bytes(), left.bytes > 0) == (0, True)
        assert queues.compact().wait(60)
        assert left.done_bytes() == left.bytes


def test_a_plan_tells_the_units_and_a_step_what_it_does(
    tmp_path: Path, reported: list[tuple[str, str]]
) -> None:
    made_store(tmp_path / "s")
    done = CliRunner().invoke(migrate, ["plan", str(tmp_path / "s")])
    assert done.exit_code == 0
    assert ("planning", "planning: 50 units") in reported
    tick = Tick("switching")
    tick.set_label("opening the store")
    assert tick.sentence() == "opening the store: 0 s"
