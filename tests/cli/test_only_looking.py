"""Verbs that only look open nothing of a store for writing: a read-only mount is enough."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.journals.store_lock import locked_by
from store.paths import StorePaths
from store.record.message import Message
from store.service.message_store import MessageStore
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, rocksdb_memory_bytes=16 << 20)
LOOKING = [
    ["info"], ["check"], ["mode"], ["clean"], ["topics", "--times"], ["topics", "--delete", "t"],
    ["get", "--topic", "t"], ["dump", "--messages"], ["top", "--once"], ["usage"],
    ["query", "--topic", "t", "--key", "k"], ["offset", "--topic", "t", "--time", "0"],
]  # fmt: skip
WATCHED = """
import os, sys
root = sys.argv[1]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink",
           "os.utime", "os.chmod"}
def watch(event, args):
    if event in {"os.symlink", "os.link"}:  # what is made, not what it leads to
        args = args[1:]
    path = next((os.fspath(each) for each in args if isinstance(each, (str, os.PathLike))), "")
    writes = event == "open" and isinstance(args[2], int) and args[2] & WRITES
    inside = isinstance(path, str) and path.startswith(root)
    if (inside and (writes or event in CHANGES)) or event in {"fcntl.lockf", "fcntl.flock"}:
        os.write(2, f"WRITES {event} {args}\\n".encode())
        os._exit(99)
sys.argv[:] = ["cqstore", *sys.argv[2:]]
from store.cli.app import main
sys.addaudithook(watch)
main()
"""


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
    before = tree_digest(root)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, root, words[0], root, *words[1:]], capture_output=True,
        text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "WRITES" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    assert tree_digest(root) == before


def test_who_has_a_store_open_is_told_without_a_right_to_write(tmp_path: Path) -> None:
    root = tmp_path / "store"
    MessageStore.open(root, CONFIG, backend="file").close()
    (root / "lock").chmod(0o444)
    assert locked_by(StorePaths(root)) == 0
    with MessageStore.open(root, CONFIG):
        assert locked_by(StorePaths(root)) == os.getpid()
        asked = "from pathlib import Path; from store.paths import StorePaths\n"
        asked += "from store.journals.store_lock import locked_by; import sys\n"
        asked += "print(locked_by(StorePaths(Path(sys.argv[1]))))"
        done = subprocess.run(
            [sys.executable, "-c", asked, root], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.stdout == f"{os.getpid()}\n"
