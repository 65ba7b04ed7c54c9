"""Names that the store does not have, numbers out of their ranges, stores that others have open."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import run
from tests.kit.tree import tree_digest

SMALL = {"mapped_file_size_commit_log": 1 << 16, "rocksdb_memory_bytes": 16 << 20}
TOO_BIG = "9" * 20
NO_HOST = "7F000001" + "0" * 8
"""Of the ids that a store of ours gives; then come 16 digits of phy offset."""
OF_ANOTHER = "0A00000900002A9F" + "0" * 16


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with MessageStore.open(root, StoreConfig(**SMALL), backend="file") as store:
        for topic, queue_id in (("orders", 0), ("orders", 1), ("orders", 2), ("payments", 7)):
            assert store.put_message(Message(topic, b"x", queue_id, {"KEYS": "k"})).ok
    return root


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["get", "--topic", "ordres"], "no topic 'ordres' in this store; did you mean 'orders'?"),
        (["get", "--topic", "orders", "--queue-id", 4], "'orders' has no queue 4; it has 0 to 2"),
        (["get", "--topic", "payments"], "'payments' has no queue 0; it has 7"),
        (["get", "--topic", "x", "--key", "k"], "no topic 'x' in this store"),
        (["query", "--topic", "paymemts", "--key", "k"], "did you mean 'payments'?"),
        (["offset", "--topic", "Orders", "--time", 0], "did you mean 'orders'?"),
        (["dump", "--topic", "zzz"], "no topic 'zzz' in this store"),
        (["dump", "--topic", "orders", "--queue-id", 3], "has no queue 3"),
        (["topics", "--delete", "orders", "payment"], "did you mean 'payments'?"),
        (["topics", "--delete", "orders", "payment", "--yes"], "did you mean 'payments'?"),
        (["get", "--topic", "orders", "--offset", -10], "should be"),
        (["get", "--topic", "orders", "--queue-id", -1], "should be"),
        (["get", "--topic", "orders", "--offset", TOO_BIG], "is more than 9223372036854775807"),
        (["get", "--topic", "orders", "--count", TOO_BIG], "is more than 2147483647"),
        (["offset", "--topic", "orders", "--queue-id", -1, "--time", 0], "should be"),
        (["dump", "--topic", "orders", "--offset", -1], "should be"),
        (["dump", "--commitlog-offset", -1], "should be"),
        (["dump", "--commitlog-offset", TOO_BIG], "is more than 9223372036854775807"),
        (["rebuild", "--topic", "orders", "--queue-id", -1], "should be"),
        (
            ["get", "--topic", "orders", "--key", "k", "--offset", 1],
            "--offset cannot be combined with",
        ),
        (
            ["get", "--topic", "orders", "--key", "k", "--tags", "a"],
            "--tags cannot be combined with",
        ),
        (
            ["get", "--message-id", OF_ANOTHER],
            "refers to 10.0.0.9 10911, phy offset 0, where this log has message",
        ),
        (["get", "--message-id", OF_ANOTHER], "of 127.0.0.1 0: the ID belongs to another broker"),
        (["get", "--message-id", f"{NO_HOST}{1:016X}"], "phy offset 1, where no message of this"),
        (["get", "--message-id", f"{NO_HOST}{1 << 40:016X}"], "but this log ranges from 0 to "),
        (["get", "--message-id", f"{NO_HOST}{'F' * 16}"], ", phy offset -1, but this log ranges"),
        (
            ["get", "--message-id", f"{'0' * 32}{'2A9F'.zfill(8)}{0:016X}"],
            ": the ID belongs to anoth",
        ),
        (["get", "--message-id", "0" * 31], "expected 32 or 56 digits, found 31"),
        (["get", "--message-id", "0" * 30], "expected 32 or 56 digits, found 30"),
        (["get", "--message-id", "0" * 32, "--count", 1], "--count cannot be combined with"),
        (["get", "--message-id", "0" * 32, "--queue-id", 1], "--queue-id cannot be combined with"),
    ],
)
def test_what_is_not_there_or_out_of_range_is_one_sentence(
    root: Path, words: list[object], sentence: str
) -> None:
    before = tree_digest(root)
    done = run([words[0], root, *words[1:]])
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in " ".join(done.stderr.replace("\u2502", " ").split())
    assert done.stdout == ""
    assert tree_digest(root) == before


def test_a_topic_without_records_is_not_rebuilt(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, StoreConfig(**SMALL), backend="file") as store:
        assert store.put_message(Message("orders", b"x", 1)).ok
    done = run(["rebuild", root, "--topic", "order"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "topic 'order' has no record in the log; did you mean 'orders'?" in done.stderr
    done = run(["rebuild", root, "--topic", "orders", "--queue-id", 0])
    assert "queue 0 of topic 'orders' has no record in the log" in done.stderr
    assert run(["rebuild", root, "--topic", "orders"]).returncode == 0


HOLDER = """
import sys
from cqstore.store.settings.config import StoreConfig
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
settings = dict(mapped_file_size_commit_log=1 << 16, rocksdb_memory_bytes=16 << 20)
with MessageStore.open(sys.argv[1], StoreConfig(**settings), backend=sys.argv[2]) as store:
    for number in range(50):
        assert store.put_message(Message("t", b"x", 0)).ok
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["file", "rocksdb"])
def held(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Path, str, "subprocess.Popen[str]"]]:
    root = tmp_path / "store"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, root, request.param], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield root, request.param, process
        process.communicate("")
    assert process.returncode == 0


def test_a_store_that_another_process_has_open_is_read_with_a_word(
    held: tuple[Path, str, "subprocess.Popen[str]"],
) -> None:
    root, backend, process = held
    word = f"process {process.pid} has the store open"
    checked = run(["check", root])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"no finding counts as damage while {word}" in checked.stderr
    assert "50 records" in checked.stderr
    assert "damage " not in checked.stdout
    info = run(["info", root])
    assert f"none: {word}" in info.stdout
    assert "recovery" not in info.stdout + info.stderr
    for words in (["get", "--topic", "t"], ["topics"], ["dump", "--messages"], ["info"], ["check"]):
        done = run([words[0], root, *words[1:]])
        assert word in done.stderr
        assert ("only in memory is not shown" in done.stderr) == (backend == "rocksdb")
        assert "needs recovery" not in done.stderr
    assert run(["check", root, "--repair"]).returncode == 2
    assert not root.with_name("store.repaired").exists()


def test_a_record_in_a_body_and_a_blank_are_none_that_begin_there(tmp_path: Path) -> None:
    root, log = tmp_path / "store", 1 << 16
    with MessageStore.open(root, StoreConfig(**SMALL), backend="file") as store:
        first = store.put_message(Message("orders", b"x", 0))
        forged = bytes(components_of(store).log.view(0, store.max_phy_offset()))
        assert first.phy_offset == 0
        second = store.put_message(Message("orders", b"ab" + forged, 0))
        third = store.put_message(Message("orders", b"c" * 40_000, 0))
        blank = store.max_phy_offset()
        fourth = store.put_message(Message("orders", b"d" * 40_000, 0))
        assert fourth.phy_offset == log
    within = (root / "commitlog" / f"{0:020d}").read_bytes().index(forged, 1)
    done = run(["dump", root, "--commitlog-offset", within])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"it is inside the record from {second.phy_offset} to {third.phy_offset}" in done.stderr
    for place in (blank, blank + 3, log - 1):
        done = run(["dump", root, "--commitlog-offset", place])
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            f"the blank record from {blank} to {log}; the next one starts at {log}" in done.stderr
        )


def test_a_queue_that_was_lost_is_built_though_it_is_not_there(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, StoreConfig(**SMALL), backend="file") as store:
        assert store.put_message(Message("orders", b"x", 1)).ok
        assert store.put_message(Message("other", b"x", 0)).ok
    shutil.rmtree(root / "consumequeue" / "orders")
    done = run(["rebuild", root, "--topic", "orders", "--output", "json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["units"] == 1
