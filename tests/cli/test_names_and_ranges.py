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

SMALL = {"mapped_file_size_commit_log": 1 << 16, "rocksdb_memory_bytes": 16 << 20}


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
