"""``cqstore top`` beside a store that is open and written to."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from cqstore.cli.commands.top import TopView, facts, narrow_facts, show
from cqstore.cli.top_topics import topic_rows
from cqstore.cq_rocksdb.folders import log_folder
from cqstore.store.errors import StoreLockedError
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.log.tail_topics import TailTopics, TopicTraffic
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Host, Message
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.watch import FolderSize, StoreWatch, measure
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.writing.log_prefault import LogPrefault
from cqstore.store.service.writing.putter import Putter
from tests.kit import commands
from tests.kit.plain_record import PlainRecord
from tests.kit.quiet_config import quiet_config
from tests.kit.tree import unchanged

COMMAND = [*commands.COMMAND, "top"]
CONFIG = quiet_config(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000,
    rocksdb_memory_bytes=16 << 20,


)  # fmt: skip
BACKENDS = ["file", "rocksdb"]
PARTS = {"store", "log", "checkpoint", "consumequeue", "disk"}
Facts = dict[tuple[object, object], object]


def reported(root: Path) -> Facts:
    printed = commands.cqstore("top", root, "--output", "jsonl").stdout
    rows = [json.loads(line) for line in printed.splitlines()]
    assert {row["perSecond"] for row in rows} == {None}
    return {(row["part"], row["fact"]): row["value"] for row in rows}


def let_end(store: MessageStore) -> None:
    """Let the threads end that give files pages or a time of change later, by themselves."""
    ahead, putter = components_of(store).log.files._ahead, store._putter
    assert ahead is not None
    ahead._join()
    assert isinstance(putter, Putter)
    pages = getattr(putter._look_ahead, "__self__", None)
    if isinstance(pages, LogPrefault):
        pages.stop()


def watch(store: MessageStore) -> StoreWatch:
    return StoreWatch(detect(store.root, CONFIG))


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_tells_of_a_store_that_is_open_and_changes_no_byte(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        store.put_messages([Message("t", bytes(1000))] * 100)
        store.flush()
        store.put_message(Message("t", b"x"))
        let_end(store)
        rocksdb_log = log_folder(components_of(store).paths)  # written whenever RocksDB likes
        with unchanged(root, rocksdb_log):
            seen = reported(root)
            table = commands.cqstore("top", root).stdout.splitlines()  # no terminal: one table
            assert commands.cqstore("top", root, "--once").stdout.count("max phy offset") == 1
        end = store.max_phy_offset()
        behind = end - components_of(store).checkpoint.fields.confirm_phy_offset
        assert seen["store", "state"] == f"open: process {os.getpid()}"
        assert seen["log", "max phy offset"] == end
        assert seen["log", "lag of the checkpoint, bytes"] == behind > 0
        assert seen["log", "files"] == len(list(components_of(store).paths.commit_log.iterdir()))
        assert seen["checkpoint", "confirm phy offset"] == end - (behind)
        on_disk = seen["consumequeue", "on disk, bytes"]
        assert isinstance(on_disk, int)
        assert on_disk >= components_of(store).queues.total_size_bytes() > 0
        assert table[0].split() == ["part", "fact", "value", "perSecond"]
        # RocksDB logs its counts when it likes, maybe between the two; here with when that was
        counts = next((at for at, row in enumerate(table) if row.startswith("rocksdb")), len(table))
        assert counts == sum(part in PARTS for part, _ in seen) + 1
        store.put_messages([Message("t", bytes(1000))] * 100)
        assert store.max_offset("t", 0) == 201
    assert reported(root)["store", "state"] == "closed"
    with MessageStore.open(root, CONFIG) as store:
        assert store.last_exit_ok
        assert list(store.check()) == []


def test_looking_from_the_same_process_keeps_the_lock(tmp_path: Path) -> None:
    opens = "import sys; from cqstore import MessageStore; MessageStore.open(sys.argv[1])"
    with MessageStore.open(tmp_path, CONFIG) as store:
        watch(store).sample()
        other = subprocess.run(
            [sys.executable, "-c", opens, str(tmp_path)], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert "StoreLockedError" in other.stderr
        with pytest.raises(StoreLockedError):
            StoreLock(components_of(store).paths)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rates_are_what_was_put_between_two_looks(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        store.put_message(Message("t", b"x"))
        looking = watch(store)
        first = looking.sample()
        start = store.max_phy_offset()
        for number in range(1000):
            store.put_message(Message("t", b"x" * 10, number))
        store.flush()
        second = looking.sample()
        seconds = second.seconds - first.seconds
        rows = {(row["part"], row["fact"]): row for row in facts(second, first)}
        assert rows["log", "records since the first look"]["value"] == 1000
        paces = {key: row["perSecond"] for key, row in rows.items() if row["perSecond"] is not None}
        put_bytes = store.max_phy_offset() - start
        assert paces["log", "max phy offset"] == round(put_bytes / seconds)
        assert paces["log", "records since the first look"] == round(1000 / seconds)
        grown = second.folders["consumequeue"].disk_bytes - first.folders["consumequeue"].disk_bytes
        assert paces["consumequeue", "on disk, bytes"] == round(grown / seconds) > 0
        assert not [row for row in facts(first) if row["perSecond"] is not None]


def test_what_rocksdb_logged_is_shown(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, CONFIG, backend="rocksdb").close()  # open, it may log by itself
    (log_folder(StorePaths(tmp_path)) / "LOG").write_text(
        "2026/01/02-03:04:05.678 7 [WARN] [db/db_impl/db_impl.cc:1076] STATISTICS:\n"
        " rocksdb.block.cache.miss COUNT : 12\n"
        "rocksdb.db.get.micros P50 : 0.5 P95 : 0.9 P99 : 1 P100 : 1 COUNT : 3 SUM : 2\n"
    )
    seen = reported(tmp_path)
    assert seen["logged by RocksDB at 2026/01/02-03:04:05.678", "rocksdb_block_cache_misses"] == 12


def test_how_far_delay_levels_are_is_shown_as_it_was_noted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("t", b"x"))
        looking, path = watch(store), components_of(store).paths.delay_offset
        assert not [row for row in facts(looking.sample()) if row["part"] == "delays"]
        path.parent.mkdir(exist_ok=True)
        looks = []
        for offset in (7, 57):  # as RocketMQ's ScheduleMessageService writes it
            path.write_text(f'{{"dataVersion":{{"counter":1}},"offsetTable":{{3:{offset},12:4}}}}')
            looks.append(looking.sample())
        path.write_text(path.read_text()[:-5])  # it is being written
        assert looking.sample().delay_offsets == looks[1].delay_offsets
        seconds = looks[1].seconds - looks[0].seconds
    found = [tuple(row.values()) for row in facts(*reversed(looks)) if row["part"] == "delays"]
    assert found == [
        ("delays", "level 3 is delivered to", 57, round(50 / seconds)),
        ("delays", "level 12 is delivered to", 4, 0),
    ]


def test_a_killed_store_is_told_from_an_open_one(tmp_path: Path) -> None:
    dies = "import os, sys, cqstore as c; c.MessageStore.open(sys.argv[1]); os.kill(os.getpid(), 9)"
    done = subprocess.Popen([sys.executable, "-c", dies, str(tmp_path)])
    assert done.wait() == -signal.SIGKILL
    seen = reported(tmp_path)
    assert seen["log", "files"] == 0  # nothing was put, still there is a store
    state = seen["store", "state"]
    why = f"process {done.pid} does not exist here"
    assert state == f"not closed cleanly, or open on another machine: {why}"
    for text in ("", "x" * 5000, "9" * 50, "-1", "²"):
        (tmp_path / "abort").write_text(text)
        assert reported(tmp_path)["store", "state"] == "open, or not closed cleanly"


def test_the_view_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=60)
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("t", b"x"))
        ends: list[int] = []

        def wait() -> None:
            ends.append(store.max_phy_offset())
            if len(ends) == 3:
                raise KeyboardInterrupt
            store.put_message(Message("t", b"x"))

        show(TopView(watch(store), narrow_facts), console, wait)
    shown = screen.getvalue()
    assert len(ends) == len(set(ends)) == 3
    assert all(str(end) in shown for end in ends)
    assert re.search(rf"max phy offset +{ends[0]} *\r?\n", shown)  # nothing to compare with yet
    assert re.search(rf"max phy offset +{ends[1]} +\d+", shown)


def test_on_a_terminal_it_is_live_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("t", b"x"))
        main, side = pty.openpty()
        top = subprocess.Popen(
            [*COMMAND, str(tmp_path), "--interval", "0.1"], stdin=side, stdout=side, stderr=side,
            env={**os.environ, "TERM": "xterm", "LINES": "60", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(side)
        try:
            until(main, str(store.max_phy_offset()))
            store.put_message(Message("t", b"x"))
            until(main, str(store.max_phy_offset()))
            top.send_signal(signal.SIGINT)
            until(main, "")
            assert top.wait() == 0
        finally:
            top.kill()
            top.wait()
            os.close(main)


def until(main: int, text: str) -> None:
    """Read the terminal until ``text`` was shown, or, without a text, until it is closed."""
    shown = b""
    while not text or text.encode() not in shown:
        try:
            data = os.read(main, 65536)
        except OSError:  # Linux's word for a terminal whose last user has gone
            data = b""
        if not data:
            assert not text, shown
            return
        shown += data


@pytest.mark.parametrize(
    "break_it",
    [
        lambda root: (root / "checkpoint").write_bytes(b"\1"),
        lambda root: (root / "checkpoint").unlink(),
        lambda root: (root / "commitlog" / f"{0:020d}").write_bytes(b"\xff" * 65536),
        lambda root: (root / "commitlog" / "notes").mkdir(),
    ],
)
def test_a_damaged_store_is_shown_or_named(
    tmp_path: Path, break_it: Callable[[Path], object]
) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("t", b"x"))
    break_it(tmp_path)
    commands.cqstore("top", tmp_path, code=0)


def test_a_folder_is_measured_as_far_as_it_was_told(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / str(number % 2) / "queue"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(b"x")
    (tmp_path / "loop").symlink_to(tmp_path)
    block = (tmp_path / "0" / "queue" / "0").stat().st_blocks * 512
    link = (tmp_path / "loop").lstat().st_blocks * 512
    assert measure(tmp_path) == FolderSize(7, 6 * block + link, whole=True)
    assert (measure(tmp_path, 5).files, measure(tmp_path, 5).whole) == (5, False)
    assert measure(tmp_path / "none") == FolderSize(0, 0, whole=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_by_topic_it_tells_what_came_between_two_looks(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        store.put_message(Message("t", b"x"))
        looking = StoreWatch(detect(store.root, CONFIG), by_topic=True)
        first = looking.sample()
        assert list(topic_rows(first, None, 9)) == []
        long = "%RETRY%" + "x" * 130  # its records have a length of two bytes
        host = Host.of("2001:db8::1", 9)
        for topic, count, size in (("a", 200, 10), ("b", 20, 40_000), (long, 5, 1), ("ü", 5, 1)):
            for _ in range(count):
                store.put_message(Message(topic, b"x" * size, 0, {}, 0, 0, 0, host, host))
        records = list(components_of(store).log.scan(first.log.max_phy_offset if first.log else 0))
        second = looking.sample()
    expected = {
        topic: (len(sizes), sum(sizes))
        for topic in ("a", "b", long, "ü")
        if (sizes := [each.size for each in records if each.topic == topic])
    }
    seconds = second.seconds - first.seconds
    found = list(topic_rows(second, first, 9))
    assert [row["topic"] for row in found] == ["a", "b", long, "ü"]
    assert {row["topic"]: (row["messages"], row["bytes"]) for row in found} == expected
    assert found[0]["perSecond"] == round(200 / seconds, 1)
    few = list(topic_rows(second, first, 2))
    assert [(row["topic"], row["messages"]) for row in few] == [
        ("a", 200), ("b", 20), ("(others)", 10)
    ]  # fmt: skip
    assert sum(float(str(row["share"])) for row in few) == pytest.approx(1, abs=0.001)
    unlisted = replace(
        second,
        topics={
            "a": TopicTraffic(2, 20),
            "b": TopicTraffic(1, 10),
            "(others)": TopicTraffic(9, 90),
        },
    )
    rest = [(row["topic"], row["messages"], row["bytes"]) for row in topic_rows(unlisted, first, 1)]
    assert rest == [("a", 2, 20), ("(others)", 10, 100)]


def read_of(record: bytes, at: int, count: int) -> bytes:
    return record[at : at + count]


def test_by_topic_memory_is_bounded() -> None:
    topics = TailTopics(2)
    for number in range(5):
        record = PlainRecord(b"t%d" % number).encode()
        topics.passed(len(record), partial(read_of, record))
    assert {name: received.records for name, received in topics.take().items()} == {
        "t0": 1, "t1": 1, "(others)": 3
    }  # fmt: skip
    assert topics.take() == {}


def test_once_by_topic_looks_twice(tmp_path: Path) -> None:
    words = (tmp_path, "--by", "topic", "--once", "--interval", "0.1", "--output", "jsonl")
    ended = threading.Event()
    with MessageStore.open(tmp_path, CONFIG) as store:

        def put() -> None:
            while not ended.wait(0.001):
                store.put_message(Message("t", b"x"))

        thread = threading.Thread(target=put)
        thread.start()
        try:
            (row,) = map(json.loads, commands.cqstore("top", *words).stdout.splitlines())
        finally:
            ended.set()
            thread.join()
    assert (row["topic"], row["share"]) == ("t", 1)
    assert row["messages"] > 0
    with unchanged(tmp_path):
        done = commands.cqstore("top", *words)
        assert done.stdout == ""
        assert re.fullmatch(r"cqstore: no messages arrived in \d+\.\d s\n", done.stderr)


def test_the_view_by_topic_begins_with_the_second_look(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=60)
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message("before", b"x"))
        looking = StoreWatch(detect(store.root, CONFIG), by_topic=True)
        topics = iter(("first", "second"))

        def wait() -> None:
            if (topic := next(topics, "")) == "":
                raise KeyboardInterrupt
            store.put_message(Message(topic, b"x"))

        show(TopView(looking, partial(topic_rows, limit=3)), console, wait)
    shown = screen.getvalue()
    assert re.search(r"first +1 ", shown)
    assert re.search(r"second +1 ", shown)
    assert "before" not in shown
