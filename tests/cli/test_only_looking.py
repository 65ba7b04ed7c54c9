"""Verbs that only look open nothing of a store for writing: a read-only mount is enough."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.store.journals.store_lock import locked_by
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import run_module
from tests.kit.tree import unchanged

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, rocksdb_memory_bytes=16 << 20)
LOOKING = [
    ["info"], ["check"], ["mode"], ["clean"], ["topics", "--times"], ["topics", "--delete", "t"],
    ["get", "--topic", "t"], ["dump", "--messages"], ["top", "--once"], ["usage"],
    ["query", "--topic", "t", "--key", "k"], ["offset", "--topic", "t", "--time", "0"],
    ["tail", "t"], ["export"], ["get", "--topic", "t", "--begin", "0"],
]  # fmt: skip


@pytest.fixture(scope="module", params=["file", "rocksdb", "both"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    both = {"rocksdb_cq_double_write_enable": True} if request.param == "both" else {}
    backend = None if both else request.param
    with MessageStore.open(root, CONFIG.model_copy(update=both), backend=backend) as store:
        assert store.put_message(Message("t", b"x", 0, {"KEYS": "k"})).ok
    return root


@pytest.mark.parametrize("words", LOOKING, ids="-".join)
def test_nothing_of_the_store_is_opened_for_writing(root: Path, words: list[str]) -> None:
    with unchanged(root):
        done = run_module("tests.kit.only_looking", root, words[0], root, *words[1:])
        assert "WRITES" not in done.stderr, done.stderr
        assert done.returncode == 0, done.stderr


def test_who_has_a_store_open_is_told_without_a_right_to_write(tmp_path: Path) -> None:
    root = tmp_path / "store"
    MessageStore.open(root, CONFIG, backend="file").close()
    (root / "lock").chmod(0o444)
    assert locked_by(StorePaths(root)) == 0
    with MessageStore.open(root, CONFIG):
        assert locked_by(StorePaths(root)) == os.getpid()
        requested = "from pathlib import Path; from cqstore.store.paths import StorePaths\n"
        requested += "from cqstore.store.journals.store_lock import locked_by; import sys\n"
        requested += "print(locked_by(StorePaths(Path(sys.argv[1]))))"
        done = subprocess.run(
            [sys.executable, "-c", requested, root], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.stdout == f"{os.getpid()}\n"
