"""Files of other programs in a store's folders: readers pass over them, writers name a command."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from cqstore import Message, MessageStore, RefusedStoreError, StoreConfig
from tests.kit.commands import run
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000,
    max_hash_slot_num=50, max_index_num=1000, rocksdb_memory_bytes=16 << 20,
)  # fmt: skip
NAMES = [".nfs0000000000a1", ".DS_Store", f"{0:020d}.bak", f"{0:020d}.tmp", "it's mine.txt", "0"]
READING = [
    ["info"], ["topics"], ["get", "--topic", "t"], ["tail", "t"],
    ["dump", "--commitlog-offset", "0"], ["query", "--topic", "t", "--key", "k0"],
    ["usage"], ["pending"],
]  # fmt: skip
WRITING = [["put", "--topic", "t", "--body", "x"], ["recover"], ["rebuild"]]


@pytest.fixture(params=["file", "rocksdb"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "a store"
    with MessageStore.open(root, CONFIG, backend=request.param) as store:
        for number in range(3):
            assert store.put_message(Message("t", b"x", 0, {"KEYS": f"k{number}"})).ok
    return root


def foreign(root: Path) -> list[Path]:
    """Put a file of each name among those of the log."""
    for name in NAMES:
        (root / "commitlog" / name).write_bytes(bytes(100_000 if name == ".DS_Store" else 7))
    return sorted(root / "commitlog" / name for name in NAMES)


def checked(root: Path) -> tuple[int, list[dict[str, object]], str]:
    done = run(["check", root, "--output", "json"])
    assert "3 records, 3 units checked; 0 damaged" in done.stderr
    return done.returncode, json.loads(done.stdout or "[]"), done.stderr


def test_readers_pass_over_foreign_files_and_name_them(root: Path) -> None:
    paths = foreign(root)
    before = tree_digest(root)
    code, rows, _ = checked(root)
    assert code == 0
    assert [(row["severity"], row["path"]) for row in rows] == [("note", str(p)) for p in paths]
    for words in READING:
        done = run([words[0], root, *words[1:]])
        assert done.returncode == 0, (words, done.stderr)
        for path in paths[:3]:
            assert f"({path})" in done.stderr, words
        assert f"{len(paths) - 3} more such files: cqstore check lists all of them" in done.stderr
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert [note.path for note in store.report.notes] == paths
        assert len(store.get_message("t", 0, 0).messages()) == 3
    assert tree_digest(root) == before


def test_a_writer_names_the_command_that_moves_them_away(root: Path) -> None:
    foreign(root)
    before = tree_digest(root)
    said = set[str]()
    for words in WRITING:
        done = run([words[0], root, *words[1:]])
        assert done.returncode == 2, (words, done.stderr)
        assert all(name in done.stderr for name in NAMES), words
        said.add(re.search(r"Move them away: (.*) \([^()]*\)$", done.stderr.strip())[1])  # type: ignore[index]
    with pytest.raises(RefusedStoreError):
        MessageStore.open(root, CONFIG)
    assert tree_digest(root) == before
    (command,) = said
    subprocess.run(["sh", "-c", command], check=True)
    moved = root.with_name("a store.foreign")
    assert sorted(path.name for path in moved.iterdir()) == sorted(NAMES)
    for words in WRITING:
        assert run([words[0], root, *words[1:]]).returncode == 0, words


def test_a_command_moves_twenty_files_and_the_next_one_the_rest(root: Path) -> None:
    for number in range(25):
        (root / "commitlog" / f"{number}.txt").touch()
    for left in (5, 0):
        done = run(["recover", root])
        assert (done.returncode, "and 5 more" in done.stderr) == (2, bool(left))
        command = re.search(r"Move them away: (.*) \([^()]*\)$", done.stderr.strip())
        assert command is not None
        subprocess.run(["sh", "-c", command[1]], check=True)
        assert len(list((root / "commitlog").glob("*.txt"))) == left
    assert run(["recover", root]).returncode == 0


def test_a_repair_is_refused_before_a_copy_is_made(root: Path) -> None:
    foreign(root)
    (root / "abort").touch()
    done = run(["check", root, "--repair"])
    assert (done.returncode, "Move them away" in done.stderr) == (2, True)
    assert [path.name for path in root.parent.iterdir()] == [root.name]


@pytest.mark.parametrize(
    "place",
    ["consumequeue/notes.txt", "consumequeue/t/0.bak", "consumequeue/t/0/.nfs01", "index/notes",
     "index/lost+found/x"],
)  # fmt: skip
def test_a_file_among_those_of_queues_and_index_is_no_damage(tmp_path: Path, place: str) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for number in range(3):
            assert store.put_message(Message("t", b"x", 0, {"KEYS": f"k{number}"})).ok
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    code, rows, _ = checked(tmp_path)
    assert code == 0
    found = path.parent if path.parent.name == "lost+found" else path
    assert [(row["severity"], row["path"]) for row in rows] == [("note", str(found))]
    for words in (["info"], ["put", "--topic", "t", "--body", "x"]):
        assert run([words[0], tmp_path, *words[1:]]).returncode == 0
